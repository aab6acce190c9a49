"""Measuring the peak memory of a task in a process that may have run other tasks before."""

import contextlib
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

Result = TypeVar("Result")
_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Reset the peak: from now on `peak_mb` gives the highest resident memory since this call (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb() -> float:
    """The highest resident memory (MB) since `reset_peak`; since the process began where that is not available."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def give_back() -> None:
    """Return memory to the system that earlier work has freed and the allocators have kept."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def measured(work: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """The result of `work(*arguments)` and its peak memory in MB."""
    give_back()
    reset_peak()
    result = work(*arguments)
    return result, peak_mb()
