"""texts → whether the encoder knows such texts, and their embeddings, on GPUs if there are any.

A partition is encoded as a whole, so the file of its embeddings has the same bits whatever encodes it:

- Ray Data (dupq/job/actors.py), which feeds partitions to a pool of actors that hold the encoder. It is used in large
  runs and if `encode.actors` is set: its processes take longer to start than a small archive takes to encode;
- tasks on CPUs, each for a large partition or for several small ones;
- a process per GPU, for which tasks on CPUs read, tokenise and write partitions while it encodes one.

CPUs and GPUs round differently, so all embeddings of a run are made on one kind of device.

Memory: four partitions of texts and embeddings, and the encoder; with a GPU sixteen partitions, in Ray's store.
"""

import functools
import importlib.metadata
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq import kinds, storage, system, tables
from dupq.encoders.bags import Encoded, batch_slices
from dupq.encoders.saved import FITNESS_QUESTIONS, Fitness, SavedEncoder, fitness, load, load_words, read_description
from dupq.errors import DupqError
from dupq.job import cluster, records
from dupq.job.actors import Pool
from dupq.job.gpus import Gpus, if_faster
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import Counts, Deferred, StepResult, step, unfinished
from dupq.job.table import Broadcast, Streamed, Table
from dupq.job.tasks import at_next_step
from dupq.kinds import JSON, columns, streamed
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import fingerprints
from dupq.settings.sections import CalibrationSettings, EncodeSettings
from dupq.stages.inputs import LEFT_OUT, EarlierContents, find_contents, hashes_in
from dupq.storage import read_or_none
from dupq.system import thread_map
from dupq.tables import CONTENT_HASHES, EMBEDDED, KEYS, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, RowsByKey, Sites, are_among, sample_by_hash, sorted_keys
from dupq.text.questions import token_ids
from dupq.text.token_arrays import TokenIds

_log = logging.getLogger(__name__)
# limits of fitness: more unknown words, and the share of bodies found, relative to the archive of the training
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3
_CPU, _GPU = "cpu", "gpu"
# Texts that a core encodes in a second, by kind of network: measured on an AMD EPYC; other kinds and a GPU estimated.
_TEXTS_A_SECOND = {"word_bag": 70_000, "cnn": 20_000, "sentence_transformers": 20}
_OTHERS = 10_000
_GPU_TEXTS_A_SECOND, _GPU_SECONDS = 100_000, 5.0  # once its process has begun
_SHARDS_PER_ACTOR, _LARGE_SHARD = 16, 50_000  # so many shards of so many questions, and starting an actor costs little


@stage("fitness", version=1)
def check_fitness(run: Run, texts: Table[kinds.Text], encoder: str, settings: CalibrationSettings) -> Fitness:
    """Record the encoder's fitness for this archive, before anything is made with it.

    Raises DupqError if the encoder knows the archive far less well than its own, or warns if so configured. Memory: 8
    bytes per question, and a partition of texts.
    """
    keys = run.map("keys", fitness_keys)(Streamed(texts))
    sample = run.map("texts", texts_of)(texts, Broadcast(keys))
    here = run.record("fitness", fitness_on)(Broadcast(sample), encoder)
    trained = read_description(encoder)["fitness"]
    faults = []
    unknown, usual = here["unknown_words"], trained["unknown_words"]
    if unknown > max(2 * usual, usual + _UNKNOWN_WORDS):
        faults.append(f"{unknown:.0%} of the words are unknown to it ({usual:.0%} where it was trained)")
    bodies, usual_bodies = here["bodies_found"], trained["bodies_found"]
    if bodies is not None and usual_bodies is not None and bodies < _BODIES_FOUND * usual_bodies:
        faults.append(f"it finds {bodies:.0%} of the bodies by their titles ({usual_bodies:.0%} where it was trained)")
    message = f"{encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    remedy = "Train one on this archive, or, to continue anyway, set --set calibration.unfit=continue"
    if faults and settings.unfit == "stop":
        raise DupqError(f"{message}. {remedy}")
    if faults:
        _log.warning(message)
    return here


