"""Running a part in a process of its own, within a time limit: what it has yielded by then is kept, whatever happens.

Processes are forked, as to import torch again takes seconds. So the process that forks must leave CUDA alone.
"""

import contextlib
import multiprocessing
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

Figures = dict[str, Any]
_FORK = multiprocessing.get_context("fork")


class Scale(NamedTuple):
    """Where the parts compute, and whether at their true sizes or at tiny ones."""

    device: str
    gpus: int
    is_rehearsal: bool

    def size(self, true: int, tiny: int) -> int:
        """One of the two."""
        return tiny if self.is_rehearsal else true


def in_process(
    work: Callable[[], Iterator[Figures]], limit: float, tell: Callable[[Figures], object] = lambda _: None
) -> Figures:
    """All figures that `work` yields within `limit` seconds; `error` says why there are no more. `tell` hears each."""
    reader, writer = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send, args=(work, writer))
    process.start()
    writer.close()
    found, end = {}, time.monotonic() + limit
    try:
        while True:
            if not reader.poll(max(0.0, end - time.monotonic())):
                found["error"] = f"ended after {limit:g} s"
                break
            try:
                found |= reader.recv()
                tell(found)
            except EOFError:
                process.join(10)
                if process.exitcode and "error" not in found:
                    found["error"] = f"its process ended with {process.exitcode}"
                break
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # and the processes that it has forked
        process.join()
    return found


def _send(work: Callable[[], Iterator[Figures]], writer: Connection) -> None:
    os.setsid()
    try:
        for figures in work():
            writer.send(figures)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        writer.send({"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})


def together(work: Callable[[int], Figures], workers: int) -> Figures:
    """What `work(0)` gives, with `work(rank)` in a process of its own for each rank; RuntimeError if one fails."""
    reader, writer = _FORK.Pipe(duplex=False)

    def run(rank: int) -> None:
        figures = work(rank)
        if rank == 0:
            writer.send(figures)

    processes = [_FORK.Process(target=run, args=(rank,)) for rank in range(workers)]
    for process in processes:
        process.start()
    writer.close()
    try:
        figures: Figures = reader.recv()
    except EOFError:
        figures = {}
    for process in processes:
        process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    if failed or not figures:
        raise RuntimeError(f"{len(failed)} of {workers} workers failed")
    return figures


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """The median time of `work`, after one round to warm up; what a GPU has begun is waited for."""
    spent = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[1:])


def gemm_peak(scale: Scale, kind: torch.dtype, depth: int | None = None) -> float:
    """Floating-point operations a second of a product of two square matrices, or of `depth` columns."""
    rows = scale.size(8_192, 128)
    left, right = (torch.randn(rows, depth or rows, device=scale.device).to(kind) for _ in range(2))
    return 2.0 * rows * rows * left.shape[1] / seconds(lambda: left @ right.T, scale.size(20, 1))
