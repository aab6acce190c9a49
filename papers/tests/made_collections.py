"""Small collections and word vectors, made by chance from a seed."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq.training.pairs import Pairs
from dupq_papers.systems.collection import Collection, Examples
from dupq_papers.systems.vectors import WordVectors

WORDS = [f"w{number}" for number in range(30)]
DIMENSIONS = 6


def strings(texts: Sequence[str]) -> pa.StringArray:
    return pa.array(list(texts), pa.string())


def collection_of(texts: Sequence[str], tags: Sequence[tuple[str, ...]] | None = None) -> Collection:
    """Keys 10, 20 and so on."""
    nothing = strings([""] * len(texts))
    keys = 10 * np.arange(1, len(texts) + 1)
    return Collection(keys, strings(texts), nothing, nothing, tuple(tags or [()] * len(texts)), "english")


def random_collection(seed: int, questions: int = 40) -> Collection:
    """Texts of up to nine words, one of them empty, one of words without a vector, one a copy."""
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 10))) for _ in range(questions)]
    texts[3], texts[7], texts[11] = "", f"{WORDS[-1]} {WORDS[-2]}", texts[5]
    return collection_of(texts)


def random_vectors(seed: int) -> WordVectors:
    """For all words but the last four."""
    table = np.random.default_rng(seed).normal(size=(len(WORDS) - 4, DIMENSIONS)).astype(np.float32)
    return WordVectors(tuple(WORDS[:-4]), table)


def as_dict(vectors: WordVectors) -> dict[str, np.ndarray]:
    return {word: row.astype(np.float64) for word, row in zip(vectors.words, vectors.table, strict=True)}


def words_of(collection: Collection) -> list[list[str]]:
    return [text.split() for text in collection.texts.to_pylist()]


def all_pairs(collection: Collection) -> tuple[np.ndarray, np.ndarray]:
    """Keys of every question with every one."""
    left, right = (collection.keys[axis.ravel()] for axis in np.indices((len(collection.keys),) * 2))
    return left, right


def random_examples(collection: Collection, seed: int, pairs: int = 24) -> Examples:
    """Pairs of the first half of the questions to learn from, of the others to tune on; labels by chance."""
    random = np.random.default_rng(seed)
    half = len(collection.keys) // 2

    def some(keys: np.ndarray) -> Pairs:
        left, right = np.sort(random.choice(keys, (2, pairs)), axis=0)
        return Pairs(left, right, np.arange(pairs, dtype=np.float32) % 2)

    return Examples(some(collection.keys[:half]), some(collection.keys[half:]), {})
