"""Weighted bags of words on arrays: dupq's own encoder without torch, for encoding only.

`WordBag` (word_bag.py) is the same encoder as a network that can be trained; its docstring has the equations.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.neighbours.embeddings import Measure
from dupq.text.questions import FIRST_WORD
from dupq.text.token_arrays import TokenIds

KIND = "word_bag"
LEAST_RARITY = 0.1  # of a word in nearly every question: a_w is learned as a logarithm, so it cannot be 0
FIRST_POWER = 0.5
USUAL_LEXICAL_WEIGHT = 0.8  # without development questions to choose it by
SHORTEST = 1e-12  # least length that vectors are divided by
WORDS_AT_ONCE = 1 << 19  # travel's questions: 10,000 distinct ones, 37 MB of products at 300 units and a window of 3
_TEXTS_AT_ONCE = 4_096


class Encoded(NamedTuple):
    """Embeddings of n texts; see dupq/neighbours/embeddings.py."""

    vectors: np.ndarray  # float16, (n, D)
    words: sparse.csr_array | None  # float32 values rounded to float16, (n, ids); None without a lexical part


@dataclass(frozen=True)
class Bag:
    """The weights of a WordBag."""

    vectors: np.ndarray  # v_w (float32, (ids, D))
    log_weights: np.ndarray  # log a_w (float32, (ids,))
    rarities: np.ndarray  # r_w (float32, (ids,))
    power: float  # p
    lexical: float  # beta
    trainable = False  # this form of the encoder has no gradients

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> "Bag":
        """Return the bag with the saved weights of a WordBag, by name."""
        log_weights, power, lexical = weights["log_weights.weight"][:, 0], weights["power"], weights["lexical"]
        return cls(weights["words.weight"], log_weights, weights["rarities"], float(power), float(lexical))

    @property
    def dimensions(self) -> int:
        """The length of an embedding."""
        return int(self.vectors.shape[1])

    @property
    def measure(self) -> Measure:
        """How two embeddings are scored."""
        return Measure("cosine", 1.0, self.lexical)

    def encode(self, texts: TokenIds) -> Encoded:
        """Return the network's embeddings, up to rounding. The row of an empty text is zero."""
        vectors = np.zeros((len(texts), self.dimensions), np.float16)
        columns = int(texts.ids.max(initial=0)) + 1
        bags = [sparse.csr_array((0, columns), dtype=np.float32)]
        for rows in batch_slices(texts.offsets, WORDS_AT_ONCE):
            words, counts = flat_bags(texts.rows(rows))
            dampened = counts ** np.float32(self.power)
            weights = np.exp(self.log_weights[words.ids]) * dampened
            sums = sparse.csr_array((weights, words.ids, words.offsets), (len(words), len(self.vectors))) @ self.vectors
            lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(SHORTEST))
            vectors[rows] = sums / lengths
            bags.append(unit_bags(words, self.rarities[words.ids] * dampened, columns))
        return Encoded(vectors, sparse.vstack(bags, format="csr"))


def unit_bags(words: TokenIds, weights: np.ndarray, columns: int) -> sparse.csr_array:
    """Return bags of distinct ascending words, their weights (float32) scaled to length 1 and rounded to float16."""
    shape = (len(words), columns)
    squares = sparse.csr_array((weights.astype(np.float64) ** 2, words.ids, words.offsets), shape)
    lengths = np.maximum(np.sqrt(squares.sum(axis=1)), SHORTEST)
    rounded = (weights / np.repeat(lengths, words.lengths)).astype(np.float16).astype(np.float32)
    bags = sparse.csr_array((rounded, words.ids, words.offsets), shape)
    bags.eliminate_zeros()
    return bags


def batch_slices(offsets: np.ndarray, size: int) -> Iterator[slice]:
    """Yield slices of successive texts with at most `size` words together, or of one longer text."""
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + size, side="right")) - 1)
        yield slice(start, stop)
        start = stop


def flat_bags(texts: TokenIds) -> tuple[TokenIds, np.ndarray]:
    """Return the distinct known words of each text, ascending, and their counts in it (float32, (T,))."""
    is_known = (texts.ids >= FIRST_WORD).astype(np.float32)
    shape = (len(texts), int(texts.ids.max(initial=0)) + 1)
    bags = sparse.csr_array((is_known, texts.ids, texts.offsets), shape, copy=True)
    bags.sum_duplicates()
    bags.eliminate_zeros()
    return TokenIds(bags.indices.astype(np.int32), bags.indptr.astype(np.int64)), bags.data


def inverse_document_frequencies(texts: Iterable[np.ndarray], ids: int) -> np.ndarray:
    """Return log(|Q| / |q in Q: w_i in q|) (float32, shape (ids,)), 0 for padding and for unknown words."""
    questions, holding = 0, np.zeros(ids, np.int64)
    for batch in in_batches(texts):
        holding += np.bincount(flat_bags(TokenIds.of(batch))[0].ids, minlength=ids)
        questions += len(batch)
    frequencies = np.log(max(1, questions) / np.maximum(1, holding))
    frequencies[:FIRST_WORD] = 0.0
    return frequencies.astype(np.float32)


def in_batches(texts: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield `texts` in lists of a few thousand."""
    remaining = iter(texts)
    while batch := list(islice(remaining, _TEXTS_AT_ONCE)):
        yield batch
