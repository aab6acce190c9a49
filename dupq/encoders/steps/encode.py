"""The encode stage: texts → embeddings, on GPUs if there are any.

A shard is encoded as a whole, and so every bit of its file is the same by each way:

- on CPUs a task per shard takes all steps, so that nothing is copied;
- on GPUs tasks on CPUs write token ids, and a process per GPU reads them and writes embeddings;
- a pipeline of Ray Data (`dupq/encoders/steps/encode_pipeline.py`) feeds actors that hold the encoder, where actors are
  asked for and in large runs. Its own processes take longer to start than a small archive takes to encode.

What is left where the pipeline's processes died again and again is encoded by tasks, as they know which shard it was.

A run's embeddings are made on one kind of device only, as CPUs and GPUs round differently: a JSON file beside them says
which, and what else they are made by.
"""

import importlib.metadata
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import pyarrow as pa
import ray

from dupq import storage
from dupq.encoders.description import FITNESS_QUESTIONS, FitnessEntry, read_description
from dupq.encoders.steps import shard_encoding
from dupq.encoders.steps.shard_encoding import (
    Crew,
    Place,
    Work,
    crew_for,
    embed,
    encode_shard,
    network_of,
    read_texts,
    tokenise,
    write_embeddings,
)
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.execution import cluster, task_files
from dupq.execution.gpus import WORKERS, Gpus, if_faster
from dupq.execution.task_files import Counts, finished, skip_or
from dupq.execution.tasks import Report, run_tasks, summarise
from dupq.job.run import Counted, Run
from dupq.job.run_inputs import Earlier, earlier_embeddings
from dupq.job.table import Each, Table, Whole
from dupq.json_files import read_whole
from dupq.runs import writer
from dupq.runs.layout import Encoding, RunLayout
from dupq.runs.question_tables import sorted_keys
from dupq.settings.sections import CalibrationSettings, EncodeSettings
from dupq.system import Written, note, recording, side_by_side
from dupq.tables import KEYS, TEXTS
from dupq.text.keys import Sites, are_among

# texts, encoder → whether the encoder knows texts like these, before anything is made with it.
#
#     keys     the questions that it is measured on
#     texts    their texts
#     fitness  unknown words, and bodies that are found by their titles (dupq/encoders/text_reader.py)
#
# Memory: 8 bytes a question where they are chosen; a shard of texts.

_log = logging.getLogger(__name__)


def check_fitness(run: Run, texts: Table, encoder: str, settings: CalibrationSettings) -> FitnessEntry:
    """Record how well the encoder knows this archive. Raises DupqError if it does not, unless told to go on."""
    keys = Whole(run.map("keys", questions_to_read, Each(texts.only("key")), into=KEYS))
    some = Whole(run.map("texts", texts_of, texts, keys, into=TEXTS))
    found: FitnessEntry = run.record("fitness", fitness_on, some, encoder)
    _check(found, encoder, settings)
    return found


def questions_to_read(keys: Iterator[pa.Table]) -> pa.Table:
    """Return the questions that fitness is measured on (KEYS)."""
    return pa.table([chosen(sorted_keys(keys), FITNESS_QUESTIONS)], schema=KEYS)


