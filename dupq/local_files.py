"""Walking through a local folder, links followed."""

import errno
import os
import stat
from collections.abc import Iterator

NOWHERE = "a link to nothing"
IN_CIRCLE = "a link in a circle"

_Identity = tuple[int, int]  # a folder's device and inode, the same by whatever path it is reached


def walk(folder: str) -> Iterator[tuple[str, int | str]]:
    """Yield each file at any depth below `folder`: its path from there, and its size in bytes.

    A link that cannot be followed, or that leads to a folder which it is in itself, has NOWHERE or IN_CIRCLE in place
    of the size. Names that open with `.` or `_` are left out. Yields nothing if there is no folder; raises OSError.
    """
    waiting = [(folder, _above(folder))]
    while waiting:
        inside, above = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(inside) if not entry.name.startswith((".", "_"))]
        except FileNotFoundError:  # removed meanwhile, or never there
            continue
        for entry in entries:
            path = entry.path[len(folder) :].lstrip("/")
            status = _status(entry)
            if isinstance(status, str):
                yield path, status
            elif status is not None and stat.S_ISREG(status.st_mode):
                yield path, status.st_size
            elif status is not None and stat.S_ISDIR(status.st_mode):
                identity = _identity(status)
                if identity in above:
                    yield path, IN_CIRCLE
                else:
                    waiting.append((entry.path, above | {identity}))


def _status(entry: os.DirEntry[str]) -> os.stat_result | str | None:
    """What is there, behind a link too; NOWHERE, IN_CIRCLE, or None if it was removed meanwhile."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return IN_CIRCLE
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return NOWHERE if entry.is_symlink() else None


def _above(folder: str) -> frozenset[_Identity]:
    """`folder` and all folders that it is in."""
    path, found = os.path.realpath(folder), set[_Identity]()
    while os.path.exists(path):
        found.add(_identity(os.stat(path)))
        if os.path.dirname(path) == path:
            break
        path = os.path.dirname(path)
    return frozenset(found)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
