"""Doing something every few seconds beside other work."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeating(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `work` every so many seconds, in a thread of its own, until the block ends. `work` must not raise."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
