"""Running a function over many shards as Ray tasks, with counts, retries and progress."""

import contextlib
import ctypes
import inspect
import logging
import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import pyarrow as pa
import ray

from dupq.archive import Shard
from dupq.errors import ClusterError, DupqError
from dupq.job import cluster
from dupq.job.gpus import WORKERS, hide_unless_given
from dupq.job.table import Counts
from dupq.runs.progress import Line
from dupq.system import Written, note, recording

_registered: list[Callable[[], None]] = []
_step = ""  # of this process's last task


def free_with_the_step(free: Callable[[], None]) -> Callable[[], None]:
    """Have `free` called before each task of another step than the last one of its process. Also a decorator."""
    _registered.append(free)
    return free


def begin(work: Callable[..., object], *arguments: object) -> None:
    """Begin a task that calls `work(*arguments)`.

    The step's name is that of `work`, and of the functions that it is given: Ray may make a function itself anew for
    each task.
    """
    global _step
    given = (f"{one.__module__}.{one.__qualname__}" for one in arguments if inspect.isfunction(one))
    before, _step = _step, " ".join([f"{work.__module__}.{work.__qualname__}", *given])
    if _step != before:
        for free in _registered:
            free()


Result = TypeVar("Result")
_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Reset the peak: from now on `peak_mb` gives the highest resident memory since this call (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb() -> float:
    """The highest resident memory (MB) since `reset_peak`; since the process began where that is not available."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def give_back() -> None:
    """Return memory to the system that earlier work has freed and the allocators have kept."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def measured(work: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """The result of `work(*arguments)` and its peak memory in MB."""
    give_back()
    reset_peak()
    result = work(*arguments)
    return result, peak_mb()


# Counts of a task are rows_in, rows_out, anything else by its name, and with CAP in front of the name how often a
# limit left something out.
CAP = "cap: "

_log = logging.getLogger(__name__)
Outcome = tuple[Counts, float, dict[str, Written]]  # counts, peak memory (MB), files
_SECONDS_BETWEEN_LINES = 60
RETRIES = 3  # of a task whose worker or node died; an error of the code is not retried
_POLL_SECONDS = 5
_AHEAD = 2  # tasks a CPU that wait at Ray, so that none is idle


@dataclass
class Report:
    """What a stage counted, and its memory."""

    tasks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    peak_memory_mb: float = 0.0  # of the largest task
    counts: dict[str, int] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)  # limits that left something out

    def add(self, other: "Report") -> None:
        """Add another step of the same stage, except for its rows, which are the same ones."""
        self.tasks += other.tasks
        self.peak_memory_mb = max(self.peak_memory_mb, other.peak_memory_mb)
        for mine, theirs in ((self.counts, other.counts), (self.caps, other.caps)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0) + value


def summarise(outcomes: Sequence[tuple[Counts, float]]) -> Report:
    """The report of tasks that each gave counts and a peak memory (MB)."""
    report = Report(tasks=len(outcomes))
    for counts, peak in outcomes:
        report.rows_in += counts.get("rows_in", 0)
        report.rows_out += counts.get("rows_out", 0)
        report.peak_memory_mb = max(report.peak_memory_mb, peak)
        for name, value in counts.items():
            kept = report.caps if name.startswith(CAP) else report.counts
            if name not in ("rows_in", "rows_out"):
                kept[name.removeprefix(CAP)] = kept.get(name.removeprefix(CAP), 0) + value
    return report


@dataclass
class _Piece:
    """A call of a stage's work."""

    name: str  # what it works on, for errors
    arguments: tuple[object, ...]
    cpus: float
    deaths: int = 0  # attempts that ended with their worker


def run_tasks(
    label: str,
    work: Callable[..., Counts],
    calls: Sequence[tuple[object, ...]],
    cpus: float = 1,
    gpus: int = 0,
    names: Sequence[str] | None = None,
) -> Report:
    """Call `work` once for each tuple of arguments, in parallel, and sum up the counts.

    The answer does not depend on their order. The first error ends the stage. A task whose worker died is tried again
    after the others, on all CPUs of a node and so alone there. Raises ClusterError if the workers of a call die again
    and again, or if no node is large enough. With `gpus` each call has one, and so many run at a time. `names` are what
    the calls work on, for errors; None: their shards.
    """
    if cluster.is_in_process():
        done = [recorded(work, *call) for call in calls]
        for _, _, written in done:
            note(written)
        return summarise([(counts, peak) for counts, peak, _ in done])
    each = min(gpus, 1)
    if not cluster.may_grow():
        cluster.check_fits(label, cpus, each)
    shards = [next(iter(_shards(call)), None) for call in calls]
    numbered = enumerate(shards, 1)
    names = names or [shard.uri if shard else f"piece {place} of {len(calls)}" for place, shard in numbered]
    waiting = deque(_Piece(name, call, cpus) for name, call in zip(names, calls, strict=True))
    running: dict[ray.ObjectRef[Outcome], _Piece] = {}
    outcomes: list[tuple[Counts, float]] = []
    shown = Line(label, len(calls))
    window = gpus or (len(calls) if cluster.may_grow() else _AHEAD * cluster.cpus())  # it grows by what waits at Ray
    idle, largest = 0, 0.0  # seconds in which no task ended; MB of a task
    shown.show(0)
    try:
        while waiting or running:
            while waiting and len(running) < window:
                piece = waiting.popleft()
                running[_begin(piece, work, has_gpu=gpus > 0)] = piece
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
            if not ready:
                idle += _POLL_SECONDS
                if idle % _SECONDS_BETWEEN_LINES == 0:
                    cluster.check_fits(label, cpus, each)
                continue
            call = ready[0]
            piece = running[call]
            try:
                counts, peak, written = result_of(call)
                WORKERS.ended(call)
                note(written)
                outcomes.append((counts, peak))
                largest = max(largest, peak)
            except ray.exceptions.RayTaskError:
                raise  # an error of the code: it would be the same again
            except (ray.exceptions.RayError, MemoryError) as error:
                WORKERS.ended(call, is_alive=False)
                _try_again(label, piece, each, error)
                waiting.append(piece)
            del running[call]
            shown.show(len(outcomes), largest)
    finally:
        for call in running:  # none is, unless this ends with an error
            WORKERS.ended(call, is_alive=False)
    return summarise(outcomes)


def _begin(piece: _Piece, work: Callable[..., Counts], has_gpu: bool) -> "ray.ObjectRef[Outcome]":
    """A task of the piece's call; in a process with a GPU if it `has_gpu`."""
    if has_gpu:
        return WORKERS.start(_on_node, cluster.build(), recorded, work, *piece.arguments)
    return start(recorded, work, *piece.arguments, cpus=piece.cpus)


def recorded(work: Callable[..., Counts], *arguments: object) -> Outcome:
    """The counts of `work(*arguments)`, its peak memory in MB, and what it wrote."""
    begin(work, *arguments)
    with recording() as written:
        counts, peak = measured(work, *arguments)
    return counts, peak, written


def _shards(call: tuple[object, ...]) -> list[Shard]:
    return [argument for argument in call if isinstance(argument, Shard)]


def _try_again(label: str, piece: _Piece, gpus: int, error: BaseException) -> None:
    """Give a piece whose worker died a node of its own for its next attempt; at last raise ClusterError."""
    piece.deaths += 1
    if piece.deaths > RETRIES or isinstance(error, ray.exceptions.LocalRayletDiedError):
        skip_as = next((shard.skip_as for shard in _shards(piece.arguments)), None)
        raise lost(f"{label}: {piece.name}", piece.deaths, error, skip_as) from error
    piece.cpus = max(piece.cpus, cluster.widest(gpus))
    _log.warning(
        f"{label}: {piece.name}: {_reason(error)}; attempt {piece.deaths + 1} of {RETRIES + 1} on {piece.cpus:g} CPUs"
    )


def lost(what: str, attempts: int, error: BaseException, skip_as: str | None = None) -> ClusterError:
    """The error of a piece of work whose workers died in that many attempts, the last one of `error`.

    `skip_as` is what --skip-shard calls it, where the job has that option.
    """
    remedy = "run the same command again to go on"
    if _is_memory(error):
        remedy = "nodes with more memory for each CPU are needed, or smaller shards"
    elif skip_as is not None:
        remedy = f"if it does this each time, --skip-shard {skip_as} leaves it out"
    return ClusterError(f"{what}: given up after {attempts} attempt(s): {_reason(error)}; {remedy}")


def _reason(error: BaseException) -> str:
    if _is_memory(error):
        return "not enough memory"
    if isinstance(error, ray.exceptions.NodeDiedError | ray.exceptions.LocalRayletDiedError):
        return "its node was lost"
    if isinstance(error, ray.exceptions.WorkerCrashedError | ray.exceptions.ActorDiedError):
        return "its worker died (a crash in native code, or killed from outside)"
    return f"Ray lost it ({type(error).__name__})"


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, ray.exceptions.OutOfMemoryError | MemoryError)


