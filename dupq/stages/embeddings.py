"""The encode stage: texts → embeddings, on GPUs if there are any; and the check that the encoder knows the archive.

A shard is encoded as a whole, so the file of its embeddings has the same bits whatever encodes it:

- Ray Data (dupq/job/actors.py), which feeds shards to a pool of actors that hold the encoder. It is used in large runs
  and if `encode.actors` is set: its processes take longer to start than a small archive takes to encode;
- tasks on CPUs, each for a shard or for several small ones;
- a process per GPU, for which tasks on CPUs read, tokenise and write shards while it encodes one.

CPUs and GPUs round differently, so all embeddings of a run are made on one kind of device. A JSON file beside them
records which, and what else they were made by.
"""

import importlib.metadata
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, system, tables
from dupq.encoders.bags import Encoded, batch_slices
from dupq.encoders.saved import FITNESS_QUESTIONS, Fitness, SavedEncoder, fitness, load, load_words, read_description
from dupq.errors import DupqError
from dupq.job import cluster
from dupq.job.actors import Pool, run_in_actors
from dupq.job.gpus import Gpus, if_faster
from dupq.job.records import DEDUP_VERSIONS, Encoding, RunFiles
from dupq.job.run import Run
from dupq.job.step import Counted, Counts, mark_of, unless_finished
from dupq.job.table import Each, Table, Whole
from dupq.job.tasks import CAP, RETRIES, Report, at_next_step, recorded, result_or_lost, run_tasks, start
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import fingerprints
from dupq.settings.config import Settings
from dupq.settings.sections import CalibrationSettings, EncodeSettings
from dupq.stages.earlier import LEFT_OUT, Earlier, earlier_embeddings, find_contents, hashes_in
from dupq.storage import read_or_none
from dupq.system import ahead, note, side_by_side
from dupq.tables import KEYS, REPRESENTATIVES, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, RowsByKey, Sites, are_among, sample_by_hash, sorted_keys
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds

_log = logging.getLogger(__name__)
# limits of fitness: more unknown words, and the share of bodies found, relative to the archive of the training
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3
_CPU, _GPU = "cpu", "gpu"
# Texts that a core encodes in a second, by kind of network: measured on an AMD EPYC; other kinds and a GPU estimated.
_TEXTS_A_SECOND = {"word_bag": 70_000, "cnn": 20_000, "sentence_transformers": 20}
_OTHERS = 10_000
_GPU_TEXTS_A_SECOND, _GPU_SECONDS = 100_000, 5.0  # once its process has begun
_TRUNCATED, _REUSED = f"{CAP}texts cut at encoder.maximum_tokens", "embeddings as in the earlier run"
_AT_ONCE, _AT_ONCE_FOR_GPU = 4, 16  # shards that threads read, encode and write, or have tasks read and write
_SHARDS_PER_ACTOR, _LARGE_SHARD = 16, 50_000  # so many shards of so many questions, and starting an actor costs little


def check_fitness(run: Run, texts: Table, encoder: str, settings: CalibrationSettings) -> Fitness:
    """Record the encoder's fitness for this archive, before anything is made with it.

    Raises DupqError if the encoder knows the archive far less well than its own, or warns if so configured. Memory: 8
    bytes per question, and a shard of texts.
    """
    keys = Whole(run.map("keys", fitness_keys, Each(texts.only("key")), into=KEYS))
    sample = Whole(run.map("texts", texts_of, texts, keys, into=TEXTS))
    here: Fitness = run.record("fitness", fitness_on, sample, encoder)
    trained = read_description(encoder)["fitness"]
    faults = []
    unknown, usual = here["unknown_words"], trained["unknown_words"]
    if unknown > max(2 * usual, usual + _UNKNOWN_WORDS):
        faults.append(f"{unknown:.0%} of the words are unknown to it ({usual:.0%} where it was trained)")
    bodies, usual_bodies = here["bodies_found"], trained["bodies_found"]
    if bodies is not None and usual_bodies is not None and bodies < _BODIES_FOUND * usual_bodies:
        faults.append(f"it finds {bodies:.0%} of the bodies by their titles ({usual_bodies:.0%} where it was trained)")
    message = f"{encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    remedy = "Train one on this archive, or go on all the same with --set calibration.unfit=continue"
    if faults and settings.unfit == "stop":
        raise DupqError(f"{message}. {remedy}")
    if faults:
        _log.warning(message)
    return here


def fitness_keys(keys: Iterator[pa.Table]) -> pa.Table:
    """Return the questions that fitness is measured on (KEYS)."""
    return pa.table([sample_by_hash(sorted_keys(keys), FITNESS_QUESTIONS)], schema=KEYS)


