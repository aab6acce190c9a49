"""Doing something every few seconds beside other work."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from dupq.errors import DupqError


@contextlib.contextmanager
def repeating(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `work` every so many seconds, in a thread of its own, until the block ends.

    A DupqError of `work` is ignored, as of a storage that is away for a while: the next call tries again.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            with contextlib.suppress(DupqError):
                work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
