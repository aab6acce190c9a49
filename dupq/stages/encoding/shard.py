"""The three steps of a shard, texts → token ids → embeddings → its file, whichever processes take them.

The first and the last need no torch. What is encoded together is one shard at most, and no question's embedding depends
on the others.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import devices, storage
from dupq.encoders.vocabulary_files import read_vocabulary
from dupq.execution.tasks import CAP
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.embeddings import embeddings_table
from dupq.settings.config import Settings
from dupq.stages.earlier import LEFT_OUT, Earlier, find_contents, find_embeddings, hashes_in, read_embeddings
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_among
from dupq.text.questions import token_ids
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

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
    from dupq.encoders.encode import encode

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
    saved.network.to(devices.usable(devices.GPU if work.gpu else devices.CPU))
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
