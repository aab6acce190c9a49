"""Calls of a step by processes that hold something costly, such as an encoder: tasks for several partitions each, or a
pool of actors, which Ray Data feeds.

A row of Ray Data is one call. A process with a GPU runs several calls at once: tasks on CPUs read, prepare and write
partitions while one is computed.
"""

import gc
import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from dupq.errors import DupqError
from dupq.job import cluster
from dupq.job.gpus import end_gpu_processes, enough_memory
from dupq.job.progress import Line
from dupq.job.step import (
    AnyStep,
    Counts,
    Deferred,
    Destination,
    call_step,
    file_of,
    read_inputs,
    unless_finished,
    write_result,
)
from dupq.job.tasks import RETRIES, Outcome, Report, enter, recorded, result_or_lost, run_tasks, start, summarise
from dupq.system import lazy, note, prefetch

if TYPE_CHECKING:
    import ray
else:
    ray = lazy("ray")  # with --ray none it is not needed

_log = logging.getLogger(__name__)
_AT_ONCE, _AT_ONCE_WITH_GPU = 4, 16  # calls of a process; with a GPU most of them wait for tasks on CPUs
_RESTARTS = 1  # of an actor that died


class Pool(NamedTuple):
    """The number of actors, and the resources of each."""

    actors: int
    cpus: float
    gpus: int


def run_groups(
    name: str,
    step: AnyStep,
    inputs: tuple[object, ...],
    second: Destination | None,
    made: Destination,
    groups: Sequence[Sequence[int]],
    gpus: int,
    pool: Pool | None,
) -> Report:
    """Run a task per group of partitions; with `gpus`, each has one, and that many run at a time.

    With a pool its actors make the partitions, and the tasks only what actors that died left.
    """
    call, rest = call_on_gpu if gpus else call_step, (step, inputs, second, made)
    if pool is not None:
        report = run_in_actors(name, [number for group in groups for number in group], pool, call, *rest)
        if report is not None:
            return report
    calls = [(call, group, *rest) for group in groups]
    more = [f" and {len(group) - 1} more" if len(group) > 1 else "" for group in groups]
    names = [f"{file_of(made, group[0])}{others}" for group, others in zip(groups, more, strict=True)]
    return run_tasks(name, _call_each, calls, gpus=gpus, names=names)


def _call_each(call: Callable[..., Counts], group: Sequence[int], *arguments: object) -> Counts:
    """Call a step for several partitions, some at once; return the sums of what they counted."""
    total = Counter[str]()
    at_once = _AT_ONCE if call is call_step else _AT_ONCE_WITH_GPU
    for counts in prefetch(lambda partition: call(partition, *arguments), group, at_once):
        total.update(counts)
    return dict(total)


def call_on_gpu(
    partition: int, step: AnyStep, inputs: tuple[object, ...], second: Destination | None, made: Destination
) -> Counts:
    """As `call_step` for a step that returns `Deferred`; have tasks on CPUs do all but the computing.

    A process's threads alone would feed a GPU with a tenth of what it computes. What the tasks prepare and what is
    computed pass through Ray's store. Raises ClusterError if a task's workers die repeatedly.
    """
    what = f"{step.name}: {file_of(made, partition)}"

    def make() -> Counts:
        prepared = start(_prepare, partition, step, inputs, retries=RETRIES)
        computed = result_or_lost(prepared, what).compute()
        written = start(recorded, _finish, partition, prepared, computed, second, made, retries=RETRIES)
        counts, _, files = result_or_lost(written, what)
        note(files)
        return counts

    return unless_finished(file_of(made, partition), make)


def _prepare(partition: int, step: AnyStep, inputs: tuple[object, ...]) -> Deferred[object]:
    return step(*read_inputs(partition, inputs))


def _finish(partition: int, prepared: Deferred[object], computed: object, *outputs: Destination) -> Counts:
    return write_result(partition, prepared.finish(computed), *outputs)


def run_in_actors(
    name: str, partitions: Sequence[int], pool: Pool, call: Callable[..., Counts], *arguments: object
) -> Report | None:
    """Have actors call `call(partition, *arguments)` for each partition. `name` is the stage's.

    Returns None if actors died repeatedly: then tasks do the rest, whose errors name the shard. Raises the DupqError of
    a call unchanged.
    """
    cluster.check_fits(name, pool.cpus, pool.gpus, pool.actors)  # otherwise operators of Ray Data may deadlock
    report: Report | None = None
    failure: BaseException | None = None
    end_gpu_processes()  # the actors need their GPUs
    try:
        report = summarise(_run(name, partitions, pool, (cluster.build(), call, *arguments)))
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


def _run(name: str, partitions: Sequence[int], pool: Pool, of_actor: tuple[object, ...]) -> list[Outcome]:
    from ray.data import ActorPoolStrategy, DataContext, from_items  # a slow import

    outcomes: list[Outcome] = []
    line = Line(name, len(partitions))
    line.show(0)
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts and max_retries in 2.64, but has no successor yet; its default is unlimited
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # the import sets another; errors are raised as well
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.raise_original_map_exception = True  # its default has only the text of the error
        rows = from_items([{"partition": number} for number in partitions], override_num_blocks=len(partitions))
        at_once = _AT_ONCE_WITH_GPU if pool.gpus else 1
        done = rows.map_batches(
            _Actor,
            fn_constructor_args=of_actor,
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=pool.actors, max_concurrent_calls_per_actor=at_once),
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
    """Calls a step for one partition after the other, or for several at once.

    What the step needs is read in the first call, as Ray passes on a constructor's error only as text.
    """

    def __init__(self, build: cluster.Build, call: Callable[..., Counts], *arguments: object) -> None:
        """`build` is the driver's: code and libraries must be the same on all nodes."""
        self._build, self._call, self._arguments = build, call, arguments

    def __call__(self, row: pa.Table) -> pa.Table:
        """Run a call; return its counts, memory and files as JSON."""
        enter(self._build)
        with enough_memory():
            outcome = recorded(self._call, row["partition"][0].as_py(), *self._arguments)
        return pa.table({"outcome": [json.dumps(outcome)]})
