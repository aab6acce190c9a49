"""The plan of a search: blocks, their groups, and waves of tiles."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from searched import search_request

from dupq import storage
from dupq.job.table import Table
from dupq.stages.search.blocks import Questions, Span, block_rows, blocks_of, groups_of, pack, plan_blocks, waves
from dupq.tables import BLOCKS, EMBEDDED


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


def blocks_in(folder: Path, files: list[tuple[str, str, int]], scope: Literal["all", "site"]) -> list[Questions]:
    plan = Table(str(folder / scope), BLOCKS, 1)
    storage.write_table(plan.file(0), plan_blocks(files, scope, 4), BLOCKS)
    return blocks_of(plan, Table("", EMBEDDED, len(files)), search_request(scope=scope))


def spans_of(blocks: list[Questions]) -> list[list[tuple[str, int, int]]]:
    return [[(storage.name(span.file), span.start, span.stop) for span in block.spans] for block in blocks]


def test_blocks_have_consecutive_rows_and_those_of_a_site_no_others_where_only_these_are_compared(
    tmp_path: Path,
) -> None:
    files = [("0", "a", 5), ("1", "a", 0), ("2", "a", 4), ("3", "b", 2)]
    blocks = blocks_in(tmp_path, files, "all")
    assert spans_of(blocks) == [[("0", 0, 4)], [("0", 4, 5), ("2", 0, 3)], [("2", 3, 4), ("3", 0, 2)]]
    assert ([block.size for block in blocks], groups_of(blocks)) == ([4, 4, 3], [[0, 1, 2]])
    blocks = blocks_in(tmp_path, files, "site")
    assert spans_of(blocks)[2:] == [[("2", 3, 4)], [("3", 0, 2)]]
    assert groups_of(blocks) == [[0, 1, 2], [3]]
    a, b, c, d = (replace(block, spans=(Span("", 0, rows),)) for block, rows in zip(blocks, [1, 3, 1, 1], strict=True))
    assert pack([a, b, c, d], 4) == [[a, b], [c], [d]]
    assert blocks_in(tmp_path / "empty", [("0", "a", 0)], "all") == []


def test_blocks_fill_the_memory_at_hand_and_give_every_core_some_tiles() -> None:
    assert block_rows(200_000, 4_000, 8 << 30, 2) == 50_000
    assert block_rows(10**7, 4_000, 8 << 30, 2) == 131_072
    assert block_rows(10**7, 4_000, 1 << 30, 2) == (1 << 28) // 8_000
    assert block_rows(5_000, 4_000, 8 << 30, 2) == 8_192
    assert block_rows(0, 4_000, 8 << 30, 64) >= 1
