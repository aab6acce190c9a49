import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dupq.text.keys import places_among

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
