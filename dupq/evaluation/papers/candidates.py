"""Ten candidates of each question, to be ranked: those that a data set gives, or made from its known duplicates."""

from collections.abc import Iterator

import numpy as np

from dupq.evaluation.papers.data_sets import DataSet, collection_of
from dupq.evaluation.papers.protocol import Protocol
from dupq.evaluation.systems.bm25 import BM25
from dupq.evaluation.systems.term_counts import term_counts
from dupq.settings.text import TextSettings

CANDIDATES = 10
_MOST_KNOWN = 5
Asked = tuple[int, list[int], set[int]]  # a query, its candidates in the search engine's order, those that are right


def candidates_of(data: DataSet, parts: Protocol) -> Iterator[Asked]:
    """The test queries that have a right candidate, by key.

    As the official scorer of SemEval-2016 Task 3 does, those without one are left out.
    """
    made = _given(data, parts) if data.candidates else _made(data, parts)
    return (asked for asked in made if asked[2])


def _given(data: DataSet, parts: Protocol) -> Iterator[Asked]:
    duplicates = set(map(tuple, data.links.tolist()))
    test = set(parts.split.questions_of("test").tolist()) if data.tested is None else set(data.tested.tolist())
    for query, candidates in sorted(data.candidates.items()):
        if query in test:
            right = {one for one in candidates if (min(query, one), max(query, one)) in duplicates}
            yield query, list(candidates), right


def _made(data: DataSet, parts: Protocol) -> Iterator[Asked]:
    """Up to five known duplicates, and those that BM25 ranks best of the others, in its order.

    Known duplicates that it does not rank come last.
    """
    engine = BM25(term_counts(collection_of(data, TextSettings())))
    queries = np.array(sorted(parts.test_queries), np.int64)
    for query, ranked in zip(queries.tolist(), engine.rank(queries, 100), strict=True):
        known = set(sorted(parts.test_queries[query])[:_MOST_KNOWN])
        others = [one for one in ranked if one not in parts.test_queries[query]][: CANDIDATES - len(known)]
        kept = known.union(others)
        found = [one for one in ranked if one in kept]
        yield query, found + sorted(known.difference(found)), known
