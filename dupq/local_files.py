"""The local disk: atomic writes, its errors as DupqError, a private temporary folder, and walks that follow links."""

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
LOST = "a link to nothing, or in a circle"


@contextlib.contextmanager
def errors(uri: str, doing: Literal["read", "written"]) -> Iterator[None]:
    """Raise errors of the local disk as DupqError or StorageError."""
    try:
        yield
    except OSError as error:
        raise error_of(uri, error, doing) from error


def error_of(uri: str, error: OSError, doing: Literal["read", "written"]) -> DupqError:
    """Return the DupqError or StorageError for an error of the local disk."""
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
    """Yield the name of a temporary file in the folder of `path`, which is removed if it still exists at the end."""
    folder, file_name = os.path.split(path)
    name = os.path.join(folder, f".{file_name}.{uuid.uuid4().hex}.tmp")
    try:
        with errors(path, "written"):
            os.makedirs(folder, exist_ok=True)
            yield name
    finally:
        with contextlib.suppress(OSError):  # it was never made: the first error says why
            os.unlink(name)


def make_durable(path: str) -> None:
    """Flush a file to the disk, so that it survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def own_folder(parents: Iterable[str | Path] | None = None, make: bool = True) -> Path | None:
    """Return `dupq-UID` (mode 0700) in the first of `parents` that allows it, by default the temporary folder.

    It is made if it is missing, unless `make` is False. Returns None if no parent allows it, or if the folder belongs
    to another user or others may write to it: the folder holds compiled code that is run.
    """
    if parents is None:
        with contextlib.suppress(OSError):  # Python finds no folder that can be written
            parents = [tempfile.gettempdir()]
    for parent in parents or ():
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
    """Return whether files can be written to `folder`, which is made if it is missing.

    A file is written, as access() tells root nothing of a read-only file system. A relative path, such as "~/x" without
    a home, is refused.
    """
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def walk(folder: str) -> Iterator[tuple[str, int | None]]:
    """Yield each file at any depth below `folder`: its relative path, and its size in bytes.

    A broken link, or one to a folder that contains it, has None as its size. Names that begin with `.` or `_` are left
    out. Yields nothing if there is no such folder. Raises OSError.
    """
    real = Path(os.path.realpath(folder))
    folders = [(folder, frozenset(_identity(above.stat()) for above in (real, *real.parents) if above.exists()))]
    while folders:
        inside, above = folders.pop()
        try:
            entries = [entry for entry in os.scandir(inside) if not entry.name.startswith((".", "_"))]
        except FileNotFoundError:
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
                folders.append((entry.path, above | {_identity(status)}))


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return a folder's device and inode, the same by whatever path it is reached."""
    return status.st_dev, status.st_ino
