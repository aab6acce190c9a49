"""Which pairs a worklist proposes, and how it words their evidence."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.clusters.decision import Titled, Wording, likeliest, unlinked
from dupq.text.questions import BUCKETS, bucket_of

PAIR = {"source": "encoder", "jaccard": None, "text_overlap": 0.2, "title_overlap": 0.9, "rank": 2, "reranker": None}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.1, 0.5, 0.9])), max_size=30))
def test_the_likeliest_come_first_and_one_between_two_clusters(drawn: list[tuple[int, int, float]]) -> None:
    rows = [(min(one, other), max(one, other), p) for one, other, p in drawn if one // 3 != other // 3]
    found = likeliest(
        np.array([row[:2] for row in rows], np.int64).reshape(-1, 2),
        np.array([row[2] for row in rows], np.float32),
        np.array([row[:2] for row in rows], np.int64).reshape(-1, 2) // 3,
        4,
    )
    expected: list[int] = []
    for place in sorted(range(len(rows)), key=lambda place: (-rows[place][2], rows[place][:2], place)):
        between = {rows[place][0] // 3, rows[place][1] // 3}
        if all(between != {rows[other][0] // 3, rows[other][1] // 3} for other in expected):
            expected.append(place)
    assert found.tolist() == expected[:4]


def test_of_pairs_that_nobody_linked_fewer_are_duplicates() -> None:
    random = np.random.default_rng(5)
    is_duplicate = random.random(400_000) < 0.6
    is_linked = is_duplicate & (random.random(400_000) < 0.7)
    assert unlinked(np.array([0.6]), 0.7)[0] == pytest.approx(is_duplicate[~is_linked].mean(), abs=0.005)
    p = np.array([0.0, 0.2, 0.9, 1.0])
    assert unlinked(p, 0.0).tolist() == p.tolist()
    assert (np.diff(unlinked(p, 0.9)) > 0).all()


@pytest.mark.parametrize(
    ("pair", "left", "right", "told"),
    [
        ({}, ("A transit visa for Ireland?", ["visas"]), ("Do I need visas in transit?", ["visas", "ireland"]),
         "titles share 'visa', 'transit'; differ: 'ireland' / 'need'; 2nd nearest of 4,919; tags share 'visas'"),
        ({"rank": 11, "text_overlap": 0.7, "reranker": 0.912}, ("How do I  do it", ["a"]), ("how do I do it", ["a"]),
         "same title; texts much alike; the reranker's cosine is 0.91; 11th nearest of 4,919; same tags"),
        ({"text_overlap": 0.9}, ("C#", []), ("c# or f#", []),
         "titles share 'c#'; only one title has 'f#'; 2nd nearest of 4,919"),
        ({"rank": None}, ("C# and C++", []), ("Trains", ["rail"]),
         "titles share no telling word; beyond the 10 nearest of each; no tag in common"),
        ({"source": "near_duplicate", "jaccard": 0.834, "rank": None}, ("C#", []), ("c# or f#", []),
         "titles share 'c#'; only one title has 'f#'; 83% of the shingles of both texts are the same"),
    ],
)  # fmt: skip
def test_evidence_is_told_in_words(pair: dict[str, Any], left: Any, right: Any, told: str) -> None:
    rarities = np.ones(BUCKETS, np.float32)
    rarities[[bucket_of("visa"), bucket_of("transit")]] = 5, 3
    wording = Wording("english", rarities, 4_919, 10)
    assert wording.evidence(PAIR | pair, Titled(*left), Titled(*right)) == told


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ("A visa for 90 days or over", "A visa for under 90 days", "; differ: 'over' / 'under'"),
        ("Can I fly without a visa?", "Can I fly with a visa?", "; only one title has 'without'"),
        ("Why can pigs have a visa?", "Why can't pigs have a visa?", "; only one title has 'not'"),
        ("From a visa to a passport", "From a passport to a visa", "; in another order"),
        ("A new visa", "The new visas", ""),
    ],
)
def test_evidence_says_where_titles_that_share_words_differ(left: str, right: str, told: str) -> None:
    wording = Wording("english", np.zeros(BUCKETS, np.float32), 4_919, 10)
    said = wording.evidence(PAIR, Titled(left, []), Titled(right, []))
    assert said.startswith("titles share ")
    assert said.removesuffix("; 2nd nearest of 4,919").endswith(told or "'visa'")
