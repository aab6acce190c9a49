"""Calls of a function as parallel Ray tasks, with counts, retries, memory and progress; or in this process."""

import contextlib
import ctypes
import functools
import itertools
import logging
import os
import resource
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from dupq.archive import Shard
from dupq.errors import ClusterError, DupqError
from dupq.job import cluster
from dupq.job.gpus import ended, has_gpu, start_on_gpu
from dupq.job.progress import Line
from dupq.job.step import CAP, NUMBER, Counts, Step
from dupq.system import Written, lazy, note, recording

if TYPE_CHECKING:
    import ray
else:
    ray = lazy("ray")  # with --ray none it is not needed

_log = logging.getLogger(__name__)
Result = TypeVar("Result")
Outcome = tuple[Counts, float, dict[str, Written]]  # counts, peak memory (MB), files
RETRIES = 3  # of a task whose worker or node died; an error of the code is not retried
_SECONDS_BETWEEN_LINES = 60
_POLL_SECONDS = 5
_AHEAD = 2  # tasks per CPU that are submitted to Ray, so that no CPU is idle

_callbacks: list[Callable[[], None]] = []
_step = ""  # of this process's last task


def at_next_step(free: Callable[[], None]) -> Callable[[], None]:
    """Have `free` called before this process's first task of another step. Also a decorator."""
    _callbacks.append(free)
    return free


def begin(work: Callable[..., object], *arguments: object) -> None:
    """Begin a task that calls `work(*arguments)`: call what `at_next_step` registered if it is of another step.

    Steps are told apart by the names of `work` and of the step among its arguments, since Ray may create new objects
    for each task.
    """
    global _step
    functions = (f"{value.__module__}.{value.name}" for value in arguments if isinstance(value, Step))
    before, _step = _step, " ".join([f"{work.__module__}.{work.__qualname__}", *functions])
    if _step != before:
        for free in _callbacks:
            free()


