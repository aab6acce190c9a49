"""numba with an on-disk cache that notices every edit: modules with compiled functions import numba from here.

By itself numba compiles a cached function anew if its own file has changed. Functions and constants of other files
are part of what was compiled too, and after an edit of these the old code would go on running. Here the cache of a
function also depends on all files of dupq that its file imports, directly or by way of others. That is less than the
whole package, so that an edit of the report, say, does not cost minutes of compiling.

The places are numba's own: the folder in NUMBA_CACHE_DIR, `__pycache__` beside the file, or the user's cache folder.
The names of the cache's files hold a hash of that code: the cache of other code is never opened, as it may name classes
that are gone, which is an error in numba. It is removed, so nothing piles up. Functions of other packages are cached as
ever, and so are all if NUMBA_CACHE_LOCATOR_CLASSES is set.
"""

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numba
import numpy as np
from numba.core import caching

__all__ = ["Integer", "numba"]

Integer = int | np.int64  # in compiled code, where both are the same

PACKAGE = Path(__file__).resolve().parent
_FOR_TYPES = re.compile(rb"^if TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+", re.MULTILINE)
_IMPORT = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+dupq((?:\.\w+)*)(?:[ \t]+import[ \t]+(\([^)]*\)|[^\n]*))?", re.MULTILINE
)


def source_stamp(path: str) -> str:
    """A hash of the file at `path`, of dupq, and of all of dupq's files that it imports, directly or not."""
    digests: dict[Path, bytes] = {}
    waiting = [Path(path).resolve()]
    while waiting:
        place = waiting.pop()
        if place not in digests:
            status = place.stat()
            digests[place], imported = _read(place, status.st_mtime_ns, status.st_size)
            waiting += imported
    return hashlib.sha256(b"".join(digests[place] for place in sorted(digests))).hexdigest()


def imports(source: bytes) -> list[Path]:
    """The files of dupq that a source imports, anywhere in it but where only types are meant.

    The package's own `__init__.py` counts only if it is imported by name: it leads to the API, and so to everything.
    """
    found: set[Path] = set()
    for module, names in _IMPORT.findall(_FOR_TYPES.sub(b"", source)):
        place = PACKAGE.joinpath(*module.decode().split(".")[1:])
        for part in (place, *(place / name.decode() for name in re.findall(rb"\w+", names))):
            found |= {part.with_suffix(".py"), part / "__init__.py"}
    return sorted(place for place in found if place.is_file())


@functools.cache
def _read(place: Path, modified_ns: int, size: int) -> tuple[bytes, list[Path]]:
    """A file's digest and what it imports; its time and size are arguments so that a changed file is read again."""
    source = place.read_bytes()
    return hashlib.sha256(source).digest(), imports(source)


class _Locator:
    """A cache locator with dupq's own stamp; its other base class is numba's and chooses the folder."""

    _py_file: str

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> Self | None:
        """A locator for a function of dupq, None for others: numba then takes the next kind of locator."""
        if not Path(py_file).resolve().is_relative_to(PACKAGE):
            return None
        found = super().from_function(py_func, py_file)  # type: ignore[misc]
        if found is not None:
            _remove_others(Path(found.get_cache_path()), Path(py_file).stem, found.get_disambiguator())
        return found

    def get_source_stamp(self) -> str:
        """The stamp that is compared with the one in the cache."""
        return source_stamp(self._py_file)

    def get_disambiguator(self) -> str:
        """Part of the cache file's name; numba uses the line number."""
        return f"dupq_{source_stamp(self._py_file)[:16]}"


@functools.cache  # once a file and process, not for each of the file's functions
def _remove_others(folder: Path, module: str, kept: str) -> None:
    """Remove the cache of a module's functions as they were before."""
    for file in folder.glob(f"{module}.*-dupq*.nb[ic]"):
        if f"-{kept}." not in file.name:
            with contextlib.suppress(OSError):  # another process removed it first, or nobody may
                file.unlink()


class ProvidedFolder(_Locator, caching.UserProvidedCacheLocator):
    """The cache in NUMBA_CACHE_DIR."""


class FolderBeside(_Locator, caching.InTreeCacheLocator):
    """The cache in `__pycache__` beside the file."""


class UserFolder(_Locator, caching.UserWideCacheLocator):
    """The cache in the user's cache folder."""


_config: Any = numba.config
if not _config.CACHE_LOCATOR_CLASSES:
    _ours = [f"{__name__}.{kind.__name__}" for kind in (ProvidedFolder, FolderBeside, UserFolder)]
    _numbas = [kind.__name__ for kind in caching.CacheImpl._locator_classes]
    _config.CACHE_LOCATOR_CLASSES = ",".join([*_ours, *_numbas])
