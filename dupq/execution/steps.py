"""What a worker keeps from task to task of a step, and frees before it works on another step."""

from collections.abc import Callable

_registered: list[Callable[[], None]] = []
_step = ""  # of this process's last task


def free_with_the_step(free: Callable[[], None]) -> Callable[[], None]:
    """Have `free` called before each task of another step than the last one of its process. Also a decorator."""
    _registered.append(free)
    return free


def begin(work: Callable[..., object]) -> None:
    """Begin a task that calls `work`, whose name is the step's: Ray may make the function itself anew for each task."""
    global _step
    before, _step = _step, f"{work.__module__}.{work.__qualname__}"
    if _step != before:
        for free in _registered:
            free()
