"""Weighted bags of words on arrays: dupq's own encoder where it only encodes, without torch.

`WordBag` (word_bag.py) is the same encoder as a network, which can be trained; the equations are there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.errors import DupqError
from dupq.kernel_cache import numba
from dupq.neighbours.embeddings import Measure
from dupq.text.questions import FIRST_WORD
from dupq.text.token_arrays import TokenIds

KIND = "word_bag"
LEAST_RARITY = 0.1  # of a word in nearly every question: its logarithm is what is learned
FIRST_POWER = 0.5
USUAL_LEXICAL_WEIGHT = 0.8  # where there is nothing to choose it by
SHORTEST = 1e-12  # length of a vector that is scaled to 1
WORDS_AT_ONCE = 1 << 19  # travel's questions: 10,000 distinct ones, 37 MB of products at 300 units and a window of 3
_TEXTS_AT_ONCE = 4_096


class Encoded(NamedTuple):
    """Embeddings of n texts; see dupq/neighbours/embeddings.py."""

    vectors: np.ndarray  # float16, (n, D)
    words: sparse.csr_array | None  # float32 that are float16 numbers, (n, ids); None without a lexical part


@dataclass(frozen=True)
class Bag:
    """The weights of a WordBag."""

    vectors: np.ndarray  # v_w (float32, (ids, D))
    log_weights: np.ndarray  # log a_w (float32, (ids,))
    rarities: np.ndarray  # r_w (float32, (ids,))
    power: float  # p
    lexical: float  # beta

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray], place: str) -> "Bag":
        """From saved weights by name. Raises DupqError naming `place` if they are not those of a WordBag."""
        shapes = {name: value.shape for name, value in weights.items() if value.dtype == np.float32}
        count, dimensions = shapes.get("words.weight", (0, 0))
        expected = {"words.weight": (count, dimensions), "log_weights.weight": (count, 1), "rarities": (count,)}
        if shapes != {**expected, "power": (), "lexical": ()} or len(weights) != len(shapes):
            raise DupqError(f"{place}: not the weights of a network of kind {KIND}; train the encoder anew")
        table, logs, rarities, power, lexical = (weights[name] for name in (*expected, "power", "lexical"))
        return cls(table, logs[:, 0], rarities, float(power), float(lexical))

    @property
    def dimensions(self) -> int:
        """The length of an embedding."""
        return int(self.vectors.shape[1])

    @property
    def measure(self) -> Measure:
        """How two embeddings are scored."""
        return Measure("cosine", 1.0, self.lexical)

    @property
    def trainable(self) -> bool:
        """Nothing is learned here."""
        return False

    def encode(self, texts: TokenIds) -> Encoded:
        """The embeddings that the network gives, up to rounding; that of an empty text is zero."""
        vectors = np.zeros((len(texts), self.dimensions), np.float16)
        columns, bags = int(texts.ids.max(initial=0)) + 1, [sparse.csr_array((0, 1), dtype=np.float32)]
        for some in pieces(texts.offsets, WORDS_AT_ONCE):
            words, counts = flat_bags(texts[some])
            dampened = counts ** np.float32(self.power)
            weights = np.exp(self.log_weights[words.ids]) * dampened
            sums = sparse.csr_array((weights, words.ids, words.offsets), (len(words), len(self.vectors))) @ self.vectors
            lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(SHORTEST))
            vectors[some] = sums / lengths
            bags.append(unit_bags(words, self.rarities[words.ids] * dampened, columns))
        return Encoded(vectors, sparse.vstack(bags[1:], format="csr") if bags[1:] else bags[0])


def unit_bags(words: TokenIds, weights: np.ndarray, columns: int) -> sparse.csr_array:
    """Bags of distinct words, ascending, with weights (float32), scaled to length 1 and rounded to float16."""
    shape = (len(words), columns)
    squares = sparse.csr_array((weights.astype(np.float64) ** 2, words.ids, words.offsets), shape)
    lengths = np.maximum(np.sqrt(squares.sum(axis=1)), SHORTEST)
    rounded = (weights / np.repeat(lengths, words.lengths)).astype(np.float16).astype(np.float32)
    bags = sparse.csr_array((rounded, words.ids, words.offsets), shape)
    bags.eliminate_zeros()
    return bags


def pieces(offsets: np.ndarray, size: int) -> Iterator[slice]:
    """All texts, some after the other: as many as have `size` words together, at least one."""
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + size, side="right")) - 1)
        yield slice(start, stop)
        start = stop


def flat_bags(texts: TokenIds) -> tuple[TokenIds, np.ndarray]:
    """The distinct known words of each text, ascending, and how often each occurs there (float32, (T,))."""
    words, counts, offsets = _bags(texts.ids, texts.offsets, np.int32(FIRST_WORD))
    return TokenIds(words, offsets), counts


def inverse_document_frequencies(texts: Iterable[np.ndarray], ids: int) -> np.ndarray:
    """Return log(|Q| / |q in Q: w_i in q|) (float32, shape (ids,)), 0 for padding and for unknown words."""
    questions, holding = 0, np.zeros(ids, np.int64)
    for some in some_at_once(texts):
        holding += np.bincount(flat_bags(TokenIds.of(some))[0].ids, minlength=ids)
        questions += len(some)
    frequencies = np.log(max(1, questions) / np.maximum(1, holding))
    frequencies[:FIRST_WORD] = 0.0
    return frequencies.astype(np.float32)


def some_at_once(texts: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """All `texts`, some thousand after the other."""
    remaining = iter(texts)
    while some := list(islice(remaining, _TEXTS_AT_ONCE)):
        yield some


@numba.njit(nogil=True, cache=True)
def _bags(ids: np.ndarray, offsets: np.ndarray, first: np.int32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    words, counts, begins = np.empty_like(ids), np.empty(len(ids), np.float32), np.zeros_like(offsets)
    end = np.int64(0)
    for text in range(len(offsets) - 1):
        own = np.sort(ids[offsets[text] : offsets[text + 1]])
        before = first - np.int32(1)
        for word in own:
            if word < first:
                continue
            if word == before:
                counts[end - 1] += np.float32(1)
            else:
                words[end], counts[end], before = word, np.float32(1), word
                end += 1
        begins[text + 1] = end
    return words[:end].copy(), counts[:end].copy(), begins
