"""A folder for this user's temporary files alone, where no other place can be taken for granted."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path


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
