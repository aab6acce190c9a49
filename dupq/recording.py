"""What is written while a piece of work is done: each file with its size, checksum and rows.

A run keeps it, and believes a file later only if it is still the one that was written (dupq/runs/stage_records.py).
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Written(NamedTuple):
    """A file as it was written."""

    size: int  # bytes
    checksum: str  # as `storage.checksum` gives it
    rows: int | None = None  # of a table


class _Recorders(threading.local):
    """Those of a thread: a task or a stage is done in one, beside which another one writes how far it is."""

    def __init__(self) -> None:
        self.open: list[dict[str, Written]] = []


_recorders = _Recorders()


@contextlib.contextmanager
def recording() -> Iterator[dict[str, Written]]:
    """A dict that fills with the URIs of what is written, and not deleted again, until the end."""
    written: dict[str, Written] = {}
    _recorders.open.append(written)
    try:
        yield written
    finally:
        _recorders.open.pop()


def is_recording() -> bool:
    """Whether anybody wants to know."""
    return bool(_recorders.open)


def note(written: Mapping[str, Written]) -> None:
    """Add files to what was written."""
    for recorder in _recorders.open:
        recorder.update(written)


def forget(uri: str) -> None:
    """A file or a folder is gone."""
    for recorder in _recorders.open:
        for known in [known for known in recorder if known == uri or known.startswith(f"{uri}/")]:
            del recorder[known]
