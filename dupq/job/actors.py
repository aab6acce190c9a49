"""Calls of a step by processes that hold something costly, such as an encoder: tasks for several partitions each, or a
pool of actors, which Ray Data feeds.

A row of Ray Data is one call. A process with a GPU runs several calls at once: others have tasks on CPUs read and write
while one computes.
"""

import gc
import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import ray

from dupq.errors import DupqError
from dupq.job import cluster
from dupq.job.gpus import end_gpu_processes, enough_memory
from dupq.job.progress import Line
from dupq.job.step import (
    AnyStep,
    Counts,
    Destination,
    Output,
    Parts,
    call_step,
    file_of,
    read_inputs,
    unless_finished,
    write_result,
)
from dupq.job.tasks import RETRIES, Outcome, Report, enter, recorded, result_or_lost, run_tasks, start, summarise
from dupq.system import note, prefetch

_log = logging.getLogger(__name__)
Work = Callable[[str], Counts]
_RESTARTS = 1  # of an actor that died
_CALLS_AT_ONCE = 16  # of an actor with a GPU: most of them wait for tasks on CPUs


class Crew(NamedTuple):
    """Who calls a step: a task for each group of partitions, or a pool of actors."""

    groups: Sequence[Sequence[int]]
    at_once: int = 1  # calls of a task
    gpus: int = 0  # a task has one, and that many run at a time
    pool: "Pool | None" = None


class Pool(NamedTuple):
    """The number of actors, and the resources of each."""

    actors: int
    cpus: float
    gpus: int


def run_by(
    crew: Crew,
    name: str,
    step: AnyStep,
    inputs: tuple[object, ...],
    second: Destination | None,
    made: Destination,
) -> Report:
    """Call a step for all partitions of a crew's groups; what actors that died left, tasks do."""
    on_gpu = bool(crew.gpus or (crew.pool and crew.pool.gpus))
    call = call_in_parts if on_gpu and step.parts is not None else call_step
    if crew.pool is not None:

        def hold() -> Work:
            return lambda partition: call(int(partition), step, inputs, second, made)

        report = run_in_actors(name, hold, [str(number) for group in crew.groups for number in group], crew.pool)
        if report is not None:
            return report
    calls = [(call, group, crew.at_once, step, inputs, second, made) for group in crew.groups]
    names = [f"{file_of(made, group[0])}{_more(len(group) - 1)}" for group in crew.groups]
    return run_tasks(name, _call_each, calls, gpus=crew.gpus, names=names)


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _call_each(call: Callable[..., Counts], group: Sequence[int], at_once: int, *arguments: object) -> Counts:
    """Call a step for several partitions, some at once; return the sums of what they counted."""
    total = Counter[str]()
    for counts in prefetch(lambda partition: call(partition, *arguments), group, at_once):
        total.update(counts)
    return dict(total)


def call_in_parts(
    partition: int,
    step: AnyStep,
    inputs: tuple[object, ...],
    second: Destination | None,
    output: Output,
) -> Counts:
    """As `call_step`, but have tasks on CPUs do all but the computing, while other calls compute in this process.

    A process's threads alone would feed a GPU with a tenth of what it computes. What the tasks prepare and what is
    computed pass through Ray's store. Raises ClusterError if a task's workers die repeatedly.
    """
    assert step.parts is not None
    parts, what = step.parts, f"{step.name}: {file_of(output, partition)}"

    def make() -> Counts:
        prepared = start(_prepare, partition, parts, inputs, retries=RETRIES)
        computed = parts.compute(result_or_lost(prepared, what))
        written = start(recorded, _finish, partition, parts, prepared, computed, second, output, retries=RETRIES)
        counts, _, files = result_or_lost(written, what)
        note(files)
        return counts

    return unless_finished(file_of(output, partition), make)


def _prepare(partition: int, parts: Parts, inputs: tuple[object, ...]) -> object:
    return parts.prepare(*read_inputs(partition, inputs))


def _finish(
    partition: int,
    parts: Parts,
    prepared: object,
    computed: object,
    second: Destination | None,
    output: Output,
) -> Counts:
    return write_result(partition, parts.finish(prepared, computed), second, output)


def run_in_actors(name: str, hold: Callable[[], Work], values: Sequence[str], pool: Pool) -> Report | None:
    """Call the function that each actor holds (`hold()`) with each of `values`.

    `name` is the stage's. Returns None if actors died repeatedly: then tasks do the rest, whose errors name the shard.
    Raises the DupqError of a call unchanged.
    """
    cluster.check_fits(name, pool.cpus, pool.gpus, pool.actors)  # otherwise operators of Ray Data may deadlock
    report: Report | None = None
    failure: BaseException | None = None
    end_gpu_processes()  # the actors need their GPUs
    try:
        report = summarise(_run(name, hold, values, pool))
    except Exception as error:
        failure = _cause(error)
        if isinstance(failure, DupqError | ray.exceptions.RayError):
            failure.__cause__ = failure.__context__ = failure.__traceback__ = None
    # Frames of Ray Data, in cycles or in a traceback, keep its actors, and so CPUs that later tasks need
    gc.collect()
    if isinstance(failure, ray.exceptions.RayError) and not isinstance(failure, ray.exceptions.RayTaskError):
        _log.warning(f"{name}: an actor died; the rest is done by tasks, whose errors name the shard")
        return None
    if failure is not None:
        raise failure
    return report


def _run(name: str, hold: Callable[[], Work], values: Sequence[str], pool: Pool) -> list[Outcome]:
    from ray.data import ActorPoolStrategy, DataContext, from_items  # a slow import

    outcomes: list[Outcome] = []
    line = Line(name, len(values))
    line.show(0)
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts and max_retries in 2.64, but has no successor yet; its default is unlimited
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # the import sets another; errors are raised as well
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.raise_original_map_exception = True  # its default has only the text of the error
        rows = from_items([{"value": value} for value in values], override_num_blocks=len(values))
        done = rows.map_batches(
            _Actor,
            fn_constructor_args=(hold, cluster.build()),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(
                size=pool.actors, max_concurrent_calls_per_actor=_CALLS_AT_ONCE if pool.gpus else 1
            ),
            num_cpus=pool.cpus,
            num_gpus=pool.gpus,
            max_restarts=_RESTARTS,
            max_task_retries=_RESTARTS,
        )
        for row in done.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0):
            outcomes.append(json.loads(row["outcome"][0].as_py()))
            line.show(len(outcomes))
    return outcomes


def _cause(error: BaseException) -> BaseException:
    """Return the DupqError that a call raised, else the error of Ray for a process that died, else the error itself."""
    of_ray: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, ray.exceptions.RayError):  # that of a task is also a DupqError, with a traceback
            of_ray.append(inner)
        elif isinstance(inner, DupqError):
            inner.args = (str(inner).partition("\n")[0],)  # Ray Data adds lines about its own retries
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return of_ray[0] if of_ray else error


class _Actor:
    """Calls what it holds for one row after the other, or for several at once."""

    def __init__(self, hold: Callable[[], Work], build: cluster.Build) -> None:
        """Defer reading the encoder to the first call, as Ray passes on a constructor's error only as text.

        `build` is the driver's: code and libraries must be the same on all nodes.
        """
        self._work, self._build = hold(), build

    def __call__(self, row: pa.Table) -> pa.Table:
        """Run a call; return its counts, memory and files as JSON."""
        enter(self._build)
        with enough_memory():
            outcome = recorded(self._work, row["value"][0].as_py())
        return pa.table({"outcome": [json.dumps(outcome)]})
