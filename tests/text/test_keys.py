import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dupq.text.keys import hash_limit, key_hashes, places_among

KEYS = st.integers(-3, 12) | st.integers(0, (1 << 63) - 1)


@given(st.sets(KEYS, max_size=12), arrays(np.int64, array_shapes(min_dims=1, max_dims=2, min_side=0), elements=KEYS))
def test_keys_are_found_where_a_dictionary_finds_them(found: set[int], wanted: np.ndarray) -> None:
    keys = np.array(sorted(found), np.int64)
    places, are_there = places_among(keys, wanted)
    expected = {key: place for place, key in enumerate(keys.tolist())}
    assert places.shape == are_there.shape == wanted.shape
    for key, place, is_there in zip(wanted.ravel().tolist(), places.ravel(), are_there.ravel(), strict=True):
        assert is_there == (key in expected)
        assert not is_there or place == expected[key]


@given(st.lists(KEYS | st.integers(-(1 << 63), -1)))
def test_keys_have_the_hashes_of_their_bytes(found: list[int]) -> None:
    expected = [xxhash.xxh3_64_intdigest(key.to_bytes(8, "little", signed=True)) for key in found]
    assert key_hashes(np.array(found, np.int64)).tolist() == expected


@given(st.sets(KEYS, min_size=1), st.integers(0, 12))
def test_a_limit_of_hashes_leaves_as_many_keys_as_are_wanted(found: set[int], most: int) -> None:
    keys = np.array(sorted(found), np.int64)
    inside = key_hashes(keys) <= np.uint64(hash_limit(keys, most))
    assert inside.sum() == min(len(keys), most)
