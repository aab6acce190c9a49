"""Waiting for what another process does."""

import time
from collections.abc import Callable


def await_it(condition: Callable[[], object], seconds: float = 300) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())
