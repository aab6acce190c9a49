"""How the search is cut: blocks, groups of some of their questions, and waves of tiles."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dupq.neighbours.search_plan import Span, block_rows, cut, plan_in, waves


def numbered(sizes: list[int]) -> list[list[int]]:
    return [[100 * group + number for number in range(size)] for group, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 40), max_size=4))
def test_waves_have_all_pairs_of_a_group_once(sizes: list[int]) -> None:
    groups = numbered(sizes)
    found = [tile for wave in waves(groups) for tile in wave]
    assert sorted(found) == sorted(pair for group in groups for pair in combinations(group, 2))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_each_wave_doubles_what_a_block_has_met(sizes: list[int]) -> None:
    groups = numbered(sizes)
    met = {block: 0 for group in groups for block in group}
    for number, wave in enumerate(waves(groups), 1):
        for group in groups:
            for block in group:
                met[block] += sum(block in tile for tile in wave)
                assert met[block] == min(len(group) - 1, 2 * (2**number - 1))


def test_blocks_have_consecutive_rows_and_those_of_a_site_no_others_where_only_these_are_compared() -> None:
    files = [("0", "a", 5), ("1", "a", 0), ("2", "a", 4), ("3", "b", 2)]
    plan = plan_in(cut(files, "all", 4), "all")
    assert plan.blocks == [[Span("0", 0, 4)], [Span("0", 4, 5), Span("2", 0, 3)], [Span("2", 3, 4), Span("3", 0, 2)]]
    assert (plan.sizes, plan.questions, plan.groups) == ([4, 4, 3], 11, [[0, 1, 2]])
    plan = plan_in(cut(files, "site", 4), "site")
    assert plan.blocks[2:] == [[Span("2", 3, 4)], [Span("3", 0, 2)]]
    assert plan.groups == [[0, 1, 2], [3]]
    assert plan.filled([1, 3, 1, 1]) == [[0, 1], [2], [3]]
    assert plan_in(cut([("0", "a", 0)], "all", 4), "all").blocks == []


def test_blocks_fill_the_memory_at_hand_and_give_every_core_some_tiles() -> None:
    assert block_rows(200_000, 4_000, 8 << 30, 2) == 50_000
    assert block_rows(10**7, 4_000, 8 << 30, 2) == 131_072
    assert block_rows(10**7, 4_000, 1 << 30, 2) == (1 << 28) // 8_000
    assert block_rows(5_000, 4_000, 8 << 30, 2) == 8_192
    assert block_rows(0, 4_000, 8 << 30, 64) >= 1
