"""The peak memory of one piece of work in a process that may have done other work before."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Start anew: from here on `peak_mb` tells the highest resident memory since now (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb() -> float:
    """The highest resident memory (MB) since `reset_peak`; of the whole process where that is not to be had."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of `work(*arguments)` and its peak memory in MB."""
    reset_peak()
    result = work(*arguments)
    return result, peak_mb()
