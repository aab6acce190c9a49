"""The encode stage: texts → embeddings, on GPUs if there are any.

A shard is encoded as a whole, and so every bit of its file is the same by either way:

- on CPUs a task per shard, which takes all steps, so that nothing need be copied; on GPUs by_gpu.py;
- a pipeline of Ray Data (`dupq/stages/encoding/pipeline.py`), which feeds actors that hold the encoder: where actors
  are asked for, and in large runs. Its own processes take longer to start than a small archive takes to encode.

What is left where the pipeline's processes died again and again is encoded by tasks, as they know which shard it was.
"""

import importlib.metadata
import logging

import ray

from dupq import storage
from dupq.encoders.description import read_description
from dupq.execution import cluster
from dupq.execution.gpu_workers import WORKERS
from dupq.execution.gpus import Gpus
from dupq.execution.tasks import Report, run_tasks, summarise
from dupq.execution.units import finished
from dupq.recording import note
from dupq.runs import versions
from dupq.runs.layout import Encoding, RunLayout
from dupq.settings.dedup import EncodeSettings
from dupq.side_by_side import side_by_side
from dupq.stages.earlier import Earlier, earlier_embeddings
from dupq.stages.encoding.by_gpu import encode_by_gpus
from dupq.stages.encoding.crew import Crew, crew_for
from dupq.stages.encoding.device import gpus_to_encode, gpus_to_make, was_begun_on_cpus
from dupq.stages.encoding.shard import Place, Work, encode_shard
from dupq.text.keys import Sites

_log = logging.getLogger(__name__)


def check_room_to_encode(settings: EncodeSettings, shards: int, made_as: str, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for what encoding will ask for.

    `made_as` is the file of the run that says on which kind of device it was begun, if it was.
    """
    if cluster.may_grow():
        return
    wanted = gpus.wanted or 0  # with `auto` what is there
    crew = crew_for(settings, 0 if was_begun_on_cpus(made_as) else wanted, cluster.cpus())
    if crew.is_for(shards):
        cluster.check_fits("encode", crew.cpus, crew.gpus, crew.actors)
    else:
        cluster.check_fits("encode", 1, crew.gpus)


def encode_texts(
    job: Encoding,
    sites: Sites,
    settings: EncodeSettings,
    gpus: Gpus,
    since: RunLayout | None = None,
    texts: Earlier | None = None,
) -> Report:
    """Embed every question of the job's texts, or only representatives if their table is given.

    Writes one file of the embeddings schema for each file of texts. Embeddings of questions whose `texts` were those of
    the run `since` are taken from there.
    """
    names = [file.relative for file in storage.list_files(job.texts, ".parquet")]
    places = [
        Place(*(storage.join(folder, name) for folder in (job.texts, job.contents, job.output))) for name in names
    ]
    description = read_description(job.encoder)
    fingerprint = description["fingerprint"]
    made_by = {"encoder": fingerprint, "algorithm": versions.DEDUP["encode"]}
    made_by |= {"torch": importlib.metadata.version("torch")}
    if not storage.exists(job.made_as):
        questions = sum(side_by_side(lambda place: storage.read_counts(place.texts)["rows_out"], places))
        gpus = gpus_to_encode(description["settings"]["encoder"]["kind"], questions, gpus)
    taken = gpus_to_make(job.made_as, job.output, gpus, made_by)
    earlier = earlier_embeddings(since, storage.read_json(job.made_as), texts)
    work = Work(job.encoder, fingerprint, sites.names, job.representatives, settings.batch_size, bool(taken), earlier)
    crew = crew_for(settings, taken, cluster.cpus())
    if crew.is_for(len(places)):
        cluster.check_fits("encode", crew.cpus, crew.gpus, crew.actors)  # else steps may wait for each other
        try:
            return _by_pipeline(work, places, crew)
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            _log.warning("encode: an actor or a task died; the rest is encoded by a task a shard")
    if taken:
        return encode_by_gpus(work, places, storage.join(storage.parent(job.made_as), "token_ids"), taken)
    calls = [(work, place) for place in places]
    return run_tasks("encode", encode_shard, calls, names=[place.texts for place in places])


def _by_pipeline(work: Work, places: list[Place], crew: Crew) -> Report:
    """Encode by Ray Data what no earlier attempt has finished."""
    there = side_by_side(lambda place: finished(place.output), places)
    outcomes = [(counts, 0.0, files) for counts, files in filter(None, there)]
    left = [place for place, done in zip(places, there, strict=True) if done is None]
    if left:
        WORKERS.end()  # the actors need their GPUs
        from dupq.stages.encoding.pipeline import encode_by_pipeline

        outcomes += encode_by_pipeline(work, left, crew)
    for _, _, files in outcomes:
        note(files)
    return summarise([(counts, peak) for counts, peak, _ in outcomes])
