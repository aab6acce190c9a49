"""The encode stage: texts → embeddings, on GPUs if there are any.

A shard is encoded as a whole, and so every bit of its file is the same by each way:

- Ray Data (dupq/job/actors.py) feeds shards to a pool of actors that hold the encoder, where actors are
  asked for and in large runs: its processes take longer to start than a small archive takes to encode;
- a task per shard, on CPUs;
- a process per GPU, whose threads read and write some shards while it encodes one.

A run's embeddings are made on one kind of device only, as CPUs and GPUs round differently: a JSON file beside them says
which, and what else they are made by.
"""

import importlib.metadata
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage, system
from dupq.encoders.bags import Encoded
from dupq.encoders.saved import FITNESS_QUESTIONS, Fitness, read_description, read_settings, vocabulary_of
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.job import cluster
from dupq.job.actors import Pool, run_in_actors
from dupq.job.earlier import (
    LEFT_OUT,
    Earlier,
    earlier_embeddings,
    find_contents,
    find_embeddings,
    hashes_in,
    read_embeddings,
)
from dupq.job.gpus import Gpus, if_faster
from dupq.job.run import Counted, Run
from dupq.job.table import Counts, Each, Table, Whole, skip_or
from dupq.job.tasks import CAP, Report, run_tasks
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.question_tables import embeddings_table, sorted_keys
from dupq.runs.records import DEDUP_VERSIONS, Encoding, RunFiles
from dupq.settings.config import Settings
from dupq.settings.sections import CalibrationSettings, EncodeSettings
from dupq.storage import read_whole
from dupq.system import Written, note, recording, side_by_side
from dupq.tables import KEYS, REPRESENTATIVES, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_among
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder

# texts, encoder → whether the encoder knows texts like these, before anything is made with it.
#
#     keys     the questions that it is measured on
#     texts    their texts
#     fitness  unknown words, and bodies that are found by their titles (dupq/encoders/saved.py)
#
# Memory: 8 bytes a question where they are chosen; a shard of texts.

_log = logging.getLogger(__name__)
# more unknown words than where the encoder was trained; the least share of the bodies that their titles found there
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3


def check_fitness(run: Run, texts: Table, encoder: str, settings: CalibrationSettings) -> Fitness:
    """Record how well the encoder knows this archive.

    Where it knows it far less well than its own: raises DupqError, or warns if so configured.
    """
    keys = Whole(run.map("keys", questions_to_read, Each(texts.only("key")), into=KEYS))
    some = Whole(run.map("texts", texts_of, texts, keys, into=TEXTS))
    here: Fitness = run.record("fitness", fitness_on, some, encoder)
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
    said = f"{encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    if faults and settings.unfit == "stop":
        raise DupqError(
            f"{said}. Train one on this archive, or go on all the same with --set calibration.unfit=continue"
        )
    if faults:
        _log.warning(said)
    return here


def questions_to_read(keys: Iterator[pa.Table]) -> pa.Table:
    """Return the questions that fitness is measured on (KEYS)."""
    return pa.table([chosen(sorted_keys(keys), FITNESS_QUESTIONS)], schema=KEYS)