@step(streamed(columns(TEXTS, "key")), makes=KEYS)
def fitness_keys(keys: Iterator[pa.Table]) -> pa.Table:
    """Return the questions that fitness is measured on (KEYS)."""
    return pa.table([sample_by_hash(sorted_keys(keys), FITNESS_QUESTIONS)], schema=KEYS)


@step(TEXTS, KEYS, makes=TEXTS)
def texts_of(texts: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of TEXTS whose keys are among `keys` (ascending)."""
    return texts.filter(pa.array(are_among(keys["key"].to_numpy(), texts["key"].to_numpy())))


@step(TEXTS, makes=JSON)
def fitness_on(texts: pa.Table, encoder: str) -> StepResult[Fitness]:
    """Return the fitness of the encoder on a sample of texts."""
    import torch

    torch.set_num_threads(1)
    measured = fitness(load(encoder), texts.sort_by("key").combine_chunks())
    return StepResult(measured, {"rows_in": len(texts), "rows_out": len(texts)})


class EmbeddingTables(NamedTuple):
    """The embeddings of a run's questions, a partition per partition of texts; and what a later run compares."""

    embeddings: Table[kinds.Embedded]
    contents: Table[kinds.Content] | None  # of the same questions; None for jobs that no later run builds on
    sites: tuple[str, ...]  # by which the keys in `contents` are numbered


class ToEncode(NamedTuple):
    """The questions to encode."""

    texts: Table[kinds.Text]
    contents: Table[kinds.Content] | None = None
    representatives: Table[kinds.Representative] | None = None  # questions that others represent are left out


class EarlierEmbeddings(NamedTuple):
    """What the earlier run knows: the contents of its questions, and their embeddings in the same partitions."""

    contents: EarlierContents
    embeddings: Table[kinds.Embedded]


@stage("encode", version=2, keeps=("embeddings",))
def embed(
    run: Run,
    questions: ToEncode,
    encoder: str,
    sites: Sites,
    settings: EncodeSettings,
    gpus: Gpus,
    before: EarlierContents | None = None,
) -> EmbeddingTables:
    """Encode every question with the encoder at a URI.

    Embeddings of unchanged questions are taken from the earlier run, which had the contents `before`.
    """
    texts, description = questions.texts, read_description(encoder)
    counts = thread_map(texts.rows_of, range(texts.partitions))
    kind = description["settings"]["encoder"]["kind"]
    if device_of(run.uri) is None:
        gpus = gpus_to_encode(kind, sum(counts), gpus)
    made = run.table("embeddings", EMBEDDED, texts.partitions, publish=True)
    made_by = {"encoder": description["fingerprint"], "algorithm": embed.version}
    made_by |= {"torch": importlib.metadata.version("torch")}
    gpu_count = gpus_to_make(run, gpus, made_by, made)
    earlier = embed.earlier(run, {**made_by, "device": _GPU if gpu_count else _CPU})
    known = None if earlier is None or before is None else EarlierEmbeddings(before, earlier.embeddings)
    contents = None if known is None or questions.contents is None else questions.contents.only(*CONTENT_HASHES.names)
    represented = None if questions.representatives is None else Broadcast(questions.representatives)
    embedder = Embedder(encoder, settings.batch_size, bool(gpu_count))
    groups = groups_of(counts, kind, gpu_count)
    pool = pool_for(settings, [counts[number] for number in unfinished(made)], gpu_count)
    encode = run.map("embeddings", encode_texts, publish=True, gpus=gpu_count, groups=groups, pool=pool)
    embedded = encode(texts, represented, contents, embedder, sites.names, known)
    run.report.rows_out = embedded.rows
    schema = storage.read_schema(embedded.file(0)).remove_metadata()
    return EmbeddingTables(replace(embedded, schema=schema), questions.contents, tuple(sites.names))


def gpus_to_encode(kind: str, texts: int, gpus: Gpus) -> Gpus:
    """Return the GPUs to encode a number of texts with a kind of network: with `auto` only if they are faster."""
    on_cpus = texts / (_TEXTS_A_SECOND.get(kind, _OTHERS) * cluster.cpus())
    on_gpus = _GPU_SECONDS + texts / (_GPU_TEXTS_A_SECOND * max(1, cluster.gpus()))
    return if_faster(gpus, "encoded", on_cpus, on_gpus)


def pool_for(settings: EncodeSettings, counts: Sequence[int], gpus: int) -> Pool | None:
    """Return the pool of actors that encodes shards of so many questions, or None if tasks do.

    It has `encode.actors` actors if that is set, else one per GPU, or per CPU without GPUs. Without Ray there is none,
    unless several actors are set, which are refused then; nor on a cluster without a CPU yet, which grows for tasks
    that wait, and would never for its one actor.
    """
    actors = settings.actors or gpus or cluster.cpus()
    if settings.actors < 2 and (cluster.is_in_process() or not (gpus or cluster.widest())):
        return None
    # a hundred small sites are no large run
    enough = len(counts) > actors if settings.actors else sum(counts) >= actors * _SHARDS_PER_ACTOR * _LARGE_SHARD
    # CPUs are for the tasks that feed an actor with a GPU
    return Pool(actors, 0 if gpus else 1, 1 if gpus else 0) if enough else None


def groups_of(counts: Sequence[int], kind: str, gpus: int) -> list[range]:
    """Return the partitions of each task that encodes texts with a kind of network, given the number of texts in each.

    A GPU has one task. On CPUs small partitions are grouped, so that an encoder is not read for each: at most a large
    shard's questions, and work for a minute, as other cores would wait for more.
    """
    every = range(len(counts))
    if gpus:
        return [every[gpu::gpus] for gpu in every[:gpus]]
    most = min(_LARGE_SHARD, 60 * _TEXTS_A_SECOND.get(kind, _OTHERS))
    return [every[group] for group in batch_slices(np.cumsum([0, *counts]), most)]


def check_room_to_encode(settings: EncodeSettings, shards: int, run: str, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for encoding in the run (URI)."""
    if cluster.may_grow() or storage.exists(records.record_of(run, embed.name)):
        return
    wanted = 0 if device_of(run) == _CPU else gpus.requested or 0  # `auto` uses any GPUs but needs none
    pool = pool_for(settings, [_LARGE_SHARD] * shards, wanted) or Pool(1, 1, 1 if wanted else 0)
    cluster.check_fits("encode", pool.cpus, pool.gpus, pool.actors)


class Device(TypedDict):
    """The kind of device that makes the embeddings of a run."""

    device: str


def device_of(run: str, stage: str = "encode") -> str | None:
    """Return the kind of device that a stage of the run (URI) was begun on; None if it was not begun."""
    kept = read_or_none(storage.join(run, "work", stage, "device.json"), Device)
    return kept["device"] if kept else None


def gpus_to_make(run: Run, gpus: Gpus, made_by: Mapping[str, object], *tables: Table[object]) -> int:
    """Return how many GPUs make the tables of a stage; 0 means CPUs.

    A run stays on the kind of device that it began on, if it makes the tables by the same as then (JSON). Raises
    DupqError if that was GPUs and now there are none.
    """
    run.discard_stale(made_by, "device.json", *tables)
    on_gpus = device_of(run.uri, storage.name(run.folder)) is None and bool(gpus.now())
    if run.record("device", device_for)(on_gpus)["device"] == _CPU:
        if gpus.requested:
            _log.info(f"--gpus {gpus.requested}: this run's embeddings were begun on CPUs, and are all made there")
        return 0
    count = gpus.now()
    if not count:
        raise DupqError(
            f"{run.uri}: this run's embeddings were begun on GPUs, and there are none for it now; finish it on a "
            "cluster with GPUs, ask an autoscaling one for them with --gpus N, or begin a run in another --output"
        )
    return count


@step(makes=JSON)
def device_for(has_gpus: bool) -> Device:
    """Return the kind of device to begin on."""
    return Device(device=_GPU if has_gpus else _CPU)


class Embedder(NamedTuple):
    """An encoder, and how it encodes. Raises DupqError for a GPU that torch cannot use."""

    encoder: str  # URI
    batch_size: int
    gpu: bool

    def encode(self, texts: TokenIds) -> Encoded:
        """Return the embeddings of texts; a process encodes for one thread at a time."""
        from dupq.encoders.encoding import encode

        with _lock:
            return encode(_encoder(self.encoder, self.gpu).network, texts, self.batch_size)


_lock = threading.Lock()  # of the network of this process


@functools.lru_cache(maxsize=1)
def _encoder(uri: str, gpu: bool) -> SavedEncoder:
    """Return an encoder on the device: it is read once for all partitions of a task."""
    import torch

    torch.set_num_threads(1)
    saved = load(uri)
    saved.network.to(system.usable(system.GPU if gpu else system.CPU))
    return saved


_words = functools.lru_cache(maxsize=1)(load_words)  # without the network; for the tasks that feed a GPU
at_next_step(_encoder.cache_clear)
at_next_step(_words.cache_clear)


@dataclass(frozen=True)
class _Encoding(Deferred[Encoded]):
    """The questions of a partition that have an embedding."""

    keys: np.ndarray  # int64
    new: np.ndarray  # int64: those without one in the earlier run
    texts: TokenIds  # of the new ones
    earlier: list[pa.Table]  # embeddings of the others
    caps: Counts
    embedder: Embedder
    sites: list[str]

    def compute(self) -> Encoded:
        """Return the embeddings of the new texts."""
        return self.embedder.encode(self.texts)

    def finish(self, encoded: Encoded) -> StepResult[pa.Table]:
        """Return the embeddings of all questions: new ones, and those of the earlier run."""
        embeddings = embeddings_table(Embeddings(self.new, *encoded), Sites(self.sites))
        reused = len(self.keys) - len(self.new)
        if reused:
            both = pa.concat_tables([embeddings, *(rows.cast(embeddings.schema) for rows in self.earlier)])
            rows = RowsByKey(both["question_id"].to_numpy()).find(self.keys & MAXIMUM_ID)
            embeddings = both.take(pa.array(rows))
        counts = {"rows_in": len(self.keys), "embeddings as in the earlier run": reused}
        return StepResult(embeddings, counts, caps=self.caps)


@step(TEXTS, makes=EMBEDDED)
def encode_texts(
    texts: pa.Table,
    representatives: pa.Table | None,
    contents: pa.Table | None,
    embedder: Embedder,
    sites: list[str],
    known: EarlierEmbeddings | None,
) -> Deferred[Encoded]:
    """Return the embeddings (tables.embeddings) of the texts of a partition, but for those that others represent.

    `contents` are the hashes of the same questions, to find those that are unchanged since the earlier run.
    """
    if representatives is not None:
        keys = representatives["key"].to_numpy()
        represented = keys[keys != representatives["representative"].to_numpy()]
        texts = texts.filter(pa.array(~are_among(represented, texts["key"].to_numpy())))
    keys = texts["key"].to_numpy()
    earlier, left_out = unchanged_embeddings(known, contents, Sites(sites), keys)
    reused = np.concatenate([np.zeros(0, np.int64), *(rows["question_id"].to_numpy() for rows in earlier)])
    is_new = ~np.isin(keys & MAXIMUM_ID, reused)  # all of one site
    if embedder.gpu:
        vocabulary, settings = _words(embedder.encoder)
    else:
        with _lock:
            saved = _encoder(embedder.encoder, gpu=False)
        vocabulary, settings = saved.vocabulary, saved.settings
    ids, truncated = token_ids(texts.filter(pa.array(is_new)), vocabulary, settings)
    caps = {"texts cut at encoder.maximum_tokens": truncated, LEFT_OUT: left_out}
    return _Encoding(keys, keys[is_new], ids, earlier, caps, embedder, sites)


def unchanged_embeddings(
    known: EarlierEmbeddings | None, contents: pa.Table | None, sites: Sites, keys: np.ndarray
) -> tuple[list[pa.Table], int]:
    """Return the embeddings in the earlier run of unchanged questions among `keys`, which are of one site.

    Also the number of files that may have more of them and were not read.
    """
    if known is None or contents is None or not len(keys):
        return [], 0
    hashes = hashes_in([contents])
    partitions, earlier, left_out = find_contents(known.contents, sites.names[int(keys[0]) >> ID_BITS], hashes.ids)
    same = hashes.ids[earlier.are_same(hashes.ids, hashes.hashes)]
    ids = pa.array(np.intersect1d(same, keys & MAXIMUM_ID))
    tables = map(known.embeddings.read, partitions)
    return [table.filter(pc.is_in(table["question_id"], ids)) for table in tables], left_out


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
