"""The peak memory of one piece of work in a process that may have done other work before."""

import contextlib
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

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


def give_back() -> None:
    """Return to the system what earlier work in this process has freed, which the allocators keep for later."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def measured(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of `work(*arguments)` and its peak memory in MB."""
    give_back()
    reset_peak()
    result = work(*arguments)
    return result, peak_mb()
