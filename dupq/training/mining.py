"""Hard negatives: the encoder's own nearest neighbours that are not known duplicates (Xiong et al. 2021, ANCE).

Some of those are duplicates that nobody linked. Where teachers have read the questions, `training.negative_margin`
drops what they find nearly as near as the positive (Moreira et al. 2024, NV-Retriever, TopK-MarginPos).
"""

from typing import NamedTuple

import numpy as np

from dupq.encoders.encoding import encode
from dupq.encoders.protocol import Encoder
from dupq.links.split import Split
from dupq.near_duplicates.shingles import Shingles, jaccard, sort_sets
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.tiles import top_k
from dupq.settings.config import Settings
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import Sequences
from dupq.training.pairs import DistillationTargets, cosines, random_negatives

_SPARE = 10  # neighbours searched beyond those wanted, as some are duplicates
_TARGETS = 16_384  # encoded and searched at a time
_TEXTS = 16_384  # that are cut into shingles at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Mined(NamedTuple):
    """The hard negatives of some pairs."""

    negatives: np.ndarray  # (pairs, `training.mined_negatives`), int64 keys
    dropped: int  # that would have been among them, but for `training.negative_margin`


class _Candidates(NamedTuple):
    """Questions that may be negatives of pairs, by pair and then by rank."""

    pairs: np.ndarray  # (n,), int64 row numbers, ascending
    questions: np.ndarray  # (n,), int64 keys

    @property
    def places(self) -> np.ndarray:
        """How many of its pair come before each."""
        return np.arange(len(self.pairs)) - np.searchsorted(self.pairs, self.pairs)


def mine(
    network: Encoder,
    sequences: Sequences,
    pairs: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: Settings,
    epoch: int,
    taught: DistillationTargets | None = None,
) -> Mined:
    """The nearest questions of `pool` to the left side of each pair.

    Known duplicates are left out, and near duplicates by the lexical filter's measure, linked or not; of questions that
    teachers have read, also what `training.negative_margin` says. Where too few are left, random questions take their
    index.
    """
    wanted = settings.training.mined_negatives
    anchors, rows = np.unique(pairs[:, 0], return_inverse=True)
    found = _neighbours(network, sequences, anchors, pool, 2 * wanted + _SPARE, settings)
    is_own = split.set_of(found.queries) == split.set_of(found.neighbours)
    found = Neighbours(*(column[~is_own] for column in found))
    is_near = _near_duplicates(sequences, found, settings)
    found = Neighbours(*(column[~is_near] for column in found))
    random = random_negatives(np.repeat(anchors, wanted), pool, split, [settings.training.seed, epoch, 1])
    candidates = _of_pairs(anchors, found, rows)
    is_as_near = _as_near(candidates, pairs, taught, settings.training.negative_margin)
    dropped = int((is_as_near & (candidates.places < wanted)).sum())
    kept = _Candidates(*(column[~is_as_near] for column in candidates))
    return Mined(_table(kept, random.reshape(-1, wanted)[rows]), dropped)


def _of_pairs(anchors: np.ndarray, found: Neighbours, rows: np.ndarray) -> _Candidates:
    """The neighbours of each pair's anchor, `anchors[rows]`; those of `found` are sorted by query and rank."""
    starts = np.searchsorted(found.queries, anchors)[rows]
    counts = np.searchsorted(found.queries, anchors, side="right")[rows] - starts
    pairs = np.repeat(np.arange(len(rows)), counts)
    places = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _Candidates(pairs, found.neighbours[starts[pairs] + places])


def _as_near(
    candidates: _Candidates, pairs: np.ndarray, taught: DistillationTargets | None, margin: float
) -> np.ndarray:
    """Which candidates the teachers find nearer to the anchor than `margin` below the positive; none without them."""
    if taught is None or not margin:
        return np.zeros(len(candidates.pairs), bool)
    anchors, positives = pairs[candidates.pairs].T
    nearest: np.ndarray = cosines(taught, anchors, positives) - np.float32(margin)
    return cosines(taught, anchors, candidates.questions) > nearest


def _neighbours(
    network: Encoder, sequences: Sequences, anchors: np.ndarray, pool: np.ndarray, k: int, settings: Settings
) -> Neighbours:
    def encoded(keys: np.ndarray) -> Embeddings:
        return Embeddings(keys, *encode(network, [sequences[key] for key in keys.tolist()], settings.encode.batch_size))

    targets = (encoded(pool[first : first + _TARGETS]) for first in range(0, len(pool), _TARGETS))
    return top_k(encoded(anchors), targets, k, network.measure, str(network.words.weight.device))


def _near_duplicates(sequences: Sequences, found: Neighbours, settings: Settings) -> np.ndarray:
    keys = np.union1d(found.queries, found.neighbours)
    sets = id_shingles([sequences[int(key)] for key in keys], settings.near_duplicates.shingle_size)
    left, right = (np.searchsorted(keys, side) for side in (found.queries, found.neighbours))
    return jaccard(sets, left, right) >= settings.near_duplicates.threshold


def id_shingles(texts: list[np.ndarray], size: int) -> Shingles:
    """The sets of runs of `size` words of texts that are token ids; a shorter text is one run, an empty one none.

    Memory: 8 bytes a word; 40 of the words of 16,384 texts at a time.
    """
    pieces = [_id_shingles(texts[first : first + _TEXTS], size) for first in range(0, max(1, len(texts)), _TEXTS)]
    ends = np.cumsum([0, *(len(piece.hashes) for piece in pieces)])
    offsets = [piece.offsets[1:] + end for piece, end in zip(pieces, ends, strict=False)]
    return Shingles(np.concatenate([piece.hashes for piece in pieces]), np.concatenate([[0], *offsets]))


def _id_shingles(texts: list[np.ndarray], size: int) -> Shingles:
    flat = TokenIds.of(texts)
    behind = flat.offsets[1:].repeat(flat.lengths) - np.arange(len(flat.ids))  # the words from each one on
    counts = np.where(flat.lengths, np.maximum(1, flat.lengths - size + 1), 0)
    is_begin = behind > (flat.lengths - counts).repeat(flat.lengths)
    hashes = _run_hashes(flat.ids.astype(np.uint64), behind, size)[is_begin]
    offsets = np.zeros(len(flat) + 1, np.int64)
    sort_sets(np.concatenate([[0], np.cumsum(counts)]), hashes, offsets)
    return Shingles(hashes[: offsets[-1]], offsets)


def _run_hashes(ids: np.ndarray, behind: np.ndarray, size: int) -> np.ndarray:
    """A hash of the `size` words from each word on, or of all `behind` it in its text if those are fewer."""
    hashes = np.zeros(len(ids), np.uint64)
    for step in range(size):
        begins = np.flatnonzero(behind > step)
        mixed = (hashes[begins] + ids[begins + step] + np.uint64(1)) * _ODD
        hashes[begins] = mixed ^ (mixed >> np.uint64(29))
    return hashes


def _table(candidates: _Candidates, table: np.ndarray) -> np.ndarray:
    """`table`, a row a pair, with the nearest candidates of each pair in front."""
    places = candidates.places
    is_in = places < table.shape[1]
    table[candidates.pairs[is_in], places[is_in]] = candidates.questions[is_in]
    return table