def texts_of(texts: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of TEXTS whose keys are among `keys` (ascending)."""
    return texts.filter(pa.array(are_among(keys["key"].to_numpy(), texts["key"].to_numpy())))


def fitness_on(texts: pa.Table, encoder: str) -> Counted:
    """Return the fitness of the encoder on some texts."""
    import torch

    from dupq.encoders.saved import fitness, load

    torch.set_num_threads(1)
    found = fitness(load(encoder).reader, texts.sort_by("key").combine_chunks())
    return Counted(dict(found), {"rows_in": len(texts), "rows_out": len(texts)})


_CPU, _GPU = "cpu", "gpu"
# Of a core, by kind of network: measured on an AMD EPYC; the other kinds, and a GPU, are estimates.
_TEXTS_A_SECOND = {"word_bag": 70_000, "cnn": 20_000, "sentence_transformers": 20}
_OTHERS = 10_000
_GPU_TEXTS_A_SECOND, _GPU_SECONDS = 100_000, 5.0  # once its process has begun


def gpus_to_encode(kind: str, texts: int, gpus: Gpus) -> Gpus:
    """Return the GPUs that encode so many texts with this kind of network; with `auto` only where they are faster."""
    on_cpus = texts / (_TEXTS_A_SECOND.get(kind, _OTHERS) * cluster.cpus())
    on_gpus = _GPU_SECONDS + texts / (_GPU_TEXTS_A_SECOND * max(1, cluster.gpus()))
    return if_faster(gpus, "encoded", on_cpus, on_gpus)


def gpus_to_make(place: str, folder: str, gpus: Gpus, made_by: Mapping[str, object]) -> int:
    """Return how many GPUs make what goes into `folder`, 0: CPUs do. The file `place` says which, and `made_by` what.

    A run stays on the kind of device that it was begun on. Raises DupqError if that was GPUs, and there are none.
    """

    def make() -> Counts:
        storage.delete_folder(folder)
        storage.write_json(place, {**made_by, "device": _GPU if gpus.now() else _CPU})
        return {}

    skip_or(place, make)
    if storage.read_json(place)["device"] == _CPU:
        if gpus.wanted:
            _log.info(f"--gpus {gpus.wanted}: this run's embeddings were begun on CPUs, and are all made there")
        return 0
    found = gpus.now()
    if not found:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and there are none for it now; finish it on a cluster "
            "with GPUs, ask an autoscaling one for them with --gpus N, or begin a run in another --output"
        )
    return found


def was_begun_on_cpus(place: str) -> bool:
    """Return whether `place` is there and tells of CPUs."""
    return (read_whole(place, dict[str, object]) or {}).get("device") == _CPU


# The steps of a shard: texts → token ids → embeddings → its file. No question's embedding depends on the others.

_CUT, _TAKEN = f"{CAP}texts cut at encoder.maximum_tokens", "embeddings as in the earlier run"


class Work(NamedTuple):
    """What all shards of a job have in common."""

    encoder: str
    fingerprint: str  # the encoder's
    sites: list[str]
    representatives: str | None  # the file of questions that others represent; None encodes all
    batch_size: int
    gpu: bool
    earlier: Earlier | None = None


class Place(NamedTuple):
    """The files of a shard: its texts, the hashes of what they say, and where its embeddings go."""

    texts: str
    contents: str
    output: str


class Embedder:
    """The encoder in a process: it is read with the first shard, and embeds one at a time, whichever thread asks.

    Raises DupqError for a GPU that torch cannot use.
    """

    def __init__(self, work: Work) -> None:
        """Read nothing yet."""
        self._work, self._network, self._alone = work, cache(self._read), threading.Lock()

    def _read(self) -> "Encoder":
        import torch

        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        return load(self._work.encoder).network.to(system.usable(system.GPU if self._work.gpu else system.CPU))

    def __call__(self, texts: TokenIds) -> Encoded:
        """Return the embeddings of texts."""
        from dupq.encoders.encoding import encode

        with self._alone:
            return encode(self._network(), texts, self._work.batch_size)


def encode_shard(work: Work, place: Place, embedder: Embedder | None = None) -> Counts:
    """Write the embeddings of a shard, unless they are there already.

    A task reads the encoder anew: kept in the process, it would take memory beside the tasks of later stages.
    """
    return skip_or(place.output, lambda: _write_shard(work, place, embedder or Embedder(work)))


def _write_shard(work: Work, place: Place, embedder: Embedder) -> Counts:
    """Write the embeddings of a shard: those that the encoder gives, and those taken from the earlier run."""
    table = storage.read_table(place.texts, TEXTS)
    if work.representatives is not None:
        represented = _represented(work.representatives, storage.version(work.representatives))
        table = table.filter(pa.array(~are_among(represented, table["key"].to_numpy())))
    keys, sites = table["key"].to_numpy(), Sites(work.sites)
    files, taken, left_out = _taken(work, place, keys)
    is_new = ~np.isin(keys, taken)
    texts, cut = token_ids(table.filter(pa.array(is_new)), *_vocabulary(work.encoder, work.fingerprint))
    found = embeddings_table(Embeddings(keys[is_new], *embedder(texts)), sites)
    if work.earlier is not None and len(taken):
        then = read_embeddings(work.earlier, files, taken & MAXIMUM_ID)
        both = pa.concat_tables([found, then.cast(found.schema)])
        rows = np.argsort(sites.pack_columns(both["site"], both["question_id"], "embeddings"), kind="stable")
        found = both.take(pa.array(rows[np.argsort(np.argsort(keys, kind="stable"), kind="stable")]))
    storage.write_table(place.output, found, found.schema)
    return {"rows_in": len(table), _CUT: cut, _TAKEN: len(taken), LEFT_OUT: left_out, "rows_out": len(found)}


def _taken(work: Work, place: Place, keys: np.ndarray) -> tuple[list[str], np.ndarray, int]:
    """Return the files of the earlier run with embeddings of questions `keys`, of one site, that say what they said.

    Also the keys of those questions, and how many files were left out that may hold some too.
    """
    if work.earlier is None or not len(keys):
        return [], np.zeros(0, np.int64), 0
    site, mine = Sites(work.sites).names[int(keys[0]) >> ID_BITS], hashes_in([place.contents])
    files, then, left_out = find_contents(work.earlier, site, mine.ids)
    same = mine.ids[then.are_same(mine.ids, mine.hashes)]
    ids = find_embeddings(work.earlier, files, np.intersect1d(same, keys & MAXIMUM_ID))
    return files, ids | (keys[0] & ~np.int64(MAXIMUM_ID)), left_out


@lru_cache(maxsize=1)
def _vocabulary(encoder: str, fingerprint: str) -> tuple[Vocabulary, Settings]:
    path, settings = storage.join(encoder, "vocabulary.txt"), read_settings(encoder)
    return vocabulary_of(storage.read_bytes(path), settings, path), settings


@lru_cache(maxsize=1)
def _represented(representatives: str, version: str) -> np.ndarray:
    """Return the keys, ascending, that need no embedding, because another question represents them."""
    table = storage.read_table(representatives, REPRESENTATIVES)
    keys = table["key"].to_numpy()
    return keys[keys != table["representative"].to_numpy()]


_AT_ONCE = 4  # shards that a process with a GPU reads, encodes and writes


def encode_shards(work: Work, places: Sequence[Place]) -> Counts:
    """Encode shards by one network: threads read and write some while one is encoded.

    Memory of the host: four shards, and the encoder.
    """
    embedder = Embedder(work)

    def encode(place: Place) -> tuple[Counts, dict[str, Written]]:
        with recording() as written:  # by this thread
            return encode_shard(work, place, embedder), written

    total: Counter[str] = Counter()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for counts, written in pool.map(encode, places):
            note(written)
            total.update(counts)
    return dict(total)


_SHARDS_AN_ACTOR = 16  # unless actors are asked for: then what starting them costs is little beside the work


def pool_for(settings: EncodeSettings, shards: int, gpus: int, cpus: int) -> Pool | None:
    """Return the actors that encode so many shards on GPUs, or on CPUs if there are none; None: tasks do.

    One each, or as many as the settings ask for.
    """
    actors = settings.actors or gpus or cpus
    if shards < (actors + 1 if settings.actors else actors * _SHARDS_AN_ACTOR):
        return None
    return Pool(actors, 0.5 if gpus and cpus <= actors else 1.0, 1 if gpus else 0)


def check_room_to_encode(settings: EncodeSettings, shards: int, made_as: str, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for what encoding will ask for.

    `made_as` is the file of the run that says on which kind of device it was begun, if it was.
    """
    if cluster.may_grow():
        return
    wanted = 0 if was_begun_on_cpus(made_as) else gpus.wanted or 0  # with `auto` what is there
    pool = pool_for(settings, shards, wanted, cluster.cpus()) or Pool(1, 1, 1 if wanted else 0)
    cluster.check_fits("encode", pool.cpus, pool.gpus, pool.actors)


def encode_texts(
    job: Encoding,
    sites: Sites,
    settings: EncodeSettings,
    gpus: Gpus,
    since: RunFiles | None = None,
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
    made_by = {"encoder": fingerprint, "algorithm": DEDUP_VERSIONS["encode"]}
    made_by |= {"torch": importlib.metadata.version("torch")}
    if not storage.exists(job.made_as):
        questions = sum(side_by_side(lambda place: storage.read_counts(place.texts)["rows_out"], places))
        gpus = gpus_to_encode(description["settings"]["encoder"]["kind"], questions, gpus)
    taken = gpus_to_make(job.made_as, job.output, gpus, made_by)
    earlier = earlier_embeddings(since, storage.read_json(job.made_as), texts)
    work = Work(job.encoder, fingerprint, sites.names, job.representatives, settings.batch_size, bool(taken), earlier)
    pool = pool_for(settings, len(places), taken, cluster.cpus())
    calls = [(work, place) for place in places]
    if pool is not None:
        outputs = [place.output for place in places]
        report = run_in_actors("encode", partial(Embedder, work), encode_shard, calls, outputs, pool)
        if report is not None:
            return report
    if not taken:
        return run_tasks("encode", encode_shard, calls, names=[place.texts for place in places])
    shares = [places[gpu::taken] for gpu in range(min(taken, len(places)))]
    names = [f"{share[0].texts} and {len(share) - 1} more" for share in shares]
    return run_tasks("encode", encode_shards, [(work, share) for share in shares], gpus=taken, names=names)
