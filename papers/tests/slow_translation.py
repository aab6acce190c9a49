"""IBM's model 1 and the translation-based language model, word by word."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Table = Mapping[tuple[str, str | None], float]  # of a target word and a source word; None is the empty word


def slow_ibm_model_1(pairs: Sequence[tuple[list[str], list[str]]], iterations: int) -> Table:
    """T(target word | source word) from pairs of a source and a target text (Brown et al. 1993, section 4.1)."""
    table: Table = defaultdict(lambda: 1.0)  # uniform: the scale is lost in the first step
    for _ in range(iterations):
        expected: dict[tuple[str, str | None], float] = defaultdict(float)
        of_source: dict[str | None, float] = defaultdict(float)
        for source, target in pairs:
            for word in target:
                total = sum(table[word, given] for given in [None, *source])
                for given in [None, *source]:
                    expected[word, given] += table[word, given] / total
                    of_source[given] += table[word, given] / total
        table = {(word, given): value / of_source[given] for (word, given), value in expected.items()}
    return table


def slow_tlm(texts: Sequence[Sequence[str]], query: int, table: Table, beta: float, mu: float) -> list[float]:
    """The score of each of `texts` for one of them: ((P(q|d) / P(q|C)) to the power of 1 / |q|), 0 without a match."""
    everything = [word for text in texts for word in text]
    scores = []
    for text in texts:
        counts, ratio, matches = Counter(text), 0.0, False
        for word in texts[query]:
            in_collection = everything.count(word) / len(everything)
            own = sum(counts[given] * table.get((word, given), 0.0) for given in counts)
            mixed = (1 - beta) * counts[word] + beta * own
            matches = matches or mixed > 0
            ratio += math.log((mixed + mu * in_collection) / (len(text) + mu) / in_collection)
        scores.append(math.exp(ratio / len(texts[query])) if matches else 0.0)
    return scores
