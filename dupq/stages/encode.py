"""The encode stage: texts → embeddings, on GPUs if there are any.

A shard is encoded as a whole, and so every bit of its file is the same by either way:

- a task a shard, which takes all steps: on CPUs, where every core can take any step and nothing need be copied;
- a pipeline of Ray Data (`dupq/stages/encoding/pipeline.py`), which feeds actors that hold the encoder: with GPUs,
  where actors are asked for, and in large runs. Its own processes take longer to start than a small archive takes
  to encode.

What is left where the pipeline's processes died again and again is encoded by tasks, as they know which shard it was.
"""

import importlib.metadata
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import ray

from dupq import storage
from dupq.encoders.description import read_description, read_split
from dupq.errors import DupqError
from dupq.execution import cluster
from dupq.execution.tasks import Report, run_tasks, summarise
from dupq.execution.units import Counts, finished, skip_or
from dupq.json_files import read_whole
from dupq.recording import note
from dupq.runs import versions
from dupq.runs.layout import Encoding, RunLayout
from dupq.settings.dedup import EncodeSettings
from dupq.stages.earlier import Earlier, earlier_embeddings
from dupq.stages.encoding.crew import Crew, crew_for
from dupq.stages.encoding.shard import Place, Work, encode_shard
from dupq.text.keys import Sites

_log = logging.getLogger(__name__)
_AT_A_TIME = 16  # files that are looked at; on S3 each waits for the network


def check_encoder(encoder: str, sites: Sites) -> None:
    """Raise DupqError for an encoder that is missing, damaged, or has weights that are no numbers."""
    from dupq.encoders.saved import load

    load(encoder)
    read_split(encoder, sites)


def check_room_to_encode(settings: EncodeSettings, shards: int, made_as: str) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for what encoding will ask for.

    `made_as` is the file of the run that says on which kind of device it was begun, if it was.
    """
    if cluster.may_grow():
        return
    begun = read_whole(made_as, dict[str, object])
    gpus = 0 if begun and begun.get("device") == "cpu" else settings.gpus or cluster.gpus()
    crew = crew_for(settings, gpus, cluster.cpus())
    if crew.is_for(shards):
        cluster.check_fits("encode", crew.cpus, crew.gpus, crew.workers)
    else:
        cluster.check_fits("encode", 1, crew.gpus)


def encode_texts(
    job: Encoding, sites: Sites, settings: EncodeSettings, since: RunLayout | None = None, texts: Earlier | None = None
) -> Report:
    """Embed every question of the job's texts, or only representatives if their table is given.

    Writes one file of the embeddings schema for each file of texts. Embeddings of questions whose `texts` were those of
    the run `since` are taken from there.
    """
    names = [file.relative for file in storage.list_files(job.texts, ".parquet")]
    places = [
        Place(*(storage.join(folder, name) for folder in (job.texts, job.contents, job.output))) for name in names
    ]
    fingerprint = read_description(job.encoder)["fingerprint"]
    made_by = {"encoder": fingerprint, "algorithm": versions.DEDUP["encode"]}
    gpus = gpus_for(job.made_as, settings, job.output, {**made_by, "torch": importlib.metadata.version("torch")})
    earlier = earlier_embeddings(since, storage.read_json(job.made_as), texts)
    work = Work(job.encoder, fingerprint, sites.names, job.representatives, settings.batch_size, bool(gpus), earlier)
    crew = crew_for(settings, gpus, cluster.cpus())
    if crew.is_for(len(places)):
        cluster.check_fits("encode", crew.cpus, crew.gpus, crew.workers)  # else its steps wait for each other
        try:
            return _by_pipeline(work, places, crew)
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            _log.warning("encode: an actor or a task died; the rest is encoded by a task a shard")
    calls = [(work, place) for place in places]
    return run_tasks("encode", encode_shard, calls, gpus=crew.gpus, names=[place.texts for place in places])


def _by_pipeline(work: Work, places: list[Place], crew: Crew) -> Report:
    """Encode by Ray Data what no earlier attempt has finished."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        there = list(pool.map(lambda place: finished(place.output), places))
    outcomes = [(counts, 0.0, files) for counts, files in filter(None, there)]
    left = [place for place, done in zip(places, there, strict=True) if done is None]
    if left:
        from dupq.stages.encoding.pipeline import encode_by_pipeline

        outcomes += encode_by_pipeline(work, left, crew)
    for _, _, files in outcomes:
        note(files)
    return summarise([(counts, peak) for counts, peak, _ in outcomes])


def gpus_for(place: str, settings: EncodeSettings, embeddings: str, made_by: Mapping[str, object]) -> int:
    """How many GPUs encode. A run that was begun on one kind of device stays on it, as they round differently."""
    gpus = settings.gpus or cluster.gpus()

    def make() -> Counts:
        storage.delete_folder(embeddings)
        storage.write_json(place, {**made_by, "device": "gpu" if gpus else "cpu"})
        return {}

    skip_or(place, make)
    if storage.read_json(place)["device"] == "cpu":
        return 0
    if not gpus:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and the cluster has none now; finish it on one with "
            "GPUs, ask an autoscaling one for them with --set encode.gpus=N, or begin a run in another --output"
        )
    return gpus
