"""Near copies made of real texts, and near duplicates found by comparing everything with everything."""

import random
from itertools import pairwise

import numpy as np
import scipy.sparse as sparse

SHARES = (0.003, 0.01, 0.02, 0.03, 0.035, 0.04, 0.05, 0.08)  # of a text's words that an edit changes
_ROWS_AT_ONCE = 500


def with_edits(texts: list[str], count: int, generator: random.Random) -> list[str]:
    """`texts` and as many edits of them as make `count` together, in any order; none of them twice."""
    words = sorted({word for text in texts[:2000] for word in text.split()})
    found = dict.fromkeys(texts)
    while len(found) < count:
        found[edited(generator.choice(texts), generator.choice(SHARES), words, generator)] = None
    result = list(found)
    generator.shuffle(result)
    return result


def edited(text: str, share: float, words: list[str], generator: random.Random) -> str:
    """`text` with that share of its words changed, added or taken out, at least one."""
    result = text.split()
    for _ in range(max(1, round(len(result) * share))):
        place, kind = generator.randrange(len(result)), generator.random()
        if kind < 0.5:
            result[place] = generator.choice(words)
        elif kind < 0.75 or len(result) == 1:
            result.insert(place, generator.choice(words))
        else:
            del result[place]
    return " ".join(result)


def all_pairs(texts: list[str], size: int, threshold: float) -> dict[tuple[int, int], float]:
    """Each pair of rows whose sets of word shingles have at least that Jaccard coefficient. Nothing is hashed."""
    sets = [_shingles(text.split(), size) for text in texts]
    numbers: dict[tuple[str, ...], int] = {}
    columns = np.array([numbers.setdefault(one, len(numbers)) for found in sets for one in found])
    sizes = np.array([len(found) for found in sets])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    incidence = sparse.csr_matrix((np.ones(len(columns), np.float32), columns, ends), (len(texts), len(numbers)))
    starts = [*range(0, len(texts), _ROWS_AT_ONCE), len(texts)]
    pairs: dict[tuple[int, int], float] = {}
    for start, end in pairwise(starts):
        common = (incidence[start:end] @ incidence.T).tocoo()
        left, right, both = common.row + start, common.col, common.data.astype(np.float64)
        coefficients = both / (sizes[left] + sizes[right] - both)
        kept = np.flatnonzero((left < right) & (coefficients >= threshold))
        rows = zip(left[kept].tolist(), right[kept].tolist(), strict=True)
        pairs.update(zip(rows, coefficients[kept].tolist(), strict=True))
    return pairs


def _shingles(words: list[str], size: int) -> set[tuple[str, ...]]:
    if not words:
        return set()
    return {tuple(words[start : start + size]) for start in range(max(1, len(words) - size + 1))}
