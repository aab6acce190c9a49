"""Stable ids and changes, compared with a slow twin of sets and dicts on random nights."""

import random
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.identity import KINDS, NONE, Clustering, changes, cluster_ids
from dupq.text.keys import ID_BITS, Sites

Night = list[frozenset[int]]  # the clusters of two and more of a run
Named = dict[int, frozenset[int]]  # the same by id
Row = tuple[str, int, int, int, int, int]

SITES = Sites(["a", "b"])
ALL_KEYS = [(number // 20) << ID_BITS | number % 20 for number in range(30)]  # of two sites
DELETED = 0
# The cluster of each question: few clusters overlap much, many little.
LABELS = st.integers(1, 9).flatmap(lambda most: st.lists(st.integers(0, most), min_size=10, max_size=len(ALL_KEYS)))
EDITS = st.lists(st.tuples(st.integers(0, len(ALL_KEYS) - 1), st.integers(0, 9)), max_size=6)


def night_of(labels: list[int]) -> Night:
    groups: dict[int, set[int]] = {}
    for key, label in zip(ALL_KEYS, labels, strict=False):
        if label != DELETED:
            groups.setdefault(label, set()).add(key)
    return [frozenset(group) for group in groups.values() if len(group) > 1]


@st.composite
def nights(draw: st.DrawFn, count: int) -> list[Night]:
    """Draw nights: each has a few edits of the one before, or all clusters anew."""
    labels = draw(LABELS)
    found = [night_of(labels)]
    while len(found) < count:
        if draw(st.booleans()):
            labels = draw(LABELS)
        else:
            labels = labels + [DELETED] * (len(ALL_KEYS) - len(labels))
            for place, label in draw(EDITS):
                labels[place] = label
        found.append(night_of(labels))
    return found


@st.composite
def named_nights(draw: st.DrawFn) -> tuple[Night, Named]:
    """A night, and the one before with ids that a long history may have left: any keys.

    Some questions that name clusters are moved to clusters of their own, so that a new cluster finds its keys taken.
    """
    then, now = draw(nights(2))
    ids = draw(st.permutations(ALL_KEYS))[: len(then)]
    moved = ids[: draw(st.integers(0, len(ids)))]
    size = draw(st.integers(2, 3))
    now = [group - set(moved) for group in now]
    now += [frozenset(moved[start : start + size]) for start in range(0, len(moved), size)]
    return [group for group in now if len(group) > 1], dict(zip(ids, then, strict=True))


def jaccard(one: frozenset[int], other: frozenset[int]) -> Fraction:
    return Fraction(len(one & other), len(one | other))


def slow_ids(now: Night, then: Named) -> Named:
    ranked = sorted(
        (-jaccard(one, other), -len(one & other), cluster_id, min(one), one)
        for one in now
        for cluster_id, other in then.items()
        if one & other
    )
    named: Named = {}
    for _, _, cluster_id, _, one in ranked:
        if cluster_id not in named and one not in named.values():
            named[cluster_id] = one
    carried = set(named)
    new = sorted((one for one in now if one not in named.values()), key=min)
    for one in new:
        if one - carried:
            named[min(one - carried)] = one
    for one in new:
        if not one - carried:
            named[min(key for group in now for key in group if key not in named)] = one
    return named


def slow_changes(now: Named, then: Named) -> list[Row]:
    rows = []
    for id_now, one in now.items():
        sources = [id_then for id_then, other in then.items() if one & other]
        if not sources:
            rows.append(("new", id_now, NONE, len(one), 0, 0))
        for id_then in sources:
            other = then[id_then]
            pieces = [group for group in now.values() if group & other]
            kinds = []
            if len(sources) > 1:
                kinds.append("merged")
            if len(pieces) > 1:
                kinds.append("split")
            if not kinds and one > other:
                kinds.append("grown")
            elif not kinds and one < other:
                kinds.append("shrunk")
            elif not kinds and one != other:
                kinds.append("changed")
            rows += [(kind, id_now, id_then, len(one), len(other), len(one & other)) for kind in kinds]
    for id_then, other in then.items():
        if not any(one & other for one in now.values()):
            rows.append(("gone", NONE, id_then, 0, len(other), 0))
    return sorted(rows, key=lambda row: (KINDS.index(row[0]), row[1], row[2]))


def clustering(named: Named, order: random.Random | None = None) -> Clustering:
    rows = sorted((key, name) for name, group in named.items() for key in group)
    if order:
        order.shuffle(rows)
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    return Clustering(columns[0].copy(), columns[1].copy())


def by_smallest(night: Night) -> Named:
    return {min(group): group for group in night}


def found_ids(now: Night, then: Named, order: random.Random | None = None) -> Named:
    rows = clustering(by_smallest(now), order)
    ids = dict(zip(rows.keys.tolist(), cluster_ids(rows, clustering(then, order)).tolist(), strict=True))
    assert all({ids[key] for key in group} == {ids[min(group)]} for group in now)
    assert len(set(ids.values())) == len(now)
    return {ids[min(group)]: group for group in now}


def found_changes(now: Named, then: Named, order: random.Random | None = None) -> list[Row]:
    names, sizes = ("cluster_id", "previous_cluster_id"), ("size", "previous_size", "shared")
    return [
        (row["kind"], *(key_of(row[name]) for name in names), *(row[name] for name in sizes))
        for row in changes(clustering(now, order), clustering(then, order), SITES).to_pylist()
    ]


def key_of(label: str | None) -> int:
    if label is None:
        return NONE
    site, _, number = label.partition("/")
    return SITES.names.index(site) << ID_BITS | int(number)


@given(named_nights(), st.randoms(use_true_random=False))
def test_ids_and_changes_are_the_twins_whatever_the_order_of_rows(
    nights: tuple[Night, Named], order: random.Random
) -> None:
    now, then = nights
    named = slow_ids(now, then)
    assert found_ids(now, then) == found_ids(now, then, order) == named
    assert found_changes(named, then) == found_changes(named, then, order) == slow_changes(named, then)


def test_of_equal_claims_more_shared_questions_then_the_smaller_id_then_the_smaller_key_wins() -> None:
    wide = frozenset({5, 6, 7, 8})
    assert found_ids([wide], {2: frozenset({5, 20}), 1: frozenset({6, 21})}) == {1: wide}
    assert found_ids([frozenset({8, 9}), frozenset({6, 7})], {1: frozenset({6, 7, 8, 9})})[1] == frozenset({6, 7})
    # One question of one is as much as two, each a fifth of all.
    now = frozenset({1, 2, 3, 4})
    then = {3: frozenset({1, 20}), 4: frozenset({2, 3, *range(10, 16)})}
    assert jaccard(now, then[3]) == jaccard(now, then[4])
    assert found_ids([now], then) == {4: now}
