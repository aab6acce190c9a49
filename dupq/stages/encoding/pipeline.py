"""Many shards through Ray Data: read and tokenised by tasks, encoded by a pool of actors, written by tasks.

A block is a shard from end to end, so that its file is that of one process that takes all steps. While an actor
encodes a shard, tasks on other cores tokenise the next ones and write the last. Ray's object store holds what waits
between the steps; Ray Data starts no task whose result would not find room there.
"""

import contextlib
import gc
import logging
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Datasink, Datasource, read_datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask, WriteResult

from dupq import storage
from dupq.errors import DupqError
from dupq.execution import nodes
from dupq.execution.memory import measured
from dupq.execution.tasks import Outcome, Progress, enter
from dupq.execution.units import mark_of, skip_or
from dupq.recording import recording
from dupq.repeating import repeating
from dupq.stages.encoding import rows
from dupq.stages.encoding.crew import Crew
from dupq.stages.encoding.shard import Place, Work, embed, network_of, read_texts, tokenise, write_embeddings
from dupq.tables import TEXTS

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

_RESTARTS = 1  # of an actor or a task that died; after that a task a shard, whose errors name the shard
_SECONDS_BETWEEN = 5  # two looks at how many shards are done


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
    job = _Job(work, nodes.build())
    sink, failure = EmbeddingsDatasink(job), None
    try:
        _run(job, places, crew, sink)
    except Exception as error:
        failure = _cause(error)
        if isinstance(failure, DupqError | ray.exceptions.RayError):
            failure.__cause__ = failure.__context__ = failure.__traceback__ = None
    # Frames of Ray Data, in cycles or in a traceback, hold its actors, and with them CPUs that later tasks wait for
    gc.collect()
    if failure is not None:
        raise failure
    return sink.outcomes


def _run(job: _Job, places: list[Place], crew: Crew, sink: "EmbeddingsDatasink") -> None:
    with warnings.catch_warnings(), _shown(places):
        # Ray plans to replace max_restarts and max_retries in 2.64, but has no successor yet; by default it repeats
        # without end
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        retries = {"max_retries": _RESTARTS}
        _configure()
        read_datasource(
            TextsDatasource(job, places),
            override_num_blocks=len(places),
            num_cpus=crew.cpus,
            ray_remote_args=retries,
        ).map_batches(
            _tokenise,
            fn_kwargs={"job": job},
            batch_size=1,  # a row is a shard
            batch_format="pyarrow",
            num_cpus=crew.cpus,
            **retries,
        ).map_batches(
            EncodeShards,
            fn_constructor_args=(job,),
            batch_size=1,  # a row is a shard
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=crew.actors, max_concurrent_calls_per_actor=2 if crew.gpus else 1),
            num_cpus=crew.cpus,
            num_gpus=crew.gpus,
            max_restarts=_RESTARTS,
            max_task_retries=_RESTARTS,
        ).write_datasink(sink, ray_remote_args={"num_cpus": crew.cpus, **retries})


@contextlib.contextmanager
def _shown(places: list[Place]) -> Iterator[None]:
    """Show meanwhile how many shards are done: Ray Data itself tells of files when all are written."""
    shown = Progress("encode", len(places))
    folder, marks = storage.parent(places[0].output), {storage.name(mark_of(place.output)) for place in places}

    def look() -> None:  # fails as long as no file is written
        shown.show(len(marks.intersection(storage.names_in(folder))))

    shown.show(0)
    with repeating(look, _SECONDS_BETWEEN):
        yield
    shown.show(len(places))


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


class TextsDatasource(Datasource):
    """The files of texts, a block each: a row with all of its texts."""

    def __init__(self, job: _Job, places: list[Place]) -> None:
        """`places` are those that are not finished."""
        Datasource.__init__(self)
        self._job, self._places = ray.put(job), places  # stored once, not with each of the tasks

    def estimate_inmemory_data_size(self) -> int | None:
        """Not known before they are read."""
        return None

    def get_read_tasks(self, parallelism: int, *_: object, **__: object) -> list[ReadTask]:
        """A task a file, whatever the parallelism."""
        return [
            ReadTask(partial(_read, self._job, place), BlockMetadata(1, None, None, input_files=(place.texts,)))
            for place in self._places
        ]


def _read(stored: "ray.ObjectRef[_Job]", place: Place) -> Iterator[pa.Table]:
    job = ray.get(stored)
    job.enter()
    table, peak = measured(read_texts, job.work, place)
    yield rows.row_of_texts(place, table, peak)


def _tokenise(row: pa.Table, job: _Job) -> pa.Table:
    job.enter()
    place, table, before = rows.texts_in(row, TEXTS)
    tokens, peak = measured(tokenise, job.work, place, table)
    return rows.row_of_tokens(place, tokens, max(before, peak))


class EncodeShards:
    """An actor that holds the encoder, and encodes one shard after the other."""

    def __init__(self, job: _Job) -> None:
        """Nothing is read yet."""
        self._job = job

    @cached_property
    def _saved(self) -> "SavedEncoder":
        """The encoder; read with the first shard, as Ray gives an error of the constructor as text only."""
        return network_of(self._job.work)

    def __call__(self, row: pa.Table) -> pa.Table:
        """A shard's row of ids to its row of embeddings."""
        self._job.enter()
        place, tokens, before = rows.tokens_in(row)
        encoded, peak = measured(lambda: embed(self._saved, self._job.work, tokens))
        return rows.row_of_embeddings(place, tokens, encoded, max(before, peak))


class EmbeddingsDatasink(Datasink[list[Outcome]]):
    """A file of embeddings a shard, and its mark: the same bytes again if a task is repeated."""

    def __init__(self, job: _Job) -> None:
        """`outcomes` are there when all is written."""
        self._job = job
        self.outcomes: list[Outcome] = []

    def write(self, blocks: Iterable[pa.Table], ctx: object) -> list[Outcome]:
        """Write the shards of these blocks."""
        self._job.enter()
        shards = (block.slice(number, 1) for block in blocks for number in range(len(block)))
        return [self._write(row) for row in shards]

    def _write(self, row: pa.Table) -> Outcome:
        place, tokens, encoded, before = rows.embeddings_in(row)
        with recording() as written:
            counts, peak = measured(
                skip_or, place.output, lambda: write_embeddings(self._job.work, place, tokens, encoded)
            )
        return counts, max(before, peak), written

    def on_write_complete(self, write_result: WriteResult[list[Outcome]]) -> None:
        """Keep what was written."""
        self.outcomes = [outcome for outcomes in write_result.write_returns for outcome in outcomes]
