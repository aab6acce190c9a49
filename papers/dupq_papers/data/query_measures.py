"""Measures of each query's ranking, by ir_measures, so that means, intervals and tests can be computed of them."""

from collections.abc import Sequence

import ir_measures
import numpy as np


def query_measures(
    rankings: Sequence[Sequence[int]], relevant: Sequence[set[int]], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The value of each measure for each query, by its name: float64, shape (q,), from 0 to 1.

    `rankings` are keys, best first, each once; their order is all that is read, so there are no scores and no ties
    left to break. `relevant` are the questions to be found, at least one a query; one that is missed counts as missed.
    `names` are those of ir_measures with the cut in them: P@5, AP@100 (over all relevant questions), RR@100, R@10,
    nDCG@10 (gains of 0 and 1, as in MTEB), and Success@k, the Accuracy@k of dos Santos et al. (2015, tables 3 and 4).
    Raises ValueError for a query without a relevant question, or a ranking with a repeated one.
    """
    if not all(relevant):
        raise ValueError("a query without a relevant question; at least one expected of each")
    if any(len(set(ranking)) < len(ranking) for ranking in rankings):
        raise ValueError("a ranking with a question twice; each once expected")
    if not rankings:
        return {name: np.zeros(0) for name in names}
    measures = {name: ir_measures.parse_measure(name) for name in names}
    judged = {str(row): {str(key): 1 for key in wanted} for row, wanted in enumerate(relevant)}
    run = {
        str(row): {str(key): float(-place) for place, key in enumerate(ranking)} for row, ranking in enumerate(rankings)
    }
    values = {measure: np.zeros(len(rankings)) for measure in measures.values()}
    for found in ir_measures.iter_calc(list(values), judged, run):
        values[found.measure][int(found.query_id)] = found.value
    return {name: values[measure] for name, measure in measures.items()}
