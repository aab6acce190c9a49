"""Shingles that stand under many titles."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dupq.near_duplicates.pairing import boilerplate, most_titles, titled_shingles, without_boilerplate
from dupq.near_duplicates.shingles import shingle_sets

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