def start(
    work: Callable[..., Result], *arguments: object, cpus: float = 1, retries: int = 0
) -> "ray.ObjectRef[Result]":
    """A task of `work(*arguments)` on a node that has the job's code; Ray repeats it if its worker dies."""
    if cluster.is_in_process():
        return cast("ray.ObjectRef[Result]", _Here(work(*arguments)))
    task = _ON_NODE.options(num_cpus=cpus, max_retries=retries)
    return task.remote(cluster.build(), work, *arguments)


def start_stream(
    work: Callable[..., Iterator[Result]], *arguments: object, retries: int = 0
) -> "ray.ObjectRefGenerator[Result]":
    """As `start`, of a function that yields results: each is there as soon as it is made."""
    if cluster.is_in_process():
        return cast("ray.ObjectRefGenerator[Result]", map(_Here, work(*arguments)))
    task = _STREAM_ON_NODE.options(num_cpus=1, max_retries=retries, num_returns="streaming")
    return task.remote(cluster.build(), work, *arguments)


def enter(job: cluster.Build) -> None:
    """Begin in a process of a node. Raises ClusterError if the node differs from the job's."""
    cluster.check_same(job)
    hide_unless_given()


def _on_node(job: cluster.Build, work: Callable[..., Result], *arguments: object) -> Result:
    enter(job)
    return work(*arguments)


def _stream_on_node(job: cluster.Build, work: Callable[..., Iterator[Result]], *arguments: object) -> Iterator[Result]:
    enter(job)
    yield from work(*arguments)


class _Here(NamedTuple):
    """What stands for the result of a task that was run in this process."""

    result: object


_ON_NODE = ray.remote(_on_node)
_STREAM_ON_NODE = ray.remote(_stream_on_node)


def result_of(reference: "ray.ObjectRef[Result]") -> Result:
    """The result of a task; raises its DupqError or MemoryError as it was raised there, and RayError if it was lost."""
    if isinstance(reference, _Here):
        return cast(Result, reference.result)
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, DupqError | MemoryError):
            raise error.cause from None
        raise
