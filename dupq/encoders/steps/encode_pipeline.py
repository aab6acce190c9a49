"""Many shards through Ray Data, which feeds them to a pool of actors that hold the encoder.

A row is a shard. On a GPU an actor has some at once: its threads read and write while one shard is encoded.
"""

import gc
import json
import logging
import warnings
from typing import NamedTuple

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, from_items

from dupq.encoders.steps.encode import AT_ONCE, Crew, Embedder, Place, Work, encode_shard
from dupq.errors import DupqError
from dupq.job import nodes
from dupq.job.gpus import WORKERS
from dupq.job.table import finished
from dupq.job.tasks import Outcome, Report, enter, recorded, summarise
from dupq.runs.progress import Line
from dupq.system import Written, note, side_by_side

_RESTARTS = 1  # of an actor that died; after that tasks, whose errors name the shard


class _Job(NamedTuple):
    """What every process needs."""

    work: Work
    build: nodes.Build  # of the driver: code and libraries must be the same on all nodes


def encode_by_pipeline(work: Work, places: list[Place], crew: Crew) -> Report:
    """Encode what no earlier attempt has finished.

    Raises the DupqError of a shard as it was raised there, and RayError if actors died again and again.
    """
    there = side_by_side(lambda place: finished(place.output), places)
    outcomes = [(counts, 0.0, files) for counts, files in filter(None, there)]
    left = [place for place, done in zip(places, there, strict=True) if done is None]
    failure: BaseException | None = None
    if left:
        WORKERS.end()  # the actors need their GPUs
        try:
            outcomes += _run(_Job(work, nodes.build()), left, crew)
        except Exception as error:
            failure = _cause(error)
            if isinstance(failure, DupqError | ray.exceptions.RayError):
                failure.__cause__ = failure.__context__ = failure.__traceback__ = None
        # Frames of Ray Data, in cycles or in a traceback, hold its actors, and with them CPUs that later tasks wait for
        gc.collect()
    if failure is not None:
        raise failure
    for _, _, files in outcomes:
        note(files)
    return summarise([(counts, peak) for counts, peak, _ in outcomes])


def _run(job: _Job, places: list[Place], crew: Crew) -> list[Outcome]:
    outcomes: list[Outcome] = []
    shown = Line("encode", len(places))
    shown.show(0)
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts and max_retries in 2.64, but has no successor yet; by default it repeats
        # without end
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its import sets another; errors are raised as well
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.raise_original_map_exception = True  # Ray Data's own holds the error as text only
        for row in _shards(job, places, crew).iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0):
            counts, peak, files = json.loads(row["outcome"][0].as_py())
            outcomes.append((counts, peak, {uri: Written(*written) for uri, written in files.items()}))
            shown.show(len(outcomes))
    return outcomes


def _shards(job: _Job, places: list[Place], crew: Crew) -> Dataset:
    """Return the shards, from their files to their outcomes; nothing runs yet."""
    rows = [{"place": json.dumps(place)} for place in places]
    return from_items(rows, override_num_blocks=len(places)).map_batches(
        EncodeShards,
        fn_constructor_args=(job,),
        batch_size=1,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=crew.actors, max_concurrent_calls_per_actor=AT_ONCE if crew.gpus else 1),
        num_cpus=crew.cpus,
        num_gpus=crew.gpus,
        max_restarts=_RESTARTS,
        max_task_retries=_RESTARTS,
    )


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


class EncodeShards:
    """An actor that holds the encoder, and takes one shard after the other."""

    def __init__(self, job: _Job) -> None:
        """Read nothing yet, as Ray gives an error of the constructor as text only."""
        self._job, self._embedder = job, Embedder(job.work)

    def __call__(self, row: pa.Table) -> pa.Table:
        """Encode a shard; return what it counted, its memory and its files."""
        enter(self._job.build)
        place = Place(*json.loads(row["place"][0].as_py()))
        outcome = recorded(encode_shard, self._job.work, place, self._embedder)
        return pa.table({"outcome": [json.dumps(outcome)]})
