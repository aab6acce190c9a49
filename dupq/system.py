"""Optional packages, devices, helper threads, and a record of the files that a task or a stage writes."""

import contextlib
import functools
import importlib
import importlib.util
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import TypedDict

from dupq.errors import DupqError

if TYPE_CHECKING:
    import torch

PACKAGES = {  # by the name of the import: the name of the package, and the pip extra
    "altair": ("Altair", "charts"),
    "nltk": ("NLTK", "jobs"),
    "openai": ("openai", "judge"),
    "pandas": ("pandas", "tables"),
    "py7zr": ("py7zr", "jobs"),
    "polars": ("Polars", "tables"),
    "ray": ("Ray", "jobs"),
    "sentence_transformers": ("sentence-transformers", "reranker"),
    "simplemma": ("simplemma", "jobs"),
    "textblob": ("TextBlob", "jobs"),
    "torch": ("torch", "jobs"),
}
CPU, GPU = "cpu", "cuda:0"  # a task sees one GPU, its own
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_THREADS = 16  # enough to hide the latency of requests


def is_installed(module: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


def require(module: str, user: str) -> None:
    """Raise DupqError that names the extra to install if `module`, which `user` needs, is missing."""
    if not is_installed(module):
        name, extra = PACKAGES[module]
        raise DupqError(f"{user} needs {name}, which is not installed; in dupq's checkout: pip install '.[{extra}]'")


@functools.cache
def lazy(module: str) -> ModuleType:
    """Return a module that is imported when it is used. Raises DupqError then if it is not installed."""
    return _Lazy(module)


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> object:
        require(self.__name__, "a job on a cluster, or with several processes,")
        return getattr(importlib.import_module(self.__name__), name)


def papers(module: str) -> list[ModuleType]:
    """Return a module of `dupq_papers`, the experiments of the papers (papers/README.md); none without that package."""
    return [importlib.import_module(f"dupq_papers.{module}")] if is_installed("dupq_papers") else []


def without_papers() -> str:
    """Return the end of an error about an unknown preset, setting or network: the papers have more, if missing here."""
    return "" if is_installed("dupq_papers") else "; the papers' are in the package dupq-papers, which is not installed"


@functools.cache
def trouble_with(gpu: str) -> str | None:
    """Return in one line why torch cannot compute on `gpu`; None if the driver, the chip and torch fit together."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of an unknown chip, and then fails
            ones = torch.ones(16, 16, dtype=torch.bfloat16, device=gpu)
            total = float((ones @ ones).float().sum())
    except (RuntimeError, AssertionError) as error:  # the second where torch is built for CPUs
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return None if total == 16.0**3 else f"a product that is {16**3} comes out as {total:g}"


def usable(name: str) -> "torch.device":
    """Return the device of that name. Raises DupqError for a GPU that torch cannot use."""
    import torch

    trouble = None if name == CPU else trouble_with(name)
    if trouble is not None:
        raise DupqError(
            f"torch cannot use the GPU of the node {socket.gethostname()}: {trouble}; mend its driver or torch, or run "
            "with --gpus none"
        )
    return torch.device(name)


def thread_map(function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = _THREADS) -> list[_Result]:
    """Return the result of `function` for each item, in their order, from threads that wait for storage together.

    Raises the error of the first item that has one. Files that `function` writes are recorded as those of this thread.
    """
    return list(prefetch(function, items, threads))


def prefetch(function: Callable[[_Item], _Result], items: Iterable[_Item], most: int = 4) -> Iterator[_Result]:
    """Yield the same as `thread_map`, one by one, with at most `most` results that wait to be used."""
    with ThreadPoolExecutor(most) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            if len(waiting) == most:
                yield waiting.popleft().result()
            waiting.append(pool.submit(copy_context().run, function, item))  # with the recorders of this thread
        while waiting:
            yield waiting.popleft().result()


@contextlib.contextmanager
def repeating(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `work` every `seconds` in a thread until the block ends.

    A DupqError of `work` is ignored: storage may be unavailable for a while, and the next call tries again.
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


# The files that a task or a stage writes. A run stores their sizes and checksums, and later uses a file only if it is
# unchanged (dupq/job/records.py).


class Written(TypedDict):
    """A file as it was written."""

    size: int  # bytes
    checksum: str  # as `storage.checksum` gives it


# The open recorders of a thread and of those that `prefetch` starts for it. Others, which write progress or a
# heartbeat, begin with none.
_recorders: ContextVar[tuple[dict[str, Written], ...]] = ContextVar("recorders", default=())


@contextlib.contextmanager
def recording() -> Iterator[dict[str, Written]]:
    """Record by URI the files that this thread, also by `prefetch`, writes and does not delete again in the block."""
    written: dict[str, Written] = {}
    before = _recorders.set((*_recorders.get(), written))
    try:
        yield written
    finally:
        _recorders.reset(before)


def is_recording() -> bool:
    """Return whether a recorder is open in this thread."""
    return bool(_recorders.get())


def note(written: Mapping[str, Written]) -> None:
    """Record files as written."""
    for recorder in _recorders.get():
        recorder.update(written)


def forget(uri: str) -> None:
    """Remove a file, or all files of a folder, from the record."""
    for recorder in _recorders.get():
        for file in [*recorder]:  # to which another thread may add
            if file == uri or file.startswith(f"{uri}/"):
                recorder.pop(file, None)
