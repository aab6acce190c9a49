"""Rankings as anyone would write them: a score for every text, and a sort of all of them."""

import math
from collections import Counter
from collections.abc import Sequence

from dupq.text.languages import is_stop_word, stems


def stemmed(text: str, language: str) -> list[str]:
    return [stems(language)(word) for word in text.split() if not is_stop_word(word, language)]


def slow_bm25(texts: Sequence[Sequence[str]], query: int, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """The score of each of `texts` (lists of terms) for one of them: Robertson's formula with Lucene's idf."""
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        has, total = Counter(text), 0.0
        for term in texts[query]:
            having = sum(term in other for other in texts)
            idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            total += idf * has[term] / (k1 * (1 - b + b * len(text) / mean) + has[term]) if has[term] else 0.0
        scores.append(total)
    return scores


def slow_jaccard(texts: Sequence[str], query: int, size: int) -> list[float]:
    """The Jaccard coefficient of each text's shingles with those of one of them."""
    sets = [_shingles(text.split(), size) for text in texts]
    return [len(sets[query] & one) / len(sets[query] | one) if one and sets[query] else 0.0 for one in sets]


def _shingles(words: list[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + size]) for start in range(max(1, len(words) - size + 1))} if words else set()


def slow_best(keys: Sequence[int], scores: Sequence[float], query: int, k: int) -> list[int]:
    """The keys of the k best scores above 0 but that of the query's own row, ties by key."""
    others = [(-score, key) for row, (key, score) in enumerate(zip(keys, scores, strict=True)) if row != query]
    return [key for score, key in sorted(others) if score < 0][:k]
