import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.links import split_links
from dupq.settings.sections import TrainingSettings

SETTINGS = TrainingSettings()
LINKS = st.lists(st.tuples(st.integers(0, 40), st.integers(41, 80)), min_size=30, max_size=60, unique=True)


@given(LINKS, st.randoms())
def test_no_link_crosses_two_parts_and_order_does_not_matter(
    links: list[tuple[int, int]], order: random.Random
) -> None:
    shuffled = list(links)
    order.shuffle(shuffled)
    split = split_links(np.array(links), SETTINGS)
    again = split_links(np.array(shuffled), SETTINGS)
    assert (split.parts == again.parts).all()
    part_of = dict(zip(split.questions.tolist(), split.parts.tolist(), strict=True))
    assert all(part_of[left] == part_of[right] for left, right in links)
    assert sum(len(split.links_of(part, np.array(links))) for part in ("train", "development", "test")) == len(links)


def test_parts_have_their_shares_of_the_sets() -> None:
    links = np.array([(2 * i, 2 * i + 1) for i in range(100)])
    split = split_links(links, SETTINGS)
    sizes = [len(split.questions_of(part)) // 2 for part in ("train", "development", "test")]
    assert sizes == [60, 20, 20]


@pytest.mark.parametrize("links", [[], [(1, 2)], [(1, 2), (3, 4), (4, 5)]])
def test_of_fewer_than_three_sets_all_are_development(links: list[tuple[int, int]]) -> None:
    array = np.array(links, np.int64).reshape(-1, 2)
    split = split_links(array, SETTINGS)
    assert split.questions_of("development").tolist() == sorted({end for link in links for end in link})
    assert split.parts.tolist() == ["development"] * len(split.questions)
    assert split.links_of("development", array).tolist() == array.tolist()
    assert split.set_of(np.array([99])).tolist() == [-1]
