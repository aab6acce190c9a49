"""The search of inverted lists, where a span of lists has no questions."""

import numpy as np
import pytest

from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.listed import Listed, search_listed
from dupq.neighbours.measure import Measure
from dupq.neighbours.tiles import Search, Tile, block


def listed(count: int, lists: list[int], first: int, stop: int) -> Listed:
    vectors = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float16)
    made = block(Embeddings(np.arange(count) + 100 * first, vectors), Measure())
    return Listed(made, np.tile(np.array(lists, np.int32), (count, 1)), first, stop)


@pytest.mark.parametrize("is_left_empty", [True, False])
def test_a_span_without_questions_is_not_searched_though_others_probe_its_lists(
    is_left_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(tile: Tile) -> None:
        raise AssertionError("both sides have questions")

    monkeypatch.setattr(Tile, "begin", begin)
    full, empty = listed(6, [0, 3], 0, 2), listed(0, [0, 0], 2, 5)
    assert empty.probed_by(full).any()
    sides = (empty, full) if is_left_empty else (full, empty)
    for side, found in zip(sides, search_listed(*sides, Search(Measure(), 3)), strict=True):
        assert found.others.shape == (len(side.block.keys), 3)
        assert (found.others == -1).all()
        assert not found.above.any()
