"""Measures of rankings and of pairs against plain loops, trec_eval and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_measures import slow_measure

from dupq.evaluation.measures import retrieval_measures
from dupq_papers.data.query_measures import query_measures

NAMES = ("P@5", "P@10", "AP@3", "AP@100", "RR@2", "RR@100", "R@1", "R@10", "nDCG@10", "Success@1", "Success@5")
RANKING = st.lists(st.integers(0, 14), max_size=12, unique=True)
QUERIES = st.lists(st.tuples(RANKING, st.sets(st.integers(0, 16), min_size=1)), max_size=4)


@given(QUERIES)
def test_each_measure_is_its_definition(queries: list[tuple[list[int], set[int]]]) -> None:
    found = query_measures([ranking for ranking, _ in queries], [wanted for _, wanted in queries], NAMES)
    assert tuple(found) == NAMES
    for name in NAMES:
        assert found[name].dtype == np.float64
        expected = [slow_measure(name, ranking, wanted) for ranking, wanted in queries]
        assert found[name] == pytest.approx(np.array(expected), abs=1e-9)


@given(QUERIES.filter(bool), st.integers(1, 12))
def test_what_a_nights_run_measures_is_what_trec_eval_measures(
    queries: list[tuple[list[int], set[int]]], k: int
) -> None:
    rankings, relevant = [ranking[:k] for ranking, _ in queries], [wanted for _, wanted in queries]
    own = retrieval_measures(rankings, relevant, k)
    names = {"map": f"AP@{k}", **{f"accuracy_at_{n}": f"Success@{n}" for n in (1, 5, 10)}}
    names |= {f"recall_at_{n}": f"R@{n}" for n in (1, 5, 10, 100) if n <= k}
    found = query_measures(rankings, relevant, list(names.values()))
    assert own["map_cut"] == k
    assert {key: own[key] for key in names} == pytest.approx({key: found[name].mean() for key, name in names.items()})


def test_keys_of_large_archives_are_told_apart() -> None:
    many = [(1 << 62) + place for place in range(1000)]
    assert query_measures([many], [{many[999]}], ["RR@1000", "R@999"]) == {"RR@1000": 1 / 1000, "R@999": 0.0}


def test_a_query_without_a_relevant_question_is_refused() -> None:
    with pytest.raises(ValueError, match="without a relevant question"):
        query_measures([[1]], [set()], ["P@5"])
    with pytest.raises(ValueError, match="twice"):
        query_measures([[1, 1]], [{1}], ["P@5"])
