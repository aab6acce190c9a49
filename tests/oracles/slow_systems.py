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


def sif(texts: Texts, vectors: Vectors, fitted: Sequence[int], smoothing: float, components: int) -> np.ndarray:
    """Algorithm 1 of Arora et al. 2017; p(w) and the components are of the rows `fitted`."""
    counts = Counter(word for row in fitted for word in texts[row])
    dimensions = len(next(iter(vectors.values())))
    averages = np.zeros((len(texts), dimensions))
    for row, text in enumerate(texts):
        for word in text:
            if word in vectors:
                share = counts[word] / counts.total()
                averages[row] += smoothing / (smoothing + share) * vectors[word] / len(text)
    return less_components(averages, averages[list(fitted)], components)


def mappsent(
    texts: Texts,
    vectors: Vectors,
    fitted: Sequence[int],
    duplicates: Sequence[tuple[int, int]],
    components: int,
    rotated: bool = True,
) -> np.ndarray:
    """Section 3 of Hazem et al. 2017, R by the singular value decomposition of all pairs at once, or left out."""
    dimensions = len(next(iter(vectors.values())))
    units = np.zeros((len(texts), dimensions))
    for row, text in enumerate(texts):
        total = sum((vectors[word] for word in text if word in vectors), np.zeros(dimensions))
        if total.any():
            units[row] = total / np.linalg.norm(total)
    is_there = units.any(axis=1)
    known = [row for row in fitted if is_there[row]]
    centred = np.where(is_there[:, None], units - np.mean(units[known], axis=0), 0.0)
    if rotated:
        left, right = (centred[[pair[side] for pair in duplicates]] for side in (0, 1))
        u, _, vt = np.linalg.svd(left.T @ right)
        centred = centred @ (u @ vt)
    return less_components(centred, centred[list(fitted)], components)


def less_components(rows: np.ndarray, fitted: np.ndarray, number: int) -> np.ndarray:
    first = np.linalg.svd(fitted, full_matrices=False)[2][:number]
    return rows - rows @ first.T @ first
