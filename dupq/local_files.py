"""The local disk: writing a file whole, errors in the words of this project, a folder of this user's own for temporary
files, and walking through a folder, links followed.
"""

import contextlib
import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from dupq.errors import DupqError, StorageError

_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP)


@contextlib.contextmanager
def errors(uri: str, doing: Literal["read", "written"]) -> Iterator[None]:
    """Errors of the local disk in the words of this project."""
    try:
        yield
    except OSError as error:
        raise error_of(uri, error, doing) from error


def error_of(uri: str, error: OSError, doing: Literal["read", "written"]) -> DupqError:
    """Return what to raise for an error of the disk."""
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    if error.errno in _NO_RIGHT:
        return StorageError(f"{uri}: cannot be {doing}: no right to ({reason}); give the user of this job that right")
    if error.errno in _NO_SPACE:
        return StorageError(f"{uri}: cannot be {doing}: no space left ({reason}); make room and start again")
    if error.errno == errno.ENOENT and doing == "read":
        return DupqError(f"{uri}: no such file")
    if not error.errno or error.errno in _NOT_THERE:
        return DupqError(f"{uri}: cannot be {doing} ({reason})")
    return StorageError(f"{uri}: cannot be {doing} ({reason})")


@contextlib.contextmanager
def temporary(path: str) -> Iterator[str]:
    """A temporary name beside `path` to write to first; removed if it still exists at the end."""
    folder, file_name = os.path.split(path)
    name = os.path.join(folder, f".{file_name}.{uuid.uuid4().hex}.tmp")
    try:
        with errors(path, "written"):
            os.makedirs(folder, exist_ok=True)
            yield name
    finally:
        with contextlib.suppress(OSError):  # never made, or its name is too long: the first error says so
            os.unlink(name)


def write(path: str, content: bytes) -> None:
    """Write a file that would survive a loss of power."""
    with open(path, "wb") as stream:
        stream.write(content)
    make_durable(path)


def make_durable(path: str) -> None:
    """Have the disk keep what was written to a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def own_folder(parents: Iterable[str | Path] | None = None, make: bool = True) -> Path | None:
    """Return `dupq-UID` (mode 0700) in the first of `parents` that allows it, by default the temporary folder.

    Where it is not there, it is made, unless `make` is False. None if no parent allows it, or if another user made a
    folder of that name, or may write to it: compiled code is run, so nobody else may put it there.
    """
    for parent in _temporary_folders() if parents is None else parents:
        folder = Path(parent, f"dupq-{os.geteuid()}")
        with contextlib.suppress(OSError):
            if make:
                folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if is_ours and can_write(folder):
                return folder
    return None


def can_write(folder: Path) -> bool:
    """Whether files can be written to `folder`, which is made if it is not there.

    It is tried: of a read-only file system access() tells root otherwise. False for a relative path, as "~/x" is where
    there is no home.
    """
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _temporary_folders() -> list[str]:
    """The folder for temporary files; none where Python finds none that can be written."""
    try:
        return [tempfile.gettempdir()]
    except OSError:
        return []


LOST = "a link to nothing, or in a circle"


def walk(folder: str) -> Iterator[tuple[str, int | None]]:
    """Yield each file at any depth below `folder`: its path from there, and its size in bytes.

    A link that leads to nothing, or to a folder which it is in itself, has None in place of the size. Names that open
    with `.` or `_` are left out. Yields nothing if there is no folder; raises OSError.
    """
    real = Path(os.path.realpath(folder))
    waiting = [(folder, frozenset(_identity(above.stat()) for above in (real, *real.parents) if above.exists()))]
    while waiting:
        inside, above = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(inside) if not entry.name.startswith((".", "_"))]
        except FileNotFoundError:  # removed meanwhile, or never there
            continue
        for entry in entries:
            path = entry.path[len(folder) :].lstrip("/")
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                if entry.is_symlink():  # else it was removed meanwhile
                    yield path, None
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size
            elif stat.S_ISDIR(status.st_mode) and _identity(status) in above:
                yield path, None
            elif stat.S_ISDIR(status.st_mode):
                waiting.append((entry.path, above | {_identity(status)}))


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return a folder's device and inode, the same by whatever path it is reached."""
    return status.st_dev, status.st_ino
