"""The three steps of a shard, texts → token ids → embeddings → its file, whichever processes take them.

The first and the last need no torch. What is encoded together is one shard at most, and no question's embedding depends
on the others.
"""

import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq import storage, system
from dupq.encoders.saved import read_vocabulary
from dupq.execution.task_files import Counts, skip_or
from dupq.execution.tasks import CAP, Outcome
from dupq.job.run_inputs import LEFT_OUT, Earlier, find_contents, find_embeddings, hashes_in, read_embeddings
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.question_tables import embeddings_table
from dupq.settings.config import Settings
from dupq.settings.sections import EncodeSettings
from dupq.system import Written
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_among
from dupq.text.questions import Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

_SHARDS_AN_ACTOR = 16  # unless actors are asked for: then what starting them costs is little beside the work


class Crew(NamedTuple):
    """The actors that encode, and the resources of each of them and, with GPUs, of each task beside them."""

    actors: int
    cpus: float
    gpus: int  # of an actor
    least_shards: int  # from so many on the pipeline is worth its start

    def is_for(self, shards: int) -> bool:
        """Whether so many shards are encoded by the pipeline, rather than by tasks."""
        return shards >= self.least_shards


def crew_for(settings: EncodeSettings, gpus: int, cpus: int) -> Crew:
    """The crew on so many GPUs, or if there are none on so many CPUs: an actor a GPU or a CPU, or as the settings ask.

    Where there are no more CPUs than GPUs, an actor holds a half of a CPU on paper: the other half is for the tasks,
    which the actors would otherwise wait for without end.
    """
    actors = settings.actors or gpus or cpus
    least_shards = actors + 1 if settings.actors else actors * _SHARDS_AN_ACTOR
    return Crew(actors, 0.5 if gpus and cpus <= actors else 1.0, 1 if gpus else 0, least_shards)


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


class Tokens(NamedTuple):
    """A shard's questions, and the token ids of those that are to be encoded."""

    keys: np.ndarray  # int64, (n,): all, in the order of the file
    taken: np.ndarray  # int64: the keys whose embeddings are taken from the earlier run
    files: list[str]  # names of the earlier files that have them
    texts: TokenIds  # of the others, in their order
    counts: Counts


def encode_shard(work: Work, place: Place, saved: "Callable[[], SavedEncoder] | None" = None) -> Counts:
    """All three steps in one process, unless the output is there already. `saved` gives the encoder; None: read it."""
    return skip_or(place.output, lambda: _encode(work, place, saved or partial(network_of, work)))


def _encode(work: Work, place: Place, saved: "Callable[[], SavedEncoder]") -> Counts:
    tokens = tokenise(work, place, read_texts(work, place))
    return write_embeddings(work, place, tokens, embed(saved(), work, tokens))


def read_texts(work: Work, place: Place) -> pa.Table:
    """The texts of the shard's questions that get an embedding."""
    table = storage.read_table(place.texts, TEXTS)
    return table.filter(pa.array(~are_among(_represented(work.representatives), table["key"].to_numpy())))


def tokenise(work: Work, place: Place, table: pa.Table) -> Tokens:
    """What the encoder reads of the texts in `table` that did not say the same in the earlier run."""
    keys = table["key"].to_numpy()
    files, taken, left_out = _taken(work, place, keys)
    texts, cut = token_ids(table.filter(pa.array(~np.isin(keys, taken))), *_vocabulary(work.encoder, work.fingerprint))
    counts = {"rows_in": len(table), _CUT: cut, _TAKEN: len(taken), LEFT_OUT: left_out}
    return Tokens(keys, taken, files, texts, counts)


def embed(saved: "SavedEncoder", work: Work, tokens: Tokens) -> Embeddings:
    """The embeddings of the texts of `tokens`."""
    from dupq.encoders.encoding import encode

    keys = tokens.keys[~np.isin(tokens.keys, tokens.taken)]
    return Embeddings(keys, *encode(saved.network, tokens.texts, work.batch_size))


def write_embeddings(work: Work, place: Place, tokens: Tokens, encoded: Embeddings) -> Counts:
    """Write the shard's file: what was encoded, and what is taken from the earlier run, in the order of its texts."""
    sites = Sites(work.sites)
    found = embeddings_table(encoded, sites)
    if work.earlier is not None and len(tokens.taken):
        then = read_embeddings(work.earlier, tokens.files, tokens.taken & MAXIMUM_ID)
        both = pa.concat_tables([found, then.cast(found.schema)])
        places = np.argsort(_keys_of(both, sites), kind="stable")
        found = both.take(pa.array(places[np.argsort(np.argsort(tokens.keys, kind="stable"), kind="stable")]))
    storage.write_table(place.output, found, found.schema)
    return {**tokens.counts, "rows_out": len(found)}