def reset_peak() -> None:
    """Restart the measurement of `peak_mb` (Linux only), without the freed memory that allocators still hold."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Return the highest resident memory (MB) since `reset_peak`, or on other systems since the process began."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(work: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """Return the result of `work(*arguments)` and its peak memory in MB."""
    reset_peak()
    result = work(*arguments)
    return result, peak_mb()


@dataclass
class Report:
    """The counts of a stage, and its memory."""

    tasks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    peak_memory_mb: float = 0.0  # of the largest task
    counts: Counter[str] = field(default_factory=Counter)
    caps: Counter[str] = field(default_factory=Counter)  # limits that left something out
    numbers: Counter[str] = field(default_factory=Counter)  # for the stage itself
    steps: dict[str, float] = field(default_factory=dict)  # seconds of each step whose tasks `run_tasks` ran

    def add(self, other: "Report") -> None:
        """Add another step of the same stage, except for its `rows_out`: the stage says which rows are its own."""
        self.tasks += other.tasks
        self.rows_in += other.rows_in
        self.peak_memory_mb = max(self.peak_memory_mb, other.peak_memory_mb)
        self.counts.update(other.counts)
        self.caps.update(other.caps)
        self.numbers.update(other.numbers)
        self.steps |= {name: self.steps.get(name, 0.0) + seconds for name, seconds in other.steps.items()}


def summarise(outcomes: Sequence[Outcome]) -> Report:
    """Return the report of tasks, and record the files that they wrote."""
    totals: Counter[str] = Counter()
    for counts, _, written in outcomes:
        totals.update(counts)
        note(written)
    caps, numbers = (
        Counter({name.removeprefix(prefix): totals.pop(name) for name in [*totals] if name.startswith(prefix)})
        for prefix in (CAP, NUMBER)
    )
    rows_in, rows_out = totals.pop("rows_in", 0), totals.pop("rows_out", 0)
    peak = max((peak for _, peak, _ in outcomes), default=0.0)
    return Report(len(outcomes), rows_in, rows_out, peak, totals, caps, numbers)


@dataclass
class _Task:
    name: str  # for errors
    shard: Shard | None
    arguments: tuple[object, ...]
    cpus: float = 1
    deaths: int = 0  # attempts that ended with their worker


def run_tasks(
    label: str,
    work: Callable[..., Counts],
    calls: Sequence[tuple[object, ...]],
    gpus: int = 0,
    names: Sequence[str] = (),
    shards: Sequence[Shard] = (),
    part_of: str = "",
) -> Report:
    """Call `work` in parallel, once per tuple of arguments, and sum up the counts.

    The answer does not depend on their order. The first error of the code ends the stage. A task whose worker died is
    tried again after the others, alone on a node. With `gpus`, each call has one, and that many run at a time. `names`
    or `shards`, one per call, identify the calls in errors; `part_of` does for the tasks of a larger whole, which shows
    its own progress. Raises ClusterError if the workers of a call die repeatedly, or if no node is large enough.
    """
    began = time.monotonic()
    line = Line(label, len(calls), is_shown=not part_of)
    line.show(0)
    if cluster.is_in_process():
        outcomes = []
        for call in calls:
            outcomes.append(recorded(work, *call))
            line.show(len(outcomes), outcomes[-1][1])
    else:
        if not cluster.may_grow():
            cluster.check_fits(label, 1, min(gpus, 1))
        names = (
            names or [shard.uri for shard in shards] or [f"task {n} of {len(calls)}" for n, _ in enumerate(calls, 1)]
        )
        of_shards: Sequence[Shard | None] = shards or [None] * len(calls)
        tasks = [
            _Task(part_of or f"{label}: {name}", shard, call)
            for name, shard, call in zip(names, of_shards, calls, strict=True)
        ]
        outcomes = _run_on_ray(label, work, tasks, gpus, line)
    return replace(summarise(outcomes), steps={label: time.monotonic() - began})


def _run_on_ray(
    label: str, work: Callable[..., Counts], tasks: Sequence[_Task], gpus: int, line: Line
) -> list[Outcome]:
    waiting, running, outcomes = deque(tasks), dict[ray.ObjectRef[Outcome], _Task](), list[Outcome]()
    # a cluster that may grow does so for the tasks that wait in Ray, so it is given all of them
    window = gpus or (len(tasks) if cluster.may_grow() else _AHEAD * cluster.cpus())
    idle_seconds, largest_mb = 0, 0.0
    try:
        while waiting or running:
            while waiting and len(running) < window:
                task = waiting.popleft()
                if gpus:
                    call = start_on_gpu(_on_node, cluster.build(), recorded, work, *task.arguments)
                else:
                    call = start(recorded, work, *task.arguments, cpus=task.cpus)
                running[call] = task
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
            if not ready:
                idle_seconds += _POLL_SECONDS
                if idle_seconds % _SECONDS_BETWEEN_LINES == 0:
                    cluster.check_fits(label, 1, min(gpus, 1))
                continue
            call = ready[0]
            task = running[call]
            try:
                outcomes.append(result_of(call))
                ended(call)
                largest_mb = max(largest_mb, outcomes[-1][1])
            except ray.exceptions.RayTaskError:
                raise  # an error of the code would only be repeated
            except (ray.exceptions.RayError, MemoryError) as error:
                ended(call, is_alive=False)
                _try_again(task, min(gpus, 1), error)
                waiting.append(task)
            del running[call]
            line.show(len(outcomes), largest_mb)
    finally:
        for call in running:  # only after an error
            ended(call, is_alive=False)
    return outcomes


def recorded(work: Callable[..., Counts], *arguments: object) -> Outcome:
    """Return the counts of `work(*arguments)`, its peak memory in MB, and the files that it wrote."""
    begin(work, *arguments)
    with recording() as written:
        counts, peak = measured(work, *arguments)
    return counts, peak, written


def _try_again(task: _Task, gpus: int, error: BaseException) -> None:
    """Give a task whose worker died a node of its own for its next attempt; raise ClusterError after the last one."""
    task.deaths += 1
    if task.deaths > RETRIES or isinstance(error, ray.exceptions.LocalRayletDiedError):
        raise lost(task.name, task.deaths, error, task.shard and task.shard.skip_as) from error
    task.cpus = max(task.cpus, cluster.widest(gpus))
    _log.warning(f"{task.name}: {_reason(error)}; attempt {task.deaths + 1} of {RETRIES + 1} on {task.cpus:g} CPUs")


def run_task(what: str, report: Report, work: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a task, and add its memory to `report`. Raises ClusterError about `what` if it was lost."""
    return _received(what, report, start(measured, work, *arguments, retries=RETRIES))


