"""Many shards through Ray Data.

On CPUs a pool of actors takes all steps of a shard: a task beside them would only take its CPU from one of them. With
GPUs the steps are apart: while an actor encodes a shard, tasks on CPUs read and tokenise the next ones and write the
last, more than one core for each GPU. Ray's object store holds what waits between the steps; Ray Data starts no task
whose result would not find room there.

A block is a shard from end to end, so that its file is that of one process that takes all steps.
"""

import gc
import logging
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, from_items

from dupq.encoders.steps import shard_encoding
from dupq.encoders.steps.shard_encoding import (
    Crew,
    Place,
    Work,
    embed,
    encode_shard,
    network_of,
    read_texts,
    tokenise,
    write_embeddings,
)
from dupq.errors import DupqError
from dupq.execution import nodes
from dupq.execution.task_files import skip_or
from dupq.execution.tasks import Outcome, enter, measured, recorded
from dupq.runs.progress import Line

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

_RESTARTS = 1  # of an actor or a task that died; after that a task a shard, whose errors name the shard
_A_SHARD: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}  # what a step takes: a row is a shard


class _Job(NamedTuple):
    """What every process needs."""

    work: Work
    build: nodes.Build  # of the driver: code and libraries must be the same on all nodes

    def enter(self) -> None:
        """Begin in a process of a node. Raises ClusterError if the node differs from the job's."""
        enter(self.build)


def encode_by_pipeline(work: Work, places: list[Place], crew: Crew) -> list[Outcome]:
    """Encode shards; what each counted, its memory and its files, in any order.

    Raises the DupqError of a step as it was raised there, and RayError if processes died again and again.
    """
    outcomes, failure = [], None
    try:
        outcomes = _run(_Job(work, nodes.build()), places, crew)
    except Exception as error:
        failure = _cause(error)
        if isinstance(failure, DupqError | ray.exceptions.RayError):
            failure.__cause__ = failure.__context__ = failure.__traceback__ = None
    # Frames of Ray Data, in cycles or in a traceback, hold its actors, and with them CPUs that later tasks wait for
    gc.collect()
    if failure is not None:
        raise failure
    return outcomes


def _run(job: _Job, places: list[Place], crew: Crew) -> list[Outcome]:
    outcomes: list[Outcome] = []
    shown = Line("encode", len(places))
    shown.show(0)
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts and max_retries in 2.64, but has no successor yet; by default it repeats
        # without end
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        _configure()
        for row in _steps(job, places, crew).iter_batches(**_A_SHARD, prefetch_batches=0):
            outcomes.append(shard_encoding.outcome_in(row))
            shown.show(len(outcomes))
    return outcomes


def _steps(job: _Job, places: list[Place], crew: Crew) -> Dataset:
    """From places to outcomes; nothing runs yet."""
    shards = from_items([shard_encoding.row_of_place(place) for place in places], override_num_blocks=len(places))
    if not crew.gpus:
        return _by_actors(shards, EncodeShards, job, crew)
    tokens = _by_tasks(shards, _tokenise, job, crew)
    return _by_tasks(_by_actors(tokens, EncodeTokens, job, crew), _write, job, crew)


def _by_tasks(before: Dataset, step: Callable[..., pa.Table], job: _Job, crew: Crew) -> Dataset:
    return before.map_batches(step, fn_kwargs={"job": job}, **_A_SHARD, num_cpus=crew.cpus, max_retries=_RESTARTS)


def _by_actors(before: Dataset, kind: type["_Encoder"], job: _Job, crew: Crew) -> Dataset:
    return before.map_batches(
        kind,
        fn_constructor_args=(job,),
        **_A_SHARD,
        compute=ActorPoolStrategy(size=crew.actors, max_concurrent_calls_per_actor=2 if crew.gpus else 1),
        num_cpus=crew.cpus,
        num_gpus=crew.gpus,
        max_restarts=_RESTARTS,
        max_task_retries=_RESTARTS,
    )


def _configure() -> None:
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its import sets another; errors are raised as well
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True  # Ray Data's own holds the error as text only
    context.target_max_block_size = None  # a shard is a block


def _cause(error: BaseException) -> BaseException:
    """The DupqError that a step raised, else what Ray says of a process that died, else the error itself."""
    found: BaseException = error
    inner: BaseException | None = error
    while inner is not None:
        is_of_ray = isinstance(inner, ray.exceptions.RayError)  # one of a task is a DupqError too, with a traceback
        if isinstance(inner, DupqError) and not is_of_ray:
            inner.args = (str(inner).partition("\n")[0],)  # Ray Data adds lines on its own retries; ours have one
            return inner
        if is_of_ray and not isinstance(found, ray.exceptions.RayError):
            found = inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return found


class _Encoder:
    """An actor that holds the encoder, and takes one shard after the other."""

    def __init__(self, job: _Job) -> None:
        """Nothing is read yet."""
        self._job = job

    @cached_property
    def _saved(self) -> "SavedEncoder":
        """The encoder; read with the first shard, as Ray gives an error of the constructor as text only."""
        return network_of(self._job.work)


class EncodeShards(_Encoder):
    """All steps of a shard."""

    def __call__(self, row: pa.Table) -> pa.Table:
        """A shard's row to that of its outcome."""
        self._job.enter()
        place = shard_encoding.place_in(row)
        return shard_encoding.row_of_outcome(recorded(encode_shard, self._job.work, place, lambda: self._saved))


class EncodeTokens(_Encoder):
    """The step in the middle."""

    def __call__(self, row: pa.Table) -> pa.Table:
        """A shard's row of ids to its row of embeddings."""
        self._job.enter()
        place, tokens, before = shard_encoding.tokens_in(row)
        encoded, peak = measured(lambda: embed(self._saved, self._job.work, tokens))
        return shard_encoding.row_of_embeddings(place, tokens, encoded, max(before, peak))


def _tokenise(row: pa.Table, job: _Job) -> pa.Table:
    job.enter()
    place = shard_encoding.place_in(row)
    tokens, peak = measured(lambda: tokenise(job.work, place, read_texts(job.work, place)))
    return shard_encoding.row_of_tokens(place, tokens, peak)


def _write(row: pa.Table, job: _Job) -> pa.Table:
    """Write a shard's file and its mark: the same bytes again if the task is repeated."""
    job.enter()
    place, tokens, encoded, before = shard_encoding.embeddings_in(row)
    counts, peak, files = recorded(skip_or, place.output, lambda: write_embeddings(job.work, place, tokens, encoded))
    return shard_encoding.row_of_outcome((counts, max(before, peak), files))
