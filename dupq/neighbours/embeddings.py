"""Embeddings, lists of neighbours, and the measures that score two embeddings; embeddings read from tables.

Importing this loads neither torch nor compiled code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.errors import DupqError
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from scipy import sparse

COSINE = "cosine"
_EXPONENT = 0x7C00  # the bits of a float16's exponent: all ones if it is infinite or NaN


@dataclass(frozen=True)
class Measure:
    """The score of two embeddings a and b; higher is more alike.

    It is dense * a b / (|a| |b|) + lexical * cosine of the bags of words; a cosine is 0 if one side is zero (Bogdanova
    et al. 2015, section 4.2; the weights are beta_2 and beta_1 of dos Santos et al. 2015). Other kinds are the papers',
    which bring the search by them (papers/dupq_papers/distances.py).
    """

    kind: str = COSINE
    dense: float = 1.0
    lexical: float = 0.0  # 0: the encoder has no bag of words

    @property
    def highest(self) -> float:
        """The highest score that two embeddings can have."""
        return abs(self.dense) + abs(self.lexical)


class Embeddings(NamedTuple):
    """Questions (keys, int64), their embeddings, and their bags of words if the encoder has a lexical part."""

    keys: np.ndarray
    vectors: np.ndarray  # float16, (n, d)
    words: "sparse.csr_array | None" = None  # weights by the ids of words: float32 that are float16 numbers

    def take(self, rows: np.ndarray | slice) -> "Embeddings":
        """Return some of the questions, by row number or by a mask."""
        return Embeddings(self.keys[rows], self.vectors[rows], None if self.words is None else self.words[rows])

    @property
    def is_empty(self) -> np.ndarray:
        """A mask of the questions with a zero vector and no word: their text is empty."""
        zero: np.ndarray = np.logical_not(self.vectors.any(axis=1))
        return zero if self.words is None else zero & (np.diff(self.words.indptr) == 0)


class Neighbours(NamedTuple):
    """Directed pairs: the neighbour at `rank` (1 = nearest) of each query, sorted by query and rank."""

    queries: np.ndarray  # int64
    neighbours: np.ndarray  # int64
    similarities: np.ndarray  # float32, the score by the encoder's measure
    ranks: np.ndarray  # int32


def blocks(embeddings: Embeddings, rows: int) -> Iterator[Embeddings]:
    """Yield `embeddings` in blocks of at most `rows` questions; one empty block if there are none."""
    for start in range(0, max(1, len(embeddings.keys)), rows):
        yield embeddings.take(slice(start, start + rows))


def gathered(blocks: list[Embeddings]) -> Embeddings:
    """Return the questions of all blocks (at least one), sorted by key."""
    from scipy import sparse

    bags = [block.words for block in blocks if block.words is not None]
    columns = max((bag.shape[1] for bag in bags), default=0)
    widened = [sparse.csr_array((bag.data, bag.indices, bag.indptr), shape=(bag.shape[0], columns)) for bag in bags]
    every = Embeddings(
        np.concatenate([block.keys for block in blocks]),
        np.concatenate([block.vectors for block in blocks]),
        sparse.vstack(widened, format="csr") if widened else None,
    )
    return every.take(np.argsort(every.keys, kind="stable"))


def vectors_in(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of lists of one length as float16, a row each."""
    return np.asarray(pc.list_flatten(column).to_numpy().astype(np.float16).reshape(-1, column.type.list_size))


def embeddings_of(table: pa.Table, sites: Sites, uri: str) -> Embeddings:
    """Return the embeddings in a table. Raises DupqError naming `uri` and the question of one that is not finite."""
    keys = sites.pack_columns(table["site"], table["question_id"], uri)
    vectors = vectors_in(table["embedding"])
    wrong = np.flatnonzero((vectors.view(np.uint16) & _EXPONENT).max(axis=1, initial=0) == _EXPONENT)
    if len(wrong):
        raise DupqError(f"{uri}: the embedding of question {sites.label(int(keys[wrong[0]]))} is not finite")
    if "words" not in table.column_names:
        return Embeddings(keys, vectors)
    from scipy import sparse

    lengths = pc.list_value_length(table["words"]).to_numpy()
    words = pc.list_flatten(table["words"]).to_numpy()
    weights = pc.list_flatten(table["word_weights"]).to_numpy().astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    shape = len(table), int(words.max(initial=0)) + 1
    return Embeddings(keys, vectors, sparse.csr_array((weights, words, offsets), shape=shape))


def keyed_embeddings(vectors: pa.Table) -> Embeddings:
    """Return a reranker's vectors (keyed_vectors) as embeddings, by ascending key."""
    table = vectors.sort_by("key")
    return Embeddings(table["key"].to_numpy(), vectors_in(table["vector"]))


def keys_in(table: pa.Table, sites: Sequence[str]) -> np.ndarray:
    """Return the keys in a table of embeddings."""
    return Sites([*sites]).pack_columns(table["site"], table["question_id"], "embeddings")
