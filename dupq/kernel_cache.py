"""numba with a cache of compiled code for dupq: modules with compiled functions import numba from here.

**It notices every edit.** numba itself recompiles a cached function only if its own file has changed. But compiled code
contains functions and constants of other files, and after an edit of these the old code would still run. Here the name
of a cached file has a hash of all files of dupq and its papers that compiled code comes from. Cached files with another
hash are never opened, as they may name classes that no longer exist, and are removed when new ones are written; those
of other versions of Python or numba stay, as another environment may use them.

**Any user in any container can run it.** A function is loaded from any of these folders, and saved in the first that is
writable: NUMBA_CACHE_DIR, `__pycache__` next to the file, the user's cache folder, this user's own temporary folder. So
an image may ship compiled code that is read-only. If no folder is writable, each process compiles for itself.

Functions of other packages than dupq and dupq_papers are cached as numba does it.
"""

import contextlib
import functools
import hashlib
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import event
from numba.core.compiler import CompileResult
from numba.misc.appdirs import AppDirs

from dupq.local_files import own_folder

__all__ = ["Integer", "compile_seconds", "numba", "read_only"]

Integer = int | np.int64  # the same in compiled code

PACKAGE = Path(__file__).resolve().parent
_PAPERS = [PACKAGE.parent / "dupq_papers", PACKAGE.parent / "papers" / "dupq_papers"]  # installed, in a checkout
_MADE_BY = f"{sys.implementation.cache_tag}-numba{numba.__version__}"
_IMPORTS_NUMBA = re.compile(rb"^from dupq\.kernel_cache import .*\bnumba\b", re.MULTILINE)
_LONG_SECONDS = 3.0  # of compiling, after which a line explains the wait
_warn_once = functools.cache(logging.getLogger(__name__).warning)
caching: Any = numba.core.caching  # numba has no type hints
dispatcher: Any = numba.core.dispatcher
config: Any = numba.config
_timer = event.TimingListener()
event.register("numba:compile", _timer)


def compile_seconds() -> float:
    """Return the time that numba has spent on compiling in this process, without loading."""
    return float(_timer.duration) if _timer.done else 0.0


def read_only(array: np.ndarray) -> np.ndarray:
    """Return the array as a contiguous one that cannot be written.

    One from Arrow's buffers may be writable or not, a column of numpy's has gaps, and numba would compile a function
    for each kind.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@functools.cache
def source_stamp() -> str:
    """Return a hash of the files of dupq that compiled code comes from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in compiled_files())).hexdigest()


def compiled_files() -> list[Path]:
    """Return the files of dupq and its papers that have compiled functions; these use constants of such files only."""
    files = [path for package in (PACKAGE, *_PAPERS) for path in sorted(package.rglob("*.py"))]
    return [path for path in files if _IMPORTS_NUMBA.search(path.read_bytes())]


class KernelCache(caching.FunctionCache):
    """The compiled code of one function of dupq, in the folders that may hold it."""

    def __init__(self, py_func: FunctionType) -> None:
        """Choose the name of the function's files; numba's own constructor would look for one folder to write to."""
        self._py_func, self._cache_path = py_func, "__pycache__"  # numba only displays it
        self._name = f"{py_func.__module__}.{py_func.__qualname__}-dupq-{source_stamp()[:16]}.{_MADE_BY}"

    def _file_in(self, folder: Path) -> caching.IndexDataCacheFile:
        return caching.IndexDataCacheFile(str(folder), self._name, source_stamp())

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        key = self._index_key(sig, target_context.codegen())
        for folder in _folders(make=False):
            with contextlib.suppress(OSError):  # a folder that may not be read
                if code := self._file_in(folder).load(key):
                    return CompileResult._rebuild(target_context, *code)
        return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        if data.library.has_dynamic_globals:  # addresses in this process
            return
        if compile_seconds() > _LONG_SECONDS:
            _warn_once("compiling what is called for the first time, a minute or two; it is kept")
        key, code = self._index_key(sig, data.codegen), data._reduce()
        for folder in _folders(make=True):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._file_in(folder).save(key, code)
            except OSError:  # may not be written, or is full
                continue
            _remove_others(folder)
            return
        _warn_once(
            "compiled code cannot be kept, so each process compiles for itself, a minute or two: no folder for it can "
            "be written; set NUMBA_CACHE_DIR to one that can"
        )


def _folders(make: bool) -> Iterator[Path]:
    """Yield the folders for compiled code, in order of preference; with `make`, create the user's own temporary one."""
    name = caching._CacheLocator.get_suitable_cache_subpath(str(PACKAGE / "_"))  # of this checkout
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR, name).absolute()
    yield PACKAGE / "__pycache__"
    users = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    if users.is_absolute():  # without a home it is "~/.cache"
        yield users / name
    own = own_folder(make=make)
    if own is not None:
        yield own / "kernels" / name


@functools.cache  # once per process, not for each function
def _remove_others(folder: Path) -> None:
    """Remove the files of earlier code that were cached by the same versions of Python and numba."""
    for file in folder.glob(f"*-dupq-*.{_MADE_BY}.*"):
        if f"-dupq-{source_stamp()[:16]}." not in file.name:
            with contextlib.suppress(OSError):  # another process removed it first, or it is read-only
                file.unlink()


def _cache_of(py_func: FunctionType) -> object:
    """Return the cache of a function, in place of numba's class."""
    file = Path(inspect.getfile(py_func)).resolve()
    is_ours = any(map(file.is_relative_to, (PACKAGE, *_PAPERS)))
    return KernelCache(py_func) if is_ours else caching.FunctionCache(py_func)


dispatcher.FunctionCache = _cache_of