def stream_tasks(
    names: Sequence[str],
    report: Report,
    work: Callable[..., Iterator[Result]],
    calls: Sequence[tuple[object, ...]],
    is_aborted: Callable[[], bool],
) -> Generator[Result]:
    """Yield what `work` yields for each tuple of arguments, in their order, while tasks go ahead with some calls.

    As `run_task` otherwise, with a name per call. Whoever ends this early waits for the tasks, unless `is_aborted()`.
    """
    waiting, started = deque(zip(names, calls, strict=True)), deque[tuple[str, Any]]()
    try:
        while waiting or started:
            while waiting and len(started) < _AHEAD * cluster.cpus():
                name, call = waiting.popleft()
                started.append((name, start_stream(_measured_each, work, *call, retries=RETRIES)))
            name, stream = started[0]
            for reference in stream:
                yield _received(name, report, reference)
            started.popleft()
    finally:  # to the end of the streams: Ray can abort the driver when a stream is cancelled
        rest = itertools.chain.from_iterable(stream for _, stream in started)
        while not is_aborted() and next(rest, None) is not None:
            pass


def _measured_each(work: Callable[..., Iterator[Result]], *arguments: object) -> Iterator[tuple[Result, float]]:
    """Yield each result of `work(*arguments)` with the peak memory (MB) so far."""
    reset_peak()
    for result in work(*arguments):
        yield result, peak_mb()


def _received(what: str, report: Report, reference: "ray.ObjectRef[tuple[Result, float]]") -> Result:
    result, peak = result_or_lost(reference, what)
    report.add(Report(peak_memory_mb=peak))
    return result


def lost(what: str, attempts: int, error: BaseException, skip_as: str | None = None) -> ClusterError:
    """Return the error of a task whose workers died in all attempts, the last one of `error`.

    `skip_as` is the value of --skip-shard for its shard, if the job has that option.
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
    return isinstance(error, MemoryError | ray.exceptions.OutOfMemoryError)


def start(
    work: Callable[..., Result], *arguments: object, cpus: float = 1, retries: int = 0
) -> "ray.ObjectRef[Result]":
    """Start `work(*arguments)` as a task on a node with the job's code; Ray retries it if its worker dies."""
    if cluster.is_in_process():
        return cast("ray.ObjectRef[Result]", work(*arguments))  # the result itself
    task = _remote(_on_node).options(num_cpus=cpus, max_retries=retries)
    return task.remote(cluster.build(), work, *arguments)


def start_stream(
    work: Callable[..., Iterator[Result]], *arguments: object, retries: int = 0
) -> "ray.ObjectRefGenerator[Result]":
    """As `start`, for a function that yields results, each of which can be read as soon as it is made."""
    if cluster.is_in_process():
        return cast("ray.ObjectRefGenerator[Result]", work(*arguments))
    task = _remote(_stream_on_node).options(num_cpus=1, max_retries=retries, num_returns="streaming")
    return task.remote(cluster.build(), work, *arguments)


@functools.cache  # Ray sends each remote function to its nodes once
def _remote(function: Callable[..., Any]) -> Any:
    return ray.remote(function)


def enter(job: cluster.Build) -> None:
    """Prepare a process of a node for the job. Raises ClusterError if the node's code differs from the job's."""
    cluster.check_node(socket.gethostname(), cluster.build(), job)
    if not has_gpu():  # Ray never gives this process a GPU later
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _on_node(job: cluster.Build, work: Callable[..., Result], *arguments: object) -> Result:
    enter(job)
    return work(*arguments)


def _stream_on_node(job: cluster.Build, work: Callable[..., Iterator[Result]], *arguments: object) -> Iterator[Result]:
    enter(job)
    yield from work(*arguments)


def result_of(reference: "ray.ObjectRef[Result]") -> Result:
    """Return the result of a task. Raises its DupqError or MemoryError, and RayError if the task was lost."""
    if cluster.is_in_process():
        return cast(Result, reference)
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, DupqError | MemoryError):
            raise error.cause from None
        raise


def result_or_lost(reference: "ray.ObjectRef[Result]", what: str) -> Result:
    """As `result_of`, for a task that Ray retries RETRIES times; raises ClusterError about `what` if it was lost."""
    try:
        return result_of(reference)
    except ray.exceptions.RayTaskError:
        raise  # a bug
    except (ray.exceptions.RayError, MemoryError) as error:
        attempts = 1 if isinstance(error, MemoryError) else RETRIES + 1  # Ray retries only if the worker died
        raise lost(what, attempts, error) from error