def texts_of(texts: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of TEXTS whose keys are among `keys` (ascending)."""
    return texts.filter(pa.array(are_among(keys["key"].to_numpy(), texts["key"].to_numpy())))


def fitness_on(texts: pa.Table, encoder: str) -> Counted:
    """Return the fitness of the encoder on a sample of texts."""
    import torch

    torch.set_num_threads(1)
    measured = fitness(load(encoder), texts.sort_by("key").combine_chunks())
    return Counted(dict(measured), {"rows_in": len(texts), "rows_out": len(texts)})


def gpus_to_encode(kind: str, texts: int, gpus: Gpus) -> Gpus:
    """Return the GPUs to encode a number of texts with a kind of network: with `auto` only if they are faster."""
    on_cpus = texts / (_TEXTS_A_SECOND.get(kind, _OTHERS) * cluster.cpus())
    on_gpus = _GPU_SECONDS + texts / (_GPU_TEXTS_A_SECOND * max(1, cluster.gpus()))
    return if_faster(gpus, "encoded", on_cpus, on_gpus)


def gpus_to_make(record: str, folder: str, gpus: Gpus, made_by: Mapping[str, object]) -> int:
    """Return how many GPUs make the files in `folder`; 0 means CPUs. The file `record` stores that and `made_by`.

    A run stays on the kind of device that it began on. Raises DupqError if that was GPUs and now there are none.
    """

    def begin() -> Counts:
        storage.delete_folder(folder)
        storage.write_json(record, {**made_by, "device": _GPU if gpus.now() else _CPU})
        return {}

    unless_finished(record, begin)
    if storage.read_json(record)["device"] == _CPU:
        if gpus.requested:
            _log.info(f"--gpus {gpus.requested}: this run's embeddings were begun on CPUs, and are all made there")
        return 0
    count = gpus.now()
    if not count:
        raise DupqError(
            f"{record}: this run's embeddings were begun on GPUs, and there are none for it now; finish it on a "
            "cluster with GPUs, ask an autoscaling one for them with --gpus N, or begin a run in another --output"
        )
    return count


class EncodeContext(NamedTuple):
    """The inputs that all shards of a job share."""

    files: Encoding
    sites: list[str]
    batch_size: int
    gpu: bool
    earlier: Earlier | None = None


class Embedder:
    """The encoder in a process: it is read for the first shard, and encodes one at a time for all threads.

    Raises DupqError for a GPU that torch cannot use.
    """

    def __init__(self, context: EncodeContext) -> None:
        """Read nothing yet."""
        self._context, self._lock = context, threading.Lock()
        self._saved: SavedEncoder | None = None

    def _encoder(self) -> SavedEncoder:
        import torch

        with self._lock:
            if self._saved is None:
                torch.set_num_threads(1)
                self._saved = load(self._context.files.encoder)
                self._saved.network.to(system.usable(system.GPU if self._context.gpu else system.CPU))
            return self._saved

    def _encode(self, texts: TokenIds) -> Encoded:
        from dupq.encoders.encoding import encode

        network = self._encoder().network
        with self._lock:
            return encode(network, texts, self._context.batch_size)

    def encode_shard(self, name: str) -> Counts:
        """Write the embeddings of a shard, a file of texts of that name, unless they are finished."""
        make = self._with_tasks if self._context.gpu else self._here
        return unless_finished(storage.join(self._context.files.output, name), lambda: make(name))

    def _here(self, name: str) -> Counts:
        encoder = self._encoder()
        shard = _read_shard(self._context, name, (encoder.vocabulary, encoder.settings))
        return _write_shard(self._context, name, shard, self._encode(shard.texts))

    def _with_tasks(self, name: str) -> Counts:
        """Have tasks on CPUs read, tokenise and write: a process's threads do so for a tenth of what a GPU encodes.

        Token ids and embeddings pass through Ray's store. Raises ClusterError if a task's workers die repeatedly.
        """
        what = f"encode: {storage.join(self._context.files.texts, name)}"
        shard = start(_read_shard, self._context, name, retries=RETRIES)
        self._encoder()  # is read meanwhile
        encoded = self._encode(result_or_lost(shard, what).texts)
        written = start(recorded, _write_shard, self._context, name, shard, encoded, retries=RETRIES)
        counts, _, files = result_or_lost(written, what)
        note(files)
        return counts


class _Shard(NamedTuple):
    """The questions of a shard that have an embedding."""

    keys: np.ndarray  # int64
    new: np.ndarray  # int64: those without one in the earlier run
    texts: TokenIds  # of the new ones
    earlier: list[pa.Table]  # embeddings of the others
    counts: Counts


_words = lru_cache(maxsize=1)(load_words)  # kept for the next shard
at_next_step(_words.cache_clear)


def _read_shard(context: EncodeContext, name: str, words: tuple[Vocabulary, Settings] | None = None) -> _Shard:
    """Return the token ids of a shard's new texts, and the embeddings of others in the earlier run.

    A process without the encoder reads its words.
    """
    vocabulary, settings = words or _words(context.files.encoder)
    table = storage.read_table(storage.join(context.files.texts, name), TEXTS, TEXTS.names)
    representatives = context.files.representatives
    if representatives is not None:
        represented = _represented(representatives, storage.version(representatives))
        table = table.filter(pa.array(~are_among(represented, table["key"].to_numpy())))
    keys = table["key"].to_numpy()
    earlier, left_out = _reusable(context, name, keys)
    reused = np.concatenate([np.zeros(0, np.int64), *(rows["question_id"].to_numpy() for rows in earlier)])
    is_new = ~np.isin(keys & MAXIMUM_ID, reused)  # all of one site
    texts, truncated = token_ids(table.filter(pa.array(is_new)), vocabulary, settings)
    counts = {_TRUNCATED: truncated, _REUSED: len(reused), LEFT_OUT: left_out}
    return _Shard(keys, keys[is_new], texts, earlier, counts)


def _write_shard(context: EncodeContext, name: str, shard: _Shard, encoded: Encoded) -> Counts:
    """Write the embeddings of a shard: those that the encoder gives for new texts, and those of the earlier run."""
    embeddings = embeddings_table(Embeddings(shard.new, *encoded), Sites(context.sites))
    if shard.counts[_REUSED]:
        both = pa.concat_tables([embeddings, *(rows.cast(embeddings.schema) for rows in shard.earlier)])
        rows = RowsByKey(both["question_id"].to_numpy()).find(shard.keys & MAXIMUM_ID)
        embeddings = both.take(pa.array(rows))
    storage.write_table(storage.join(context.files.output, name), embeddings, embeddings.schema)
    return {"rows_in": len(shard.keys), **shard.counts, "rows_out": len(embeddings)}


def embeddings_table(embeddings: Embeddings, sites: Sites) -> pa.Table:
    """Return the rows of a run's `embeddings/`, in the order of `embeddings`."""
    dimensions = embeddings.vectors.shape[1]
    flat = pa.array(embeddings.vectors.ravel(), tables.EMBEDDING_TYPE)
    columns = [*sites.columns(embeddings.keys), pa.FixedSizeListArray.from_arrays(flat, dimensions)]
    if embeddings.words is not None:
        bags = embeddings.words
        offsets = pa.array(bags.indptr.astype(np.int32))
        entries = (bags.indices.astype(np.int32), bags.data.astype(np.float16))
        columns += [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in entries]
    columns.append(pa.array(fingerprints(embeddings)))
    return pa.table(columns, schema=tables.embeddings(dimensions, embeddings.words is not None))


def _reusable(context: EncodeContext, name: str, keys: np.ndarray) -> tuple[list[pa.Table], int]:
    """Return the embeddings in the earlier run of unchanged questions among `keys`, which are of one site.

    Also the number of files that may have more of them and were not read.
    """
    if context.earlier is None or not len(keys):
        return [], 0
    contents = hashes_in([storage.join(context.files.contents, name)])
    site = Sites(context.sites).names[int(keys[0]) >> ID_BITS]
    files, earlier, left_out = find_contents(context.earlier, site, contents.ids)
    same = contents.ids[earlier.are_same(contents.ids, contents.hashes)]
    ids = pa.array(np.intersect1d(same, keys & MAXIMUM_ID))
    tables = (storage.read_table(storage.join(context.earlier.embeddings, file)) for file in files)
    return [table.filter(pc.is_in(table["question_id"], ids)) for table in tables], left_out


@lru_cache(maxsize=1)
def _represented(representatives: str, version: str) -> np.ndarray:
    """Return the keys, ascending, of questions without an embedding because another question represents them."""
    table = storage.read_table(representatives, REPRESENTATIVES)
    keys = table["key"].to_numpy()
    return keys[keys != table["representative"].to_numpy()]


def encode_shards(context: EncodeContext, names: Sequence[str]) -> Counts:
    """Encode shards with one network; some are read and written while one is encoded.

    Memory of the host: four shards, and the encoder; with a GPU sixteen shards, in Ray's store. A task reads the
    encoder each time: kept in the process, it would take memory during later stages.
    """
    total = Counter[str]()
    for counts in ahead(Embedder(context).encode_shard, names, _AT_ONCE_FOR_GPU if context.gpu else _AT_ONCE):
        total.update(counts)
    return dict(total)


def pool_for(settings: EncodeSettings, shards: int, gpus: int) -> Pool | None:
    """Return the pool of actors that encodes the shards, or None if tasks do.

    It has `encode.actors` actors if that is set, else one per GPU, or per CPU without GPUs. Without Ray there is none,
    unless several actors are set, which are refused then; nor on a cluster without a CPU yet, which grows for tasks
    that wait, and would never for its one actor.
    """
    cpus = cluster.cpus()
    actors = settings.actors or gpus or cpus
    if settings.actors < 2 and (cluster.is_in_process() or not (gpus or cluster.widest())):
        return None
    if shards < (actors + 1 if settings.actors else actors * _SHARDS_PER_ACTOR):
        return None
    return Pool(actors, 0 if gpus else 1, 1 if gpus else 0)  # CPUs are for the tasks that feed an actor with a GPU


def check_room_to_encode(settings: EncodeSettings, shards: int, made_as: str, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for encoding.

    `made_as` is the run's file that records on which kind of device its embeddings were begun.
    """
    if cluster.may_grow():
        return
    is_on_cpus = (read_or_none(made_as, dict[str, object]) or {}).get("device") == _CPU
    wanted = 0 if is_on_cpus else gpus.requested or 0  # `auto` uses any GPUs but needs none
    pool = pool_for(settings, shards, wanted) or Pool(1, 1, 1 if wanted else 0)
    cluster.check_fits("encode", pool.cpus, pool.gpus, pool.actors)


def encode_texts(
    job: Encoding,
    sites: Sites,
    settings: EncodeSettings,
    gpus: Gpus,
    since: RunFiles | None = None,
    texts: Earlier | None = None,
) -> Report:
    """Encode every question of the job's texts, or only representatives if their table is given.

    Writes one file of embeddings for each file of texts. Embeddings of questions whose texts are unchanged since the
    run `since` are copied from it.
    """
    shards = [file.relative for file in storage.list_files(job.texts, ".parquet")]
    texts_of_shards = [storage.join(job.texts, name) for name in shards]
    description = read_description(job.encoder)
    made_by = {"encoder": description["fingerprint"], "algorithm": DEDUP_VERSIONS["encode"]}
    made_by |= {"torch": importlib.metadata.version("torch")}
    counts = side_by_side(lambda uri: storage.read_counts(uri)["rows_out"], texts_of_shards)
    questions = sum(counts)
    kind = description["settings"]["encoder"]["kind"]
    if not storage.exists(job.made_as):
        gpus = gpus_to_encode(kind, questions, gpus)
    gpu_count = gpus_to_make(job.made_as, job.output, gpus, made_by)
    earlier = earlier_embeddings(since, storage.read_json(job.made_as), texts)
    context = EncodeContext(job, sites.names, settings.batch_size, bool(gpu_count), earlier)
    are_marked = side_by_side(lambda name: storage.exists(mark_of(storage.join(job.output, name))), shards)
    left = [count for count, is_marked in zip(counts, are_marked, strict=True) if not is_marked]
    # a hundred small sites are no large run
    pool = pool_for(settings, len(left) if settings.actors else sum(left) // _LARGE_SHARD, gpu_count)
    if pool is not None:
        report = run_in_actors("encode", lambda: Embedder(context).encode_shard, shards, pool)
        if report is not None:
            return report
    shares = [shards[gpu::gpu_count] for gpu in range(min(gpu_count, len(shards)))] or _grouped(shards, counts, kind)
    others = (f" and {len(share) - 1} more" if len(share) > 1 else "" for share in shares)
    names = [f"{storage.join(job.texts, share[0])}{more}" for share, more in zip(shares, others, strict=True)]
    return run_tasks("encode", encode_shards, [(context, share) for share in shares], gpus=gpu_count, names=names)


def _grouped(shards: Sequence[str], counts: Sequence[int], kind: str) -> list[list[str]]:
    """Group small shards, so that an encoder of this kind is not read for each.

    A group has at most a large shard's questions, and work for a minute: other cores would wait for more.
    """
    most = min(_LARGE_SHARD, 60 * _TEXTS_A_SECOND.get(kind, _OTHERS))
    return [[*shards[group]] for group in batch_slices(np.cumsum([0, *counts]), most)]
