"""What a process needs of its machine: packages that dupq works without, devices, and threads beside the work; and a
record of the files that a piece of work has written.
"""

import contextlib
import functools
import importlib
import importlib.util
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dupq.errors import DupqError

if TYPE_CHECKING:
    import torch

PACKAGES = {  # by the name that is imported: its own name, and the extra of pip
    "altair": ("Altair", "jobs"),
    "nltk": ("NLTK", "jobs"),
    "pandas": ("pandas", "tables"),
    "py7zr": ("py7zr", "jobs"),
    "polars": ("Polars", "tables"),
    "ray": ("Ray", "jobs"),
    "sentence_transformers": ("sentence-transformers", "teacher"),
    "simplemma": ("simplemma", "jobs"),
    "textblob": ("TextBlob", "jobs"),
    "torch": ("torch", "jobs"),
}


def is_installed(module: str) -> bool:
    """Whether a package is there, without importing it."""
    return importlib.util.find_spec(module) is not None


def require(module: str, user: str) -> None:
    """Raise DupqError, naming the extra to install, if `module` is missing, which `user` needs."""
    if not is_installed(module):
        name, extra = PACKAGES[module]
        raise DupqError(f"{user} needs {name}, which is not installed: pip install 'dupq[{extra}]'")


def papers(part: str) -> list[ModuleType]:
    """Import a part of `dupq_papers`, the experiments of the papers (papers/README.md); none without that package."""
    return [importlib.import_module(f"dupq_papers.{part}")] if is_installed("dupq_papers") else []


CPU, GPU = "cpu", "cuda:0"  # a task has one GPU, which is the first that it sees


@functools.cache
def trouble_with(gpu: str) -> str | None:
    """Why torch cannot compute on `gpu`, in one line; None if it can: the driver, the chip and torch fit together."""
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
    """The device of that name. Raises DupqError for a GPU that torch cannot use."""
    import torch

    trouble = None if name == CPU else trouble_with(name)
    if trouble is not None:
        raise DupqError(
            f"torch cannot use the GPU of the node {socket.gethostname()}: {trouble}; mend its driver or torch, or run "
            "with --gpus none"
        )
    return torch.device(name)


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AT_ONCE = 16  # enough to hide the time of a request


def side_by_side(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """What `function` gives for each item, in their order. Raises the error of the first item that has one.

    Threads: they spare waiting, not computing. What `function` writes is not recorded.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))


@contextlib.contextmanager
def repeating(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call `work` every so many seconds, in a thread of its own, until the block ends.

    A DupqError of `work` is ignored, as of a storage that is away for a while: the next call tries again.
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


# What is written while a piece of work is done: each file with its size, checksum and rows.
#
# A run keeps it, and believes a file later only if it is still the one that was written (dupq/runs/records.py).


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
