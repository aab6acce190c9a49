"""The official scores of SemEval-2016 and 2017 Task 3, as its scorer (version 2.3, `ev.py`) defines them.

They are not those of `query_measures.py`: a question without a relevant candidate counts, and has 0, and only the
first ten candidates are looked at.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dupq.errors import DupqError
from dupq_papers.data.semeval import meaning_of, rank_of
from dupq_papers.data.text_files import read_text

_CUT = 10
_RANKS = np.arange(1, _CUT + 1)
_GOLD = {"true": True, "false": False}


class Judgement(NamedTuple):
    """A line of the official gold: is this candidate relevant to this original?"""

    original: str  # an id
    candidate: str  # likewise
    rank: int
    is_relevant: bool


class Candidates(NamedTuple):
    """A question and the candidates that are to be ranked for it, in the order of the file."""

    query: int  # a key
    keys: np.ndarray  # int64, (c,)
    relevant: np.ndarray  # bool, (c,)


class OfficialScores(NamedTuple):
    """From 0 to 1; the scorer prints `mrr` in per cent."""

    map: float
    average_recall: float
    mrr: float


def read_relevancy(uri: str) -> list[Judgement]:
    """The lines of an official gold file: original, candidate, rank, score (1 / rank), and true or false.

    Raises DupqError naming file and line.
    """
    found = []
    for number, line in enumerate(read_text(uri).split("\n"), 1):
        if line.strip():
            where, fields = f"{uri}, line {number}", line.split()
            if len(fields) != 5:
                raise DupqError(f"{where}: {len(fields)} columns; two ids, rank, score, and true or false expected")
            rank, is_relevant = rank_of(fields[2], where), meaning_of(fields[4], _GOLD, where)
            found.append(Judgement(fields[0], fields[1], rank, is_relevant))
    if not found:
        raise DupqError(f"{uri}: no lines in it; two ids, rank, score, and true or false expected")
    return found


def reranked(
    questions: Sequence[Candidates], score: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """Which candidates of each question are relevant (bool, (c,)), in the order of a system's scores, best first.

    `score` gives how alike the questions of each pair of keys are, as `Ranker.score`. Ties stay in the order of the
    file, that of the search engine, as in the official scorer.
    """
    found = []
    for query, keys, relevant in questions:
        scores = score(np.full(len(keys), query), keys)
        found.append(relevant[np.argsort(-scores, kind="stable")])
    return found


def official_scores(rankings: Sequence[np.ndarray]) -> OfficialScores:
    """The scores of rankings, one a question: which of its candidates are relevant (bool, (c,)), best first.

    `map` and `mrr` are means over all questions. `average_recall` is over the ranks 1 to 10: the relevant candidates
    found up to there in all questions together, of those that a perfect ranking would have found. Raises ValueError if
    no candidate of any question is relevant.
    """
    firsts = _firsts(rankings)
    found = np.cumsum(firsts, axis=1).sum(axis=0)
    possible = sum(np.minimum(_RANKS, ranking.sum()) for ranking in rankings)
    if not np.all(possible):
        raise ValueError("no question with a relevant candidate")
    reciprocal = np.where(firsts.any(axis=1), 1 / (firsts.argmax(axis=1) + 1), 0.0)
    return OfficialScores(
        float(np.mean(official_average_precisions(rankings))),
        float(np.mean(found / possible)),
        float(np.mean(reciprocal)),
    )


def official_average_precisions(rankings: Sequence[np.ndarray]) -> np.ndarray:
    """What `map` is the mean of (float64, (q,)): the mean precision at the relevant candidates among the first ten.

    It is over those found there, which are all where there are ten candidates; 0 where there are none.
    """
    firsts = _firsts(rankings)
    hits = np.cumsum(firsts, axis=1)
    return np.sum(firsts * hits / _RANKS, axis=1) / np.maximum(hits[:, -1], 1)


def _firsts(rankings: Sequence[np.ndarray]) -> np.ndarray:
    """The first ten of each ranking (bool, (q, 10)), false beyond its end."""
    found = np.zeros((len(rankings), _CUT), bool)
    for row, ranking in enumerate(rankings):
        found[row, : len(ranking)] = ranking[:_CUT]
    return found
