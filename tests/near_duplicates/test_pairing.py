"""Bands and rows, band keys, buckets, chains, exact copies and boilerplate, against slow twins."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from dupq.near_duplicates import pairing
from dupq.near_duplicates.minhash import band_keys, bands_of
from dupq.near_duplicates.pairing import (
    boilerplate,
    bucket_pairs,
    candidate_pairs,
    copies,
    most_titles,
    shared,
    titled_shingles,
    without_boilerplate,
)
from dupq.near_duplicates.shingles import shingle_sets
from dupq.settings.sections import NearDuplicateSettings


def slow_optimum(threshold: float, permutations: int) -> tuple[int, int]:
    """The bands and rows with the smallest weighted area, by integrating the curve of each choice."""

    def area(bands: int, rows: int) -> float:
        in_vain = quad(lambda s: 1 - (1 - s**rows) ** bands, 0, threshold)[0]
        lost = quad(lambda s: (1 - s**rows) ** bands, threshold, 1)[0]
        return 0.001 * in_vain + 0.999 * lost

    choices = [(b, r) for b in range(1, permutations + 1) for r in range(1, permutations // b + 1)]
    return min(choices, key=lambda choice: area(*choice))


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9])
def test_bands_and_rows_are_the_optimum(threshold: float) -> None:
    assert bands_of(NearDuplicateSettings(threshold=threshold, permutations=64)) == slow_optimum(threshold, 64)


def test_the_default_loses_fewer_than_five_in_a_thousand_at_the_threshold_itself() -> None:
    settings = NearDuplicateSettings()
    bands, rows = bands_of(settings)
    assert (bands, rows) == (21, 6)
    curve = 1 - (1 - np.array([0.2, 0.5, settings.threshold, 0.9]) ** rows) ** bands
    assert curve == pytest.approx([0.0013, 0.2816, 0.9983, 1.0], abs=1e-4)


def slow_key(values: list[int], band: int) -> int:
    key = band + 1
    for value in values:
        key = ((key ^ value) * 0x9E3779B97F4A7C15) % 2**64
        key ^= key >> 32
    return key


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6), max_size=4))
def test_band_keys_equal_those_of_plain_integers(signatures: list[list[int]]) -> None:
    found = band_keys(np.array(signatures, np.uint32).reshape(-1, 6), 3, 2)
    expected = [[slow_key(row[2 * band : 2 * band + 2], band) for band in range(3)] for row in signatures]
    assert found.tolist() == expected


def slow_pairs(texts: list[tuple[int, int, int]], links: int, limit: int) -> tuple[set[tuple[int, int]], int]:
    """The pairs of members of rows (bucket, order, member), bucket by bucket, and the number of oversized ones."""
    pairs, oversized = set(), 0
    for bucket in {bucket for bucket, _, _ in texts}:
        chain = [member for _, _, member in sorted(row for row in texts if row[0] == bucket)]
        reach = 1 if len(chain) > limit else links
        oversized += len(chain) > limit
        for place, member in enumerate(chain):
            pairs |= {(min(member, other), max(member, other)) for other in chain[place + 1 : place + 1 + reach]}
    return pairs, oversized


def with_limits(links: int, limit: int, find: Callable[..., Any], *arrays: np.ndarray) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "LINKS", links)
        patch.setattr(pairing, "LIMIT", limit)
        return find(*arrays)


ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 7, 2**64 - 1]), st.integers(0, 3)), max_size=25)


@given(ROWS, st.integers(1, 4), st.integers(1, 8), st.randoms())
def test_buckets_are_chained_as_the_slow_twin_does_whatever_the_order(rows, links, limit, order) -> None:
    texts = [(bucket, place, member) for member, (bucket, place) in enumerate(rows, 10)]
    expected, expected_oversized = slow_pairs(texts, links, limit)
    order.shuffle(texts)
    columns = list(zip(*texts, strict=True)) or [(), (), ()]
    arrays = [np.array(c, t) for c, t in zip(columns, (np.uint64, np.uint64, np.int64), strict=True)]
    found, oversized = with_limits(links, limit, bucket_pairs, *arrays)
    pairs = arrays[2][found].tolist()
    assert {tuple(pair) for pair in pairs} == expected
    assert len(pairs) == len(expected)
    assert oversized == expected_oversized


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12), st.randoms())
def test_the_candidates_of_small_buckets_are_all_pairs_that_share_a_band(rows, order) -> None:
    texts = list(enumerate(rows, 5))
    expected = sorted((a, b) for (a, x), (b, y) in itertools.combinations(texts, 2) if any(map(int.__eq__, x, y)))
    order.shuffle(texts)
    keys = np.array([row for _, row in texts], np.uint64).reshape(-1, 3)
    pairs, oversized = candidate_pairs(keys, np.array([member for member, _ in texts], np.int64))
    assert [tuple(pair) for pair in pairs.tolist()] == expected
    assert oversized == 0


def test_a_bucket_of_200_000_gives_no_more_pairs_than_members() -> None:
    members = np.random.default_rng(1).permutation(200_000)
    pairs, oversized = candidate_pairs(np.zeros((200_000, 2), np.uint64), members)
    assert oversized == 2
    assert pairs.tolist() == [[member, member + 1] for member in range(199_999)]


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=60))
def test_keys_that_stand_twice_are_shared(keys: list[int]) -> None:
    assert shared(np.array(keys, np.uint64)).tolist() == [keys.count(key) > 1 for key in keys]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20), st.randoms())
def test_each_copy_is_paired_with_the_smallest_key_of_its_text(hashes, order) -> None:
    texts = [(high, low, key) for key, (high, low) in enumerate(hashes, 100)]
    smallest: dict[tuple[int, int], int] = {}
    for high, low, key in texts:
        smallest.setdefault((high, low), key)
    expected = {key: smallest[high, low] for high, low, key in texts if smallest[high, low] != key}
    order.shuffle(texts)
    columns = list(zip(*texts, strict=True)) or [(), (), ()]
    high, low, keys = (np.array(c, t) for c, t in zip(columns, (np.uint64, np.uint64, np.int64), strict=True))
    rows, originals = copies(high, low, keys)
    assert dict(zip(keys[rows].tolist(), keys[originals].tolist(), strict=True)) == expected
    assert len(rows) == len(expected)


TEXT = st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "a b", "c"]), TEXT), max_size=12), st.integers(0, 3))
def test_what_stands_under_more_titles_than_allowed_goes(questions: list[tuple[str, str]], most: int) -> None:
    titles, texts = (pa.array([row[side] for row in questions], pa.string()) for side in (0, 1))
    sets = shingle_sets(texts, 1)
    common = boilerplate(titled_shingles(sets, titles, texts), most)
    under = {(word, title) for title, text in questions if title != text for word in text.split()}
    counts = Counter(word for word, _ in under)
    kept = [" ".join(word for word in text.split() if counts[word] <= most) for _, text in questions]
    expected = shingle_sets(pa.array(kept, pa.string()), 1)
    found = without_boilerplate(sets, common)
    assert found.hashes.tolist() == expected.hashes.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()


def test_of_a_large_archive_more_titles_may_share_a_shingle() -> None:
    assert [most_titles(count) for count in (0, 5_999, 6_000, 200_000)] == [5, 5, 6, 200]
    assert boilerplate(np.zeros((0, 2), np.uint64), 5).tolist() == []
