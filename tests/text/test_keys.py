import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dupq.errors import DupqError
from dupq.text.keys import (
    MAXIMUM_ID,
    RowsByKey,
    Sites,
    are_among,
    are_pairs_among,
    distinct,
    hash_limit,
    indices_among,
    key_hashes,
    pair_indices,
    pair_numbers,
    proper_pairs,
    without,
)

KEYS = st.integers(-3, 12) | st.integers(0, (1 << 63) - 1)
PAIRS = st.tuples(KEYS, KEYS)


@given(st.sets(KEYS, max_size=12), arrays(np.int64, array_shapes(min_dims=1, max_dims=2, min_side=0), elements=KEYS))
def test_keys_are_found_where_a_dictionary_finds_them(found: set[int], wanted: np.ndarray) -> None:
    keys = np.array(sorted(found), np.int64)
    indices, are_there = indices_among(keys, wanted)
    expected = {key: index for index, key in enumerate(keys.tolist())}
    assert indices.shape == are_there.shape == wanted.shape
    for key, index, is_there in zip(wanted.ravel().tolist(), indices.ravel(), are_there.ravel(), strict=True):
        assert is_there == (key in expected)
        assert not is_there or index == expected[key]


@given(st.lists(KEYS), st.lists(KEYS))
def test_keys_are_each_there_once_and_without_others_as_of_sets(found: list[int], others: list[int]) -> None:
    keys = distinct(np.array(found, np.int64))
    assert keys.tolist() == sorted(set(found))
    assert distinct(np.array([found, found], np.int64)).tolist() == keys.tolist()
    assert without(keys, np.array(others, np.int64)).tolist() == sorted(set(found) - set(others))
    assert are_among(keys, np.array(others, np.int64)).tolist() == [other in found for other in others]


@given(st.lists(PAIRS, min_size=1))
def test_numbers_of_pairs_are_in_their_order(pairs: list[tuple[int, int]]) -> None:
    keys = distinct(np.array(pairs, np.int64))
    numbers = pair_numbers(keys, np.array(pairs, np.int64)).tolist()
    assert [pair for _, pair in sorted(zip(numbers, pairs, strict=True))] == sorted(pairs)
    assert len(set(numbers)) == len(set(pairs))


def test_labels_of_many_keys_are_those_of_each() -> None:
    sites = Sites(["b.example.com", "a.example.com"])
    keys = np.concatenate([sites.pack(site, np.array([0, 7, 1 << 40]), "") for site in sites.names])
    assert sites.labels(keys).to_pylist() == [sites.label(key) for key in keys.tolist()]
    assert sites.labels(keys[:0]).to_pylist() == []


@given(st.lists(KEYS | st.integers(-(1 << 63), -1)))
def test_keys_have_the_hashes_of_their_bytes(found: list[int]) -> None:
    expected = [xxhash.xxh3_64_intdigest(key.to_bytes(8, "little", signed=True)) for key in found]
    assert key_hashes(np.array(found, np.int64)).tolist() == expected


@given(st.sets(KEYS, min_size=1), st.integers(0, 12))
def test_a_limit_of_hashes_leaves_as_many_keys_as_are_wanted(found: set[int], most: int) -> None:
    keys = np.array(sorted(found), np.int64)
    inside = key_hashes(keys) <= np.uint64(hash_limit(keys, most))
    assert inside.sum() == min(len(keys), most)


@given(st.lists(KEYS, unique=True), st.data())
def test_rows_are_found_by_their_keys_in_any_order(keys: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(keys))) if keys else []
    rows = RowsByKey(np.array(keys, np.int64)).find(np.array(wanted, np.int64))
    assert rows.tolist() == [keys.index(key) for key in wanted]


SOME = [("b", 2), ("c", MAXIMUM_ID), ("b", 0), ("a", 2)]


def packed(rows: list[tuple[str, int]]) -> list[int]:
    table = pa.table({"site": pa.array([site for site, _ in rows], pa.string()), "id": [number for _, number in rows]})
    return Sites(["c", "a", "b"]).pack_columns(table["site"], table["id"].cast(pa.int64()), "here").tolist()


def test_columns_of_several_sites_are_packed_as_each_row_alone() -> None:
    assert packed(SOME) == [int(Sites(["a", "b", "c"]).pack(site, np.array([number]), "")[0]) for site, number in SOME]
    assert packed([]) == []


@pytest.mark.parametrize(
    ("row", "said"), [(("x", 1), "here: site 'x' is not among"), (("a", -1), "here: question_id -1")]
)
def test_a_row_that_cannot_be_packed_is_named(row: tuple[str, int], said: str) -> None:
    with pytest.raises(DupqError, match=said):
        packed([*SOME, row])


@given(st.lists(PAIRS, unique=True), st.lists(PAIRS))
def test_pairs_are_found_among_others_as_in_a_list(pairs: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    both = np.array(pairs, np.int64).reshape(-1, 2), np.array(wanted, np.int64).reshape(-1, 2)
    assert pair_indices(*both).tolist() == [pairs.index(pair) if pair in pairs else -1 for pair in wanted]
    assert are_pairs_among(*both).tolist() == [pair in pairs for pair in wanted]


@given(st.lists(PAIRS))
def test_proper_pairs_are_of_two_keys_the_smaller_first_each_once(pairs: list[tuple[int, int]]) -> None:
    found = proper_pairs(np.array(pairs, np.int64).reshape(-1, 2))
    assert list(map(tuple, found.tolist())) == sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
