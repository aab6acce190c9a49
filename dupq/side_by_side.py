"""Small requests side by side: on S3 each waits for the network."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AT_ONCE = 16  # enough to hide the time of a request


def side_by_side(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """What `function` gives for each item, in their order. Raises the error of the first item that has one.

    Threads: they spare waiting, not computing. What `function` writes is not recorded (recording.py).
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))