def network_of(work: Work) -> "SavedEncoder":
    """The encoder, on the device that it is to work on. Raises DupqError for a GPU that torch cannot use.

    Tasks read it anew for each shard: kept in the process, it would take memory beside the tasks of later stages.
    """
    import torch

    from dupq.encoders.saved import load

    torch.set_num_threads(1)
    saved = load(work.encoder)
    saved.network.to(system.usable(system.GPU if work.gpu else system.CPU))
    return saved


def _keys_of(table: pa.Table, sites: Sites) -> np.ndarray:
    return sites.pack_columns(table["site"], table["question_id"], "embeddings")


def _taken(work: Work, place: Place, keys: np.ndarray) -> tuple[list[str], np.ndarray, int]:
    """Which files of the earlier run have embeddings of questions `keys`, of one site, that say what they said then.

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
    return read_vocabulary(encoder)


def _represented(representatives: str | None) -> np.ndarray:
    """The keys, ascending, that need no embedding, because another question represents them."""
    if representatives is None:
        return np.zeros(0, np.int64)
    return _represented_in(representatives, storage.version(representatives))


@lru_cache(maxsize=1)
def _represented_in(representatives: str, version: str) -> np.ndarray:
    table = storage.read_table(representatives, REPRESENTATIVES)
    keys = table["key"].to_numpy()
    return keys[keys != table["representative"].to_numpy()]


# What steps of the pipeline hand on: a row of Arrow a shard, so that a shard without questions is a row too.
#
# Ray Data drops blocks without rows, and cuts longer ones as it likes. Each array is one list in the row. Reading
# copies it, so that the row's memory in Ray's store is free again, and kernels compiled for arrays that may be written
# to fit.

_TOLD = "told"


def row_of_place(place: Place) -> dict[str, str]:
    """A shard that is to be encoded."""
    return {_TOLD: json.dumps({"place": place})}


def place_in(row: pa.Table) -> Place:
    """What `row_of_place` was given."""
    return Place(*_told(row)["place"])


def row_of_tokens(place: Place, tokens: Tokens, peak: float) -> pa.Table:
    """A shard and its token ids."""
    told = {"place": place, "files": tokens.files, "counts": tokens.counts, "peak": peak}
    arrays = {"keys": tokens.keys, "taken": tokens.taken, "ids": tokens.texts.ids, "offsets": tokens.texts.offsets}
    return _row(told, arrays)


def tokens_in(row: pa.Table) -> tuple[Place, Tokens, float]:
    """What `row_of_tokens` was given."""
    told = _told(row)
    texts = TokenIds(_array(row, "ids"), _array(row, "offsets"))
    tokens = Tokens(_array(row, "keys"), _array(row, "taken"), told["files"], texts, told["counts"])
    return Place(*told["place"]), tokens, told["peak"]


def row_of_embeddings(place: Place, tokens: Tokens, encoded: Embeddings, peak: float) -> pa.Table:
    """A shard and its embeddings; of the tokens all but the ids."""
    told = {"place": place, "files": tokens.files, "counts": tokens.counts, "peak": peak}
    told |= {"dimensions": encoded.vectors.shape[1], "is_lexical": encoded.words is not None}
    arrays = {"keys": tokens.keys, "taken": tokens.taken, "encoded": encoded.keys, "vectors": encoded.vectors.ravel()}
    if encoded.words is not None:
        bags = encoded.words
        arrays |= {"begins": bags.indptr, "words": bags.indices.astype(np.int32)}
        arrays["weights"] = bags.data.astype(np.float16)  # which they are
    return _row(told, arrays)


def embeddings_in(row: pa.Table) -> tuple[Place, Tokens, Embeddings, float]:
    """What `row_of_embeddings` was given."""
    told = _told(row)
    none = TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))
    tokens = Tokens(_array(row, "keys"), _array(row, "taken"), told["files"], none, told["counts"])
    vectors, bags = _array(row, "vectors").reshape(-1, told["dimensions"]), None
    if told["is_lexical"]:
        words, weights = _array(row, "words"), _array(row, "weights").astype(np.float32)
        shape = (len(vectors), int(words.max(initial=0)) + 1)
        bags = sparse.csr_array((weights, words, _array(row, "begins")), shape=shape)
    return Place(*told["place"]), tokens, Embeddings(_array(row, "encoded"), vectors, bags), told["peak"]


def row_of_outcome(outcome: Outcome) -> pa.Table:
    """What a finished shard counted, its memory and its files."""
    return _row({"outcome": outcome}, {})


def outcome_in(row: pa.Table) -> Outcome:
    """What `row_of_outcome` was given."""
    counts, peak, files = _told(row)["outcome"]
    return counts, peak, {uri: Written(*written) for uri, written in files.items()}


def _row(told: dict[str, Any], arrays: dict[str, np.ndarray]) -> pa.Table:
    columns = {_TOLD: pa.array([json.dumps(told)])}
    for name, values in arrays.items():
        columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))
    return pa.table(columns)


def _told(row: pa.Table) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(row[_TOLD][0].as_py())
    return told


def _array(row: pa.Table, name: str) -> np.ndarray:
    return np.array(row[name].chunk(0).flatten().to_numpy(zero_copy_only=False))
