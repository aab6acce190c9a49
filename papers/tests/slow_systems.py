"""The systems of pairs and word vectors as the papers write them: one question, one word, one pair at a time."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

Vectors = dict[str, np.ndarray]
Texts = Sequence[Sequence[str]]


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    lengths = math.sqrt(left @ left) * math.sqrt(right @ right)
    return float(left @ right) / lengths if lengths else 0.0


def ranked(scores: Sequence[float], keys: Sequence[int], query: int, k: int, among: Sequence[int]) -> list[int]:
    """The k best of the rows `among` but that of the query, ties by key."""
    order = sorted((-round(scores[row], 12), keys[row]) for row in among if row != query)
    return [key for _, key in order][:k]


def idf(texts: Texts, word: str) -> float:
    return math.log(len(texts) / sum(word in text for text in texts))


def wekos(texts: Texts, vectors: Vectors, dimensions: int) -> list[np.ndarray]:
    """The TF-IDF-weighted sum of each text's word vectors."""
    found = []
    for text in texts:
        total = np.zeros(dimensions)
        for word in text:
            if word in vectors:
                total += idf(texts, word) * vectors[word]
        found.append(total)
    return found


def mean(texts: Texts, vectors: Vectors, dimensions: int) -> list[np.ndarray]:
    return [np.mean([vectors[word] for word in text if word in vectors] or [np.zeros(dimensions)], 0) for text in texts]


def soft_cosine(texts: Texts, vectors: Vectors, left: int, right: int) -> float:
    """x'My / sqrt(x'Mx y'My), entry by entry."""

    def related(one: str, other: str) -> float:
        if one == other:
            return 1.0
        return max(0.0, cosine(vectors[one], vectors[other])) ** 2 if one in vectors and other in vectors else 0.0

    def product(one: Sequence[str], other: Sequence[str]) -> float:
        x, y = Counter(one), Counter(other)
        return sum(x[i] * idf(texts, i) * related(i, j) * y[j] * idf(texts, j) for i in x for j in y)

    lengths = math.sqrt(product(texts[left], texts[left]) * product(texts[right], texts[right]))
    return product(texts[left], texts[right]) / lengths if lengths > 0 else 0.0


def ngrams(text: Sequence[str]) -> list[tuple[str, ...]]:
    """All of one to four words, with repeats."""
    return [tuple(text[start : start + size]) for size in (1, 2, 3, 4) for start in range(len(text) - size + 1)]


def pair_features(texts: Texts, training: Sequence[int], least: int, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Three features an n-gram, in the alphabetical order of n-grams (m, 3 V)."""
    seen = Counter(gram for row in training for gram in ngrams(texts[row]))
    kept = sorted(gram for gram, count in seen.items() if count >= least)
    rows = []
    for left, right in pairs:
        own, others = Counter(ngrams(texts[left])), Counter(ngrams(texts[right]))
        both = max(1, own.total() + others.total())
        rows.append([v for g in kept for v in (g in own, g in others, (own[g] + others[g]) / both)])
    return np.array(rows, float).reshape(len(pairs), -1)
