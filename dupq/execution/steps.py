"""What a worker keeps from task to task of a step, and frees before it works on another step."""

import inspect
from collections.abc import Callable

_registered: list[Callable[[], None]] = []
_step = ""  # of this process's last task


def free_with_the_step(free: Callable[[], None]) -> Callable[[], None]:
    """Have `free` called before each task of another step than the last one of its process. Also a decorator."""
    _registered.append(free)
    return free


def begin(work: Callable[..., object], *arguments: object) -> None:
    """Begin a task that calls `work(*arguments)`.

    The step's name is that of `work`, and of the functions that it is given: Ray may make a function itself anew for
    each task.
    """
    global _step
    given = (f"{one.__module__}.{one.__qualname__}" for one in arguments if inspect.isfunction(one))
    before, _step = _step, " ".join([f"{work.__module__}.{work.__qualname__}", *given])
    if _step != before:
        for free in _registered:
            free()
