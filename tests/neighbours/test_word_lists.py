"""Pairs that share a rare word, against all pairs; and how far a search is to reach, against every choice there is."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import Side, exact_scores, rule_of, scoring, side_of
from dupq.neighbours.measure import Measure
from dupq.neighbours.reach import Archive, Sampled, cheapest, reach
from dupq.neighbours.word_lists import (
    NO_WORD,
    Probed,
    Shared,
    rarest_shared,
    shared_pairs,
    walk_of,
    word_counts,
    word_lists,
)

MEASURES = [
    Measure("cosine", 1.0, 0.8),
    Measure("cosine", -0.4, 1.0),
    Measure("cosine", 0.0, 2.0),
    Measure("manhattan", 0.7, 0.5),
]


def made_up(rows: int, generator: np.random.Generator) -> Embeddings:
    vectors = generator.normal(size=(rows, 9)) * generator.choice([0.01, 1, 40], (rows, 1))
    vectors[generator.random(rows) < 0.1] = 0
    density = generator.choice([0.0, 0.05, 0.3])
    bags = sparse.random_array((rows, 40), density=density, rng=generator, format="csr", dtype=np.float32)
    bags.data = bags.data.astype(np.float16).astype(np.float32)
    bags.data[generator.random(bags.nnz) < 0.1] = 0.0
    return Embeddings(np.arange(rows), vectors.astype(np.float16), bags)


def words_of(side: Side, row: int) -> set[int]:
    of_row = slice(side.starts[row], side.starts[row + 1])
    return set(side.words[of_row][side.weights[of_row] > 0].tolist())


def some_probed(left: int, right: int, generator: np.random.Generator) -> Probed:
    lists = 3
    return Probed(
        generator.random((lists, left)) < 0.2,
        generator.integers(0, lists, left),
        generator.random((lists, right)) < 0.2,
        generator.integers(0, lists, right),
    )


@given(st.integers(0, 10**6), st.sampled_from(MEASURES), st.booleans(), st.sampled_from([1, 3, 10, 99]))
def test_pairs_that_share_a_rare_word_are_found_once_with_their_exact_scores(
    seed: int, measure: Measure, is_diagonal: bool, most: int
) -> None:
    generator, rule = np.random.default_rng(seed), rule_of(measure)
    one = made_up(31, generator)
    other = one if is_diagonal else made_up(23, generator)
    counts = word_counts(one.words) + (0 if is_diagonal else word_counts(other.words))
    left = side_of(one, rule)
    right = left if is_diagonal else side_of(other, rule)
    probed = some_probed(31, len(other.keys), generator)
    if is_diagonal:
        probed = Probed(probed.by_rows, probed.of_rows, probed.by_rows, probed.of_rows)
    bounds = generator.normal(size=31) / 2, generator.normal(size=len(other.keys)) / 2
    bounds[0][:3] = bounds[1][:3] = -np.inf
    if is_diagonal:
        bounds = bounds[0], bounds[0]
    found = all_shared(left, right, (counts, most), bounds, probed, measure)
    wanted, all_of_them = set(), set()
    rare = {word for word, count in enumerate(counts) if count <= most}
    for row, column in product(range(31), range(len(other.keys))):
        is_probed = probed.by_rows[probed.of_columns[column], row] or probed.by_columns[probed.of_rows[row], column]
        if is_probed or (is_diagonal and column <= row):
            continue
        if words_of(left, row) & words_of(right, column) & rare:
            all_of_them.add((row, column))
            score = exact_scores(np.array([row]), np.array([column]), left, right, rule)[0]
            if score >= min(bounds[0][row], bounds[1][column]):
                wanted.add((row, column))
    assert len(found) == len(set(found))
    assert wanted <= {(row, column) for row, column, _ in found} <= all_of_them
    for row, column, score in found:
        assert score == exact_scores(np.array([row]), np.array([column]), left, right, rule)[0]


def all_shared(
    left: Side,
    right: Side,
    rare: tuple[np.ndarray, int],
    bounds: tuple[np.ndarray, np.ndarray],
    probed: Probed,
    measure: Measure,
) -> list[tuple[int, int, float]]:
    """All pairs, by 7 columns at a time, with room for 9 pairs."""
    rule = rule_of(measure)
    mine = word_lists(left, rule, *rare)
    theirs = mine if left is right else word_lists(right, rule, *rare)
    walk, room = walk_of(mine, theirs), Shared(np.empty(9, np.int32), np.empty(9, np.int32), np.empty(9))
    result = []
    for first in range(0, len(right.squares), 7):
        columns = first, min(first + 7, len(right.squares))
        row, last = 0, columns[1] if left is right else len(left.squares)
        while row < last:
            some = walk, (row, last), columns, bounds, probed, scoring(left, right, rule)
            found, row = shared_pairs(*some, left is right, room)
            result += zip(*(column[:found].tolist() for column in room), strict=True)
    return result


def test_few_pairs_that_are_far_from_the_bounds_are_scored() -> None:
    """Of pairs whose words tell little and whose vectors are at random, bounds by bytes leave out most."""
    generator, measure = np.random.default_rng(1), Measure("cosine", 1.0, 0.2)
    vectors = generator.normal(size=(300, 100)).astype(np.float16)
    bags = sparse.random_array((300, 50), density=0.2, rng=generator, format="csr", dtype=np.float32)
    side = side_of(Embeddings(np.arange(300), vectors, bags), rule_of(measure))
    nothing = np.zeros((1, 300), bool), np.zeros(300, np.int64)
    bounds = np.full(300, 0.25), np.full(300, 0.25)
    found = all_shared(side, side, (word_counts(bags), 300), bounds, Probed(*nothing, *nothing), measure)
    above = sum(score >= 0.25 for *_, score in found)
    assert 200 < above <= len(found) < 1.5 * above


@given(st.integers(0, 10**6))
def test_the_rarest_word_of_a_pair(seed: int) -> None:
    generator, rule = np.random.default_rng(seed), rule_of(MEASURES[0])
    one, other = (side_of(made_up(12, generator), rule) for _ in range(2))
    counts = generator.integers(1, 100, 40).astype(np.int32)
    for row, found in enumerate(rarest_shared(one, other, counts)):
        assert found == min((counts[word] for word in words_of(one, row) & words_of(other, row)), default=NO_WORD)


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.9, 1.0]))
def test_no_other_reach_finds_as_much_with_less_work(seed: int, recall: float) -> None:
    generator = np.random.default_rng(seed)
    archive = Archive(1_000, 12, generator.integers(0, 60, 300).astype(np.int32))
    ranks, rarest = generator.integers(0, 12, 50), generator.integers(1, 60, 50)
    rarest[generator.random(50) < 0.3] = NO_WORD
    sampled = Sampled(ranks, rarest)

    def found(probes: int, most: int) -> float:
        return float(((ranks < probes) | (rarest <= most)).mean())

    chosen = cheapest(sampled, recall, archive)
    assert found(chosen.probes, chosen.most) >= recall
    possible = [(probes, most) for probes in range(1, 13) for most in range(61) if found(probes, most) >= recall]
    assert chosen.share == pytest.approx(min(reach(*choice, archive).share for choice in possible))


def test_lists_alone_find_what_shares_no_word() -> None:
    ranks, nothing = np.arange(10), np.full(10, NO_WORD)
    chosen = cheapest(Sampled(ranks, nothing), 0.8, Archive(1_000, 40, np.zeros(0, np.int32)))
    assert (chosen.probes, chosen.most) == (8, 0)


def test_without_neighbours_to_tell_all_lists_are_probed() -> None:
    nothing = np.zeros(0, np.int64)
    chosen = cheapest(Sampled(nothing, nothing), 0.95, Archive(3, 2, np.zeros(0, np.int32)))
    assert (chosen.probes, chosen.most) == (2, 0)
