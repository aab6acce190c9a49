"""Lucene's similarities as its classes compute them, for one term of one text, and a score as a loop over both.

Lengths are exact, and a text without terms is a text: see `term_counts.Occurrences`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Stats(NamedTuple):
    """What Lucene calls BasicStats, of a term."""

    docs: int
    doc_freq: int
    term_freq: int  # in all texts
    tokens: int  # of all texts


Weight = Callable[[Stats, float, float], float]  # of a term with a frequency in a text with a length


def slow_scores(texts: Sequence[Sequence[str]], query: int, weight: Weight) -> list[float]:
    """The score of each of `texts` (lists of terms) for one of them."""
    scores = []
    for text in texts:
        total = 0.0
        for term in texts[query]:  # a repeated term once more
            if term in text:
                doc_freq = sum(term in other for other in texts)
                term_freq = sum(other.count(term) for other in texts)
                stats = Stats(len(texts), doc_freq, term_freq, sum(map(len, texts)))
                total += weight(stats, text.count(term), len(text))
        scores.append(total)
    return scores


def classic(stats: Stats, freq: float, length: float, idf_power: float) -> float:
    idf = math.log((stats.docs + 1) / (stats.doc_freq + 1)) + 1.0
    return math.sqrt(freq) * idf**idf_power * (1 / math.sqrt(length))


def bm25(stats: Stats, freq: float, length: float, k1: float, b: float) -> float:
    idf = math.log(1 + (stats.docs - stats.doc_freq + 0.5) / (stats.doc_freq + 0.5))
    average = stats.tokens / stats.docs
    return idf * freq / (freq + k1 * (1 - b + b * length / average))


def h2(stats: Stats, freq: float, length: float, c: float) -> float:
    return freq * math.log2(1 + c * (stats.tokens / stats.docs) / length)


def dfr(stats: Stats, freq: float, length: float, model: str, after_effect: str, c: float) -> float:
    tfn = h2(stats, freq, length, c)
    after = 1.0
    if after_effect == "B":
        f, n = stats.term_freq + 1, stats.doc_freq + 1
        after = (f + 1.0) / n
    if model == "G":
        f = stats.term_freq + 1
        rate = f / (stats.docs + f)
        low, high = math.log2(rate + 1), math.log2((1 + rate) / rate)
        return (high - (high - low) / (1 + tfn)) * after
    if model == "In":
        factor = math.log2((stats.docs + 1) / (stats.doc_freq + 0.5))
    elif model == "Ine":
        expected = stats.docs * (1 - ((stats.docs - 1) / stats.docs) ** stats.term_freq)
        factor = math.log2((stats.docs + 1) / (expected + 0.5))
    else:
        factor = math.log2(1 + (stats.docs + 1) / (stats.term_freq + 0.5))
    return factor * after * (1 - 1 / (1 + tfn))


def ib(stats: Stats, freq: float, length: float, distribution: str, rate: str, c: float) -> float:
    tfn = h2(stats, freq, length, c)
    if rate == "DF":
        value = (stats.doc_freq + 1.0) / (stats.docs + 1.0)
        value = float(np.nextafter(np.float32(1), np.float32(0))) if value == 1 else value
    else:
        value = (stats.term_freq + 1.0) / (stats.docs + 1.0)
        value = float(np.nextafter(np.float32(1), np.float32(2))) if value == 1 else value
    if distribution == "LL":
        return -math.log(value / (tfn + value))
    q = 1 - 1 / (tfn + 1)
    return max(0.0, -math.log((value**q - value) / (1 - value)))


def lm_dirichlet(stats: Stats, freq: float, length: float, mu: float) -> float:
    probability = (stats.term_freq + 1) / (stats.tokens + 1)
    score = math.log(1 + freq / (mu * probability)) + math.log(mu / (length + mu))
    return score if score > 0 else 0.0


def lm_jelinek_mercer(stats: Stats, freq: float, length: float, smoothing: float) -> float:
    probability = (stats.term_freq + 1) / (stats.tokens + 1)
    return math.log(1 + ((1 - smoothing) * freq / length) / (smoothing * probability))
