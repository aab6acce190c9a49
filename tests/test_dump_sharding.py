"""Shards planned against an obvious twin: all rows sorted, and cut when the next key would be too much."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xml_contents import check_counts, document, link, question, read

from dupq.dump.contents import KINDS, Format, links_format, posts_format
from dupq.dump.parts import find_part, keys_of, member_of, merge, rejects_uri, write_part
from dupq.dump.posts import PostChoice
from dupq.dump.sharding import PartKeys, Planner, ShardLimits, ShardPlan, plan_shards


class Placed(NamedTuple):
    """A row, where it is, and about how many bytes it takes."""

    key: int
    part: str
    place: int
    size: int


Parts = list[list[tuple[int, int]]]  # of each part its rows' keys and sizes

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=12)
LIMITS = st.builds(ShardLimits, st.integers(1, 12), st.integers(1, 60), st.integers(1, 6), st.integers(1, 30))


def without_repeated_keys(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(dict(rows).items())


def moved_apart(parts: Parts) -> Parts:
    """Parts whose keys follow those of the part before, as in a dump."""
    return [[(key + 100 * number, size) for key, size in rows] for number, rows in enumerate(parts)]


UNORDERED = st.lists(ROWS, max_size=6)
ORDERED = UNORDERED.map(moved_apart)
UNIQUE_WITHIN = st.lists(ROWS.map(without_repeated_keys), max_size=6)
ANY = st.one_of(UNORDERED, ORDERED, UNIQUE_WITHIN, UNIQUE_WITHIN.map(moved_apart))


def part_keys(parts: Parts) -> list[PartKeys]:
    found = []
    for number, rows in enumerate(parts):
        keys, sizes = ([values[column] for values in sorted(rows)] for column in (0, 1))
        found.append(PartKeys(f"part-{number}", 0, np.array(keys, np.int64), np.array(sizes, np.int64)))
    return found


def placed(parts: Parts) -> list[Placed]:
    """All rows by key, those with the same key in the order of the parts."""
    rows = [
        Placed(key, f"part-{number}", place, size)
        for number, rows in enumerate(parts)
        for place, (key, size) in enumerate(sorted(rows))
    ]
    return sorted(rows, key=lambda row: row.key)


def cut_greedily(rows: Sequence[Placed], is_unique: bool, most_rows: int, most_bytes: int) -> Iterator[list[Placed]]:
    taken: list[Placed] = []
    row_count = byte_count = 0
    for _, group in groupby(rows, key=lambda row: row.key):
        same_key = list(group)
        counted = same_key[-1:] if is_unique else same_key
        more_rows, more_bytes = len(counted), sum(row.size for row in counted)
        if taken and (row_count + more_rows > most_rows or byte_count + more_bytes > most_bytes):
            yield taken
            taken, row_count, byte_count = [], 0, 0
        taken = taken + same_key
        row_count, byte_count = row_count + more_rows, byte_count + more_bytes
    if taken:
        yield taken


def expected(parts: Parts, is_unique: bool, limits: ShardLimits) -> list[list[list[Placed]]]:
    """The rows of each row group of each shard."""
    return [
        list(cut_greedily(shard, is_unique, limits.group_rows, limits.group_bytes))
        for shard in cut_greedily(placed(parts), is_unique, limits.shard_rows, limits.shard_bytes)
    ]


def places(shards: Sequence[ShardPlan]) -> list[list[list[tuple[str, int]]]]:
    """Which rows of which parts each row group is merged from, in the order of the parts."""
    return [
        [[(piece.part, place) for piece in group for place in range(piece.start, piece.stop)] for group in shard.groups]
        for shard in shards
    ]


@settings(max_examples=500, deadline=None)
@given(parts=ANY, is_unique=st.booleans(), limits=LIMITS)
def test_shards_are_the_sorted_rows_cut_when_full(parts: Parts, is_unique: bool, limits: ShardLimits) -> None:
    shards = plan_shards(part_keys(parts), is_unique, limits)

    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert places(shards) == [
        [sorted((row.part, row.place) for row in group) for group in shard]
        for shard in expected(parts, is_unique, limits)
    ]


@settings(max_examples=300, deadline=None)
@given(parts=ANY, is_unique=st.booleans(), limits=LIMITS)
def test_every_row_is_in_one_group_and_equal_keys_in_the_same(
    parts: Parts, is_unique: bool, limits: ShardLimits
) -> None:
    groups = [group for shard in places(plan_shards(part_keys(parts), is_unique, limits)) for group in shard]

    rows = {(row.part, row.place): row.key for row in placed(parts)}
    assert Counter(place for group in groups for place in group) == Counter(list(rows))
    keys = [{rows[place] for place in group} for group in groups]
    assert all(max(a) < min(b) for a, b in pairwise(keys))


@settings(max_examples=500, deadline=None)
@given(parts=st.one_of(ORDERED, UNIQUE_WITHIN.map(moved_apart)), is_unique=st.booleans(), limits=LIMITS)
def test_ordered_parts_give_the_same_shards_one_by_one(parts: Parts, is_unique: bool, limits: ShardLimits) -> None:
    planner = Planner(is_unique, limits)

    shards = [shard for part in part_keys(parts) for shard in planner.add(part)]
    shards += planner.finish()

    assert planner.is_ordered
    assert shards == plan_shards(part_keys(parts), is_unique, limits)


@settings(max_examples=300, deadline=None)
@given(parts=ANY, is_unique=st.booleans(), limits=LIMITS)
def test_what_is_planned_before_parts_turn_out_unordered_is_planned_no_more(
    parts: Parts, is_unique: bool, limits: ShardLimits
) -> None:
    planner = Planner(is_unique, limits)
    highest = -1
    for part in part_keys(parts):
        is_behind = planner.is_ordered and (not len(part.keys) or part.keys[0] > highest)
        highest = max([highest, *part.keys.tolist()])

        shards = planner.add(part)

        assert planner.is_ordered == is_behind
        assert is_behind or shards == []
    if not planner.is_ordered:
        assert planner.finish() == []


def test_a_planner_tells_a_shard_as_soon_as_its_last_row_is_known() -> None:
    planner = Planner(True, ShardLimits(shard_rows=4))
    parts = part_keys([[(key, 1) for key in range(start, start + 3)] for start in (0, 10, 20, 30)])

    planned = [[shard.number for shard in planner.add(part)] for part in parts]

    assert planned == [[], [0], [1], []]  # rows of 3, 6, 9 and 12
    assert [shard.number for shard in planner.finish()] == [2]


def test_an_equal_key_in_the_next_part_is_out_of_order() -> None:
    planner = Planner(True, ShardLimits(shard_rows=1))

    first, second = part_keys([[(1, 1), (2, 1)], [(2, 1), (3, 1)]])

    assert [len(planner.add(part)) for part in (first, second)] == [1, 0]
    assert not planner.is_ordered


def test_one_key_may_be_larger_than_the_limits() -> None:
    parts = part_keys([[(1, 5), (2, 500), (3, 5)], [(2, 5), (2, 5), (2, 5)]])

    unique = plan_shards(parts, True, ShardLimits(10, 9, 10, 9))
    all_kept = plan_shards(parts, False, ShardLimits(2, 1000, 2, 1000))

    assert places(unique) == [[[("part-0", 0)]], [[("part-0", 1), *(("part-1", place) for place in range(3))]],
                              [[("part-0", 2)]]]  # fmt: skip
    assert [len(shard[0]) for shard in places(all_kept)] == [1, 4, 1]


def test_no_rows_have_no_shards() -> None:
    planner = Planner(True, ShardLimits(5))

    assert plan_shards(part_keys([[], []]), True, ShardLimits(5)) == []
    assert planner.add(part_keys([[]])[0]) == planner.finish() == []


# What the slices of parts become

QUESTIONS = posts_format(PostChoice())


def written(folder: Path, rows: list[bytes], file_format: Format = QUESTIONS) -> list[PartKeys]:
    """Parts, each with these rows of XML, as those of files 0, 1, and so on."""
    found = []
    for number, part in enumerate(rows):
        contents = read(document(part, file_format.root), file_format)
        info = write_part(contents, f"{number:04d}-000000-000000", str(folder / "work"), str(folder / "rejects"))
        found.append(info.keys[file_format.tables[0]])
    return found


def merged(parts: list[PartKeys], table: str, limits: ShardLimits) -> tuple[list[pa.Table], Counter[int]]:
    """The row groups of all shards, and how many rows of each file were left out."""
    kind, left_out = KINDS[table], Counter[int]()
    groups = []
    for shard in plan_shards(parts, kind.is_unique, limits):
        for slices in shard.groups:
            rows, dropped = merge(slices, kind)
            groups.append(rows)
            left_out.update({member_of(part): count for part, count in dropped.items()})
    return groups, left_out


def test_of_questions_with_the_same_id_the_last_stays_and_its_part_loses_none(tmp_path: Path) -> None:
    parts = written(
        tmp_path,
        [
            question(5, Title="a") + question(1, Title="a") + question(9, Title="a"),
            question(1, Title="b") + question(9, Title="b"),
            question(9, Title="c") + question(2, Title="c"),
        ],
    )

    groups, left_out = merged(parts, "questions", ShardLimits(2))

    assert [
        list(zip(*group.select(["question_id", "title"]).to_pydict().values(), strict=True)) for group in groups
    ] == [
        [(1, "b"), (2, "c")],
        [(5, "a"), (9, "c")],
    ]
    assert left_out == {0: 2, 1: 1}


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=4), limits=LIMITS)
def test_rows_kept_and_left_out_are_all_rows(
    ids: list[list[int]], limits: ShardLimits, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [
        b"".join(question(number, Title=f"{part} {place}") for place, number in enumerate(numbers))
        for part, numbers in enumerate(ids)
    ]
    last = {number: f"{part} {place}" for part, numbers in enumerate(ids) for place, number in enumerate(numbers)}

    groups, left_out = merged(written(tmp_path_factory.mktemp("parts"), rows), "questions", limits)

    found = [(values["question_id"], values["title"]) for group in groups for values in group.to_pylist()]
    assert found == sorted(last.items())
    for part, numbers in enumerate(ids):
        kept = sum(title.startswith(f"{part} ") for _, title in found)
        assert len(set(numbers)) == kept + left_out[part]


@settings(max_examples=60, deadline=None)
@given(
    links=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8), min_size=1, max_size=4),
    limits=LIMITS,
)
def test_links_are_all_kept_and_sorted(
    links: list[list[tuple[int, int]]], limits: ShardLimits, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [b"".join(link(*ids) for ids in part) for part in links]

    parts = written(tmp_path_factory.mktemp("parts"), rows, links_format())
    groups, left_out = merged(parts, "links", limits)

    found = [(values["question_id"], values["related_id"]) for group in groups for values in group.to_pylist()]
    assert found == sorted(ids for part in links for ids in part)
    assert not left_out
    sources = [set(group.column("question_id").to_pylist()) for group in groups]
    assert all(max(a) < min(b) for a, b in pairwise(sources))


def test_only_the_wanted_rows_of_a_part_of_many_are_read(tmp_path: Path) -> None:
    ids = list(range(0, 9_000, 2))
    parts = written(tmp_path, [b"".join(question(number) for number in ids), question(4_001) + question(4_000)])

    groups, left_out = merged(parts, "questions", ShardLimits(1_000, group_rows=300))

    found = [group.column("question_id").to_pylist() for group in groups]
    assert [number for numbers in found for number in numbers] == sorted([*ids, 4_001])
    assert [len(numbers) for numbers in found] == [300, 300, 300, 100] * 4 + [300, 201]
    assert left_out == {0: 1}


def test_a_part_is_found_again_as_it_was_written(tmp_path: Path) -> None:
    choice = posts_format(PostChoice(answers=True))
    contents = read(document(question(2, Title="é" * 40) + question(1) + question("x")), choice)
    work, rejects = str(tmp_path / "work"), str(tmp_path / "rejects")

    assert find_part("0003-000000-000001", work, choice.tables) is None
    info = write_part(contents, "0003-000000-000001", work, rejects)
    again = find_part("0003-000000-000001", work, choice.tables)

    check_counts(contents)
    assert again is not None
    assert again.counts == info.counts == contents.counts
    assert Path(rejects_uri(rejects, "0003-000000-000001")).exists()
    for table, keys in info.keys.items():
        for other in (again.keys[table], keys_of(keys.part, KINDS[table])):
            assert (other.part, other.offset) == (keys.part, 0)
            assert other.keys.tolist() == keys.keys.tolist()
            assert other.sizes.tolist() == keys.sizes.tolist()
    assert info.keys["questions"].keys.tolist() == [1, 2]
    small, large = info.keys["questions"].sizes.tolist()
    assert large - small == len("é".encode()) * 40
    assert member_of(info.keys["questions"].part) == 3


@pytest.mark.parametrize("torn", ["questions", "answers"])
def test_a_torn_part_is_not_found(torn: str, tmp_path: Path) -> None:
    choice = posts_format(PostChoice(answers=True))
    work = str(tmp_path / "work")
    info = write_part(read(document(question(1) * 50), choice), "0000-000000-000000", work, str(tmp_path / "rejects"))
    file = Path(info.keys[torn].part)
    file.write_bytes(file.read_bytes()[:-20])

    assert find_part("0000-000000-000000", work, choice.tables) is None