def texts_of(texts: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of TEXTS whose keys are among `keys` (ascending)."""
    return texts.filter(pa.array(are_among(keys["key"].to_numpy(), texts["key"].to_numpy())))


def fitness_on(texts: pa.Table, encoder: str) -> Counted:
    """Return the fitness of the encoder on some texts."""
    import torch

    from dupq.encoders.saved import load
    from dupq.encoders.text_reader import fitness

    torch.set_num_threads(1)
    found = fitness(load(encoder).reader, texts.sort_by("key").combine_chunks())
    return Counted(vars(found), {"rows_in": len(texts), "rows_out": len(texts)})


# more unknown words than where the encoder was trained; the least share of the bodies that their titles found there
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3


def _check(here: FitnessEntry, encoder: str, settings: CalibrationSettings) -> None:
    """Warn, or stop if so configured, where the encoder knows this archive far less well than its own."""
    trained = read_description(encoder)["fitness"]
    faults = []
    if here["unknown_words"] > max(2 * trained["unknown_words"], trained["unknown_words"] + _UNKNOWN_WORDS):
        faults.append(
            f"{here['unknown_words']:.0%} of the words are unknown to it ({trained['unknown_words']:.0%} where it was "
            "trained)"
        )
    found, found_then = here["bodies_found"], trained["bodies_found"]
    if found is not None and found_then is not None and found < _BODIES_FOUND * found_then:
        faults.append(f"it finds {found:.0%} of the bodies by their titles ({found_then:.0%} where it was trained)")
    if not faults:
        return
    said = f"{encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    if settings.unfit == "stop":
        raise DupqError(
            f"{said}. Train one on this archive, or go on all the same with --set calibration.unfit=continue"
        )
    _log.warning(said)


_CPU, _GPU = "cpu", "gpu"
# Of a core, by kind of network: measured on an AMD EPYC; the other kinds, and a GPU, are estimates.
_TEXTS_A_SECOND = {"word_bag": 70_000, "cnn": 20_000, "lstm": 10_000, "sentence_transformers": 20}
_OTHERS = 10_000
_GPU_TEXTS_A_SECOND, _GPU_SECONDS = 100_000, 5.0  # once its process has begun


def gpus_to_encode(kind: str, texts: int, gpus: Gpus) -> Gpus:
    """Return the GPUs that encode so many texts with this kind of network; with `auto` only where they are faster."""
    on_cpus = texts / (_TEXTS_A_SECOND.get(kind, _OTHERS) * cluster.cpus())
    on_gpus = _GPU_SECONDS + texts / (_GPU_TEXTS_A_SECOND * max(1, cluster.gpus()))
    return if_faster(gpus, "encoded", on_cpus, on_gpus)


def gpus_to_make(place: str, folder: str, gpus: Gpus, made_by: Mapping[str, object]) -> int:
    """How many GPUs make what goes into `folder`, 0: CPUs do. `place` is the file that says which and `made_by` what.

    A run stays on the kind of device that it was begun on. Raises DupqError if that was GPUs, and there are none.
    """

    def make() -> Counts:
        storage.delete_folder(folder)
        storage.write_json(place, {**made_by, "device": _GPU if gpus.now() else _CPU})
        return {}

    skip_or(place, make)
    found = gpus_to_go_on(place, gpus)
    if not found and gpus.wanted:
        _log.info(f"--gpus {gpus.wanted}: this run's embeddings were begun on CPUs, and are all made there")
    return found


def gpus_to_go_on(place: str, gpus: Gpus) -> int:
    """How many GPUs make more of what `place` tells of, 0: CPUs do. Raises DupqError if there are none but must be."""
    if storage.read_json(place)["device"] == _CPU:
        return 0
    found = gpus.now()
    if not found:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and there are none for it now; finish it on a cluster "
            "with GPUs, ask an autoscaling one for them with --gpus N, or begin a run in another --output"
        )
    return found


def was_begun_on_cpus(place: str) -> bool:
    """Whether `place` is there and tells of CPUs."""
    return (read_whole(place, dict[str, object]) or {}).get("device") == _CPU


_AT_ONCE = 4  # shards that a process reads, encodes and writes


def encode_by_gpus(work: Work, places: Sequence[Place], folder: str, gpus: int) -> Report:
    """Encode shards, whose token ids are meanwhile in `folder`."""
    names = [place.texts for place in places]
    uris = [storage.join(folder, f"{storage.name(name)}-{number}.arrow") for number, name in enumerate(names)]
    shards = list(zip(places, uris, strict=True))
    tokenised = run_tasks("tokenise", tokenise_shard, [(work, *shard) for shard in shards], names=names)
    shares = [shards[gpu::gpus] for gpu in range(min(gpus, len(shards)))]
    whose = [f"{share[0][0].texts} and {len(share) - 1} more" for share in shares]
    report = run_tasks("encode", encode_shards, [(work, share) for share in shares], gpus=gpus, names=whose)
    report.peak_memory_mb = max(report.peak_memory_mb, tokenised.peak_memory_mb)
    storage.delete_folder(folder)
    return report


def tokenise_shard(work: Work, place: Place, uri: str) -> Counts:
    """Write the token ids of a shard, unless its embeddings are there."""

    def make() -> Counts:
        row = shard_encoding.row_of_tokens(place, tokenise(work, place, read_texts(work, place)), 0.0)
        task_files.write_parts(uri, iter(row.to_batches()), row.schema)
        return {}

    return {} if finished(place.output) else skip_or(uri, make)


def encode_shards(work: Work, shards: Sequence[tuple[Place, str]]) -> Counts:
    """Encode shards from their token ids: threads read and write some while one is encoded.

    Memory of the host: the token ids and embeddings of four shards, and the encoder.
    """
    saved, one_at_a_time = cache(partial(network_of, work)), threading.Lock()

    def encode(shard: tuple[Place, str]) -> tuple[Counts, dict[str, Written]]:
        place, uri = shard

        def make() -> Counts:
            tokens = shard_encoding.tokens_in(pa.Table.from_batches(task_files.read_all(uri)))[1]
            with one_at_a_time:
                encoded = embed(saved(), work, tokens)
            return write_embeddings(work, place, tokens, encoded)

        with recording() as written:  # by this thread
            return skip_or(place.output, make), written

    total: Counts = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for counts, written in pool.map(encode, shards):
            note(written)
            total = {name: total.get(name, 0) + counts.get(name, 0) for name in {**total, **counts}}
    return total


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
    made_by = {"encoder": fingerprint, "algorithm": writer.DEDUP_VERSIONS["encode"]}
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
        from dupq.encoders.steps.encode_pipeline import encode_by_pipeline

        outcomes += encode_by_pipeline(work, left, crew)
    for _, _, files in outcomes:
        note(files)
    return summarise([(counts, peak) for counts, peak, _ in outcomes])
