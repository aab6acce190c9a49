"""Hard negatives: the encoder's own nearest neighbours that are not known duplicates (Xiong et al. 2021, ANCE)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.encoders.encoding import encode
from dupq.encoders.protocol import Encoder
from dupq.links import Split
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.tiles import top_k
from dupq.settings.config import Settings
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import Sequences
from dupq.training.pairs import draw_negatives

_SPARE = 10  # neighbours searched beyond those wanted, as some are duplicates
_TARGETS = 16_384  # encoded and searched at a time


def mine(
    network: Encoder,
    sequences: Sequences,
    pairs: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: Settings,
    epoch: int,
) -> np.ndarray:
    """Return the nearest questions of `pool` to the left side of each pair: int64 keys, shape (pairs, mined_negatives).

    Known duplicates are left out, and near duplicates by the lexical filter's measure, linked or not. Where too few are
    left, random questions take their index.
    """
    wanted = settings.training.mined_negatives
    anchors, rows = np.unique(pairs[:, 0], return_inverse=True)
    found = _neighbours(network, sequences, anchors, pool, 2 * wanted + _SPARE, settings)
    is_own = split.set_of(found.queries) == split.set_of(found.neighbours)
    found = Neighbours(*(column[~is_own] for column in found))
    is_near = _near_duplicates(sequences, found, settings)
    queries, neighbours = found.queries[~is_near], found.neighbours[~is_near]  # by query and rank
    generator = np.random.default_rng([settings.training.seed, epoch, 1])
    negatives = draw_negatives(np.repeat(anchors, wanted), pool, split, generator).reshape(-1, wanted)
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
    is_in = ranks < wanted
    negatives[np.searchsorted(anchors, queries[is_in]), ranks[is_in]] = neighbours[is_in]
    return negatives[rows]


def _neighbours(
    network: Encoder, sequences: Sequences, anchors: np.ndarray, pool: np.ndarray, k: int, settings: Settings
) -> Neighbours:
    def encoded(keys: np.ndarray) -> Embeddings:
        return Embeddings(keys, *encode(network, [sequences[key] for key in keys.tolist()], settings.encode.batch_size))

    targets = (encoded(pool[first : first + _TARGETS]) for first in range(0, len(pool), _TARGETS))
    return top_k(encoded(anchors), targets, k, network.measure, str(network.words.weight.device))


def _near_duplicates(sequences: Sequences, found: Neighbours, settings: Settings) -> np.ndarray:
    keys = np.union1d(found.queries, found.neighbours)
    ids = TokenIds.of([sequences[int(key)] for key in keys])
    words = pa.LargeListArray.from_arrays(ids.offsets, pa.array(ids.ids).cast(pa.string()))
    texts = pc.binary_join(words, " ").cast(pa.string())
    left, right = (np.searchsorted(keys, side) for side in (found.queries, found.neighbours))
    near = settings.near_duplicates
    return jaccard(shingle_sets(texts, near.shingle_size), left, right) >= near.threshold
