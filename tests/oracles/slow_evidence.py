"""What two questions have in common, as anyone would write it: with dictionaries of terms and lists of neighbours."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dupq.clusters.evidence import FORMULA, Words
from dupq.text.marks import ASKER, ASKING, BAG, CITED, NEGATION, NUMBER, SELF, SPELLING, TEMPLATE, UNDATED, UNSIGNED
from dupq.text.questions import BUCKETS, Terms

SATURATION = 1.2

Counts = dict[int, int]  # how often a text has each term


class Question(NamedTuple):
    title: Counts
    text: Counts
    tags: Counts
    marks: Counts


def terms_of(texts: Sequence[Counts]) -> Terms:
    ordered = [sorted(text.items()) for text in texts]
    flat = [pair for pairs in ordered for pair in pairs]
    offsets = np.concatenate([[0], np.cumsum([len(pairs) for pairs in ordered])]).astype(np.int64)
    return Terms(offsets, np.array([t for t, _ in flat], np.int32), np.array([c for _, c in flat], np.uint8))


def words_of(questions: Sequence[Question]) -> Words:
    return Words(*(terms_of([question[place] for question in questions]) for place in range(len(Question._fields))))


def marked(*marks: tuple[int, int]) -> Counts:
    """Marks of these kinds and hashes."""
    return {kind * BUCKETS + value: 1 for kind, value in marks}


def slow_shared(one: Question, other: Question, rarity: Sequence[float]) -> dict[str, float]:
    every = one.tags.keys() | other.tags.keys()
    return {
        "title_cosine": slow_cosine(one.title, other.title, rarity),
        "title_least": slow_least(one.title, other.title, rarity),
        "text_cosine": slow_cosine(one.text, other.text, rarity),
        "text_least": slow_least(one.text, other.text, rarity),
        "both_ways": slow_both_ways(one.text, other.text, rarity),
        "tags": len(one.tags.keys() & other.tags.keys()) / len(every) if every else math.nan,
        "title_swap": slow_swap(one.title, other.title, rarity),
        **slow_marked(one.marks, other.marks),
    }


def slow_marked(*marks: Counts) -> dict[str, float]:
    kinds = range(SELF + 1)
    of = {kind: [{mark % BUCKETS for mark in side if mark // BUCKETS == kind} for side in marks] for kind in kinds}
    (own, others_own), (cited, others_cited) = of[SELF], of[CITED]
    ask_others = all(of[ASKING]) and of[ASKING][0] != of[ASKING][1]
    are_spelt_otherwise = not set.intersection(*of[SPELLING])
    return {
        "other_numbers": float(all(of[NUMBER]) and of[NUMBER][0] != of[NUMBER][1]),
        "other_date": float(
            bool(set.intersection(*of[UNDATED]) and of[NUMBER][0] - of[NUMBER][1] and of[NUMBER][1] - of[NUMBER][0])
        ),
        "other_asking": float(ask_others),
        "other_negation": float(len(of[NEGATION][0]) != len(of[NEGATION][1])),
        "other_order": float(
            ask_others and bool(set.intersection(*of[UNSIGNED]) or (are_spelt_otherwise and set.intersection(*of[BAG])))
        ),
        "other_words": float(ask_others and are_spelt_otherwise and bool(set.intersection(*of[TEMPLATE]))),
        "same_asking": float(bool(set.intersection(*of[ASKING]))),
        "other_formulas": len(set.symmetric_difference(*of[FORMULA])) / len(set.union(*of[FORMULA]))
        if all(of[FORMULA])
        else 0.0,
        "same_asker": float(bool(set.intersection(*of[ASKER]))),
        "cites": float(own != others_own and bool(own & others_cited or others_own & cited)),
    }


def slow_cosine(one: Counts, other: Counts, rarity: Sequence[float]) -> float:
    vectors = [{t: (1 + math.log(c)) * rarity[t] for t, c in side.items()} for side in (one, other)]
    lengths = [math.sqrt(sum(value**2 for value in vector.values())) for vector in vectors]
    common = one.keys() & other.keys()
    return sum(vectors[0][t] * vectors[1][t] for t in common) / math.prod(lengths) if common else 0.0


def slow_least(one: Counts, other: Counts, rarity: Sequence[float]) -> float:
    most = max(sum(rarity[term] for term in side) for side in (one, other))
    return sum(rarity[term] for term in one.keys() & other.keys()) / most if most else 0.0


def slow_bm25(query: Counts, text: Counts, rarity: Sequence[float]) -> float:
    """As a search engine ranks texts, but for their lengths; a term of the query counts once."""
    return sum(rarity[t] * text[t] * (SATURATION + 1) / (text[t] + SATURATION) for t in query if t in text)


def slow_both_ways(one: Counts, other: Counts, rarity: Sequence[float]) -> float:
    own = slow_bm25(one, one, rarity) * slow_bm25(other, other, rarity)
    return math.sqrt(slow_bm25(one, other, rarity) * slow_bm25(other, one, rarity) / own) if own else 0.0


def slow_swap(one: Counts, other: Counts, rarity: Sequence[float]) -> float:
    alone = [max((rarity[term] for term in a.keys() - b.keys()), default=0.0) for a, b in ((one, other), (other, one))]
    return min(alone) / max(rarity)


def slow_lead(
    one: int, other: int, cosine: Callable[[int, int], float], lists: Mapping[int, Sequence[int]] | Sequence[list[int]]
) -> float:
    """The cosine of two titles, less the mean of both sides' mean cosines with the other neighbours that each lists."""
    means = []
    for question, partner in ((one, other), (other, one)):
        found = [cosine(question, neighbour) for neighbour in lists[question] if neighbour != partner]
        means.append(sum(found) / len(found) if found else 0.0)
    return cosine(one, other) - sum(means) / 2
