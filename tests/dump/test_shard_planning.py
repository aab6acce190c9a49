"""Shards planned against an obvious twin: all rows sorted, and cut when the next key would be too much."""

import pickle
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
from xml_contents import answer, check_counts, document, link, question, read

from dupq.dump.parsing import KINDS, Format, links_format, posts_format
from dupq.dump.shards.merging import row_groups
from dupq.dump.shards.parts import find_part, in_turn, keys_of, member_of, read_rows, rejects_uri, row_sizes, write_part
from dupq.dump.shards.planning import PartKeys, Planner, ShardLimits, ShardPlan, plan_shards
from dupq.dump.shards.range_planning import key_spool, parts_of, plan_parts, plan_spooled
from dupq.dump.xml.posts import PostChoice


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
        found.append(PartKeys(f"part-{number}", np.array(keys, np.int64), np.array(sizes, np.int32)))
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


def places(shards: Sequence[ShardPlan], parts: Parts) -> list[list[list[tuple[str, int]]]]:
    """Which rows of which parts each row group is merged from, in the order of the parts."""
    keys = {part.part: part.keys.tolist() for part in part_keys(parts)}
    return [
        [
            [
                (part, place)
                for part in shard.parts
                for place, key in enumerate(keys[part])
                if group.first <= key <= group.last
            ]
            for group in shard.groups
        ]
        for shard in shards
    ]


@settings(max_examples=500, deadline=None)
@given(parts=ANY, is_unique=st.booleans(), limits=LIMITS)
def test_shards_are_the_sorted_rows_cut_when_full(parts: Parts, is_unique: bool, limits: ShardLimits) -> None:
    shards = plan_shards(part_keys(parts), is_unique, limits)

    assert [shard.number for shard in shards] == list(range(len(shards)))
    shown = [
        [sorted((row.part, row.place) for row in group) for group in shard]
        for shard in expected(parts, is_unique, limits)
    ]
    assert places(shards, parts) == shown
    touched = [tuple(sorted({part for group in shard for part, _ in group})) for shard in shown]
    assert [shard.parts for shard in shards] == touched
    first_and_last = [
        [(group[0].key, group[-1].key) for group in shard] for shard in expected(parts, is_unique, limits)
    ]
    assert [list(map(tuple, shard.groups)) for shard in shards] == first_and_last


@settings(max_examples=500, deadline=None)
@given(
    parts=ANY, is_unique=st.booleans(), limits=LIMITS, range_rows=st.integers(1, 40), sample=st.sampled_from([1, 2, 5])
)
def test_planned_range_by_range_the_shards_are_the_same(
    parts: Parts, is_unique: bool, limits: ShardLimits, range_rows: int, sample: int
) -> None:
    with key_spool(sample) as spool:
        for part in part_keys(parts):
            spool.add(part)
        shards = plan_spooled(spool, is_unique, limits, range_rows)

    planned = plan_shards(part_keys(parts), is_unique, limits)
    assert shards == [shard._replace(parts=()) for shard in planned]


@settings(max_examples=300, deadline=None)
@given(parts=ANY, range_rows=st.integers(1, 40), sample=st.sampled_from([1, 2, 5]))
def test_ranges_have_every_row_once_in_order_and_are_of_bounded_size(
    parts: Parts, range_rows: int, sample: int
) -> None:
    with key_spool(sample) as spool:
        for part in part_keys(parts):
            spool.add(part)
        ranges = list(spool.ranges(range_rows))

    rows = {part.part: [*zip(part.keys.tolist(), part.sizes.tolist(), strict=True)] for part in part_keys(parts)}
    found: dict[str, list[tuple[int, int]]] = {part: [] for part in rows}
    for pieces in ranges:
        for piece in pieces:
            found[piece.part] += zip(piece.keys.tolist(), piece.sizes.tolist(), strict=True)
    assert found == rows
    keys = [[key for piece in pieces for key in piece.keys.tolist()] for pieces in ranges]
    assert all(max(a) < min(b) for a, b in pairwise(keys))
    of_one_key = max((max(Counter(one).values()) for one in keys), default=0)
    largest = max(sample, range_rows) + len(parts) * sample + of_one_key
    assert all(len(one) <= largest for one in keys)


@settings(max_examples=300, deadline=None)
@given(parts=ANY, is_unique=st.booleans(), limits=LIMITS)
def test_every_row_is_in_one_group_and_equal_keys_in_the_same(
    parts: Parts, is_unique: bool, limits: ShardLimits
) -> None:
    shards = plan_shards(part_keys(parts), is_unique, limits)
    groups = [group for shard in places(shards, parts) for group in shard]

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
    parts: Parts = [[(1, 5), (2, 500), (3, 5)], [(2, 5), (2, 5), (2, 5)]]

    unique = plan_shards(part_keys(parts), True, ShardLimits(10, 9, 10, 9))
    all_kept = plan_shards(part_keys(parts), False, ShardLimits(2, 1000, 2, 1000))

    assert places(unique, parts) == [[[("part-0", 0)]], [[("part-0", 1), *(("part-1", place) for place in range(3))]],
                              [[("part-0", 2)]]]  # fmt: skip
    assert [len(shard[0]) for shard in places(all_kept, parts)] == [1, 4, 1]


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


def merged(shards: Sequence[ShardPlan], table: str) -> tuple[list[pa.Table], Counter[int]]:
    """The row groups of all shards, and how many rows of each file were left out."""
    left_out = Counter[int]()
    groups = []
    for shard in shards:
        for rows, dropped in row_groups(shard, KINDS[table]):
            assert all(dropped.values())
            groups.append(rows)
            left_out.update({member_of(part): count for part, count in dropped.items()})
    return groups, left_out


def planned_both_ways(parts: list[PartKeys], table: str, limits: ShardLimits, folder: Path) -> list[list[ShardPlan]]:
    """The shards as planned from keys in memory, and from files, with a catalogue."""
    in_memory = plan_shards(parts, KINDS[table].is_unique, limits)
    catalogue = str(folder / "parts.parquet")
    from_files = plan_parts([part.part for part in parts], KINDS[table], limits, catalogue)
    assert from_files == [shard._replace(parts=(), catalogue=catalogue) for shard in in_memory]
    for shard, same in zip(in_memory, from_files, strict=True):
        assert set(shard.parts) <= set(parts_of(same)) <= {part.part for part in parts}
    return [in_memory, from_files]


def test_of_questions_with_the_same_id_the_last_stays_and_its_part_loses_none(tmp_path: Path) -> None:
    parts = written(
        tmp_path,
        [
            question(5, Title="a") + question(1, Title="a") + question(9, Title="a"),
            question(1, Title="b") + question(9, Title="b"),
            question(9, Title="c") + question(2, Title="c"),
        ],
    )

    groups, left_out = merged(plan_shards(parts, True, ShardLimits(2)), "questions")

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

    folder = tmp_path_factory.mktemp("parts")
    for shards in planned_both_ways(written(folder, rows), "questions", limits, folder):
        groups, left_out = merged(shards, "questions")

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

    folder = tmp_path_factory.mktemp("parts")
    for shards in planned_both_ways(written(folder, rows, links_format()), "links", limits, folder):
        groups, left_out = merged(shards, "links")

        found = [(values["question_id"], values["related_id"]) for group in groups for values in group.to_pylist()]
        assert found == sorted(ids for part in links for ids in part)
        assert not left_out
        sources = [set(group.column("question_id").to_pylist()) for group in groups]
        assert all(max(a) < min(b) for a, b in pairwise(sources))


def test_only_the_wanted_rows_of_a_part_of_many_are_read(tmp_path: Path) -> None:
    ids = list(range(0, 9_000, 2))
    parts = written(tmp_path, [b"".join(question(number) for number in ids), question(4_001) + question(4_000)])

    groups, left_out = merged(plan_shards(parts, True, ShardLimits(1_000, group_rows=300)), "questions")

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
        for other in (again.keys[table], keys_of(keys.part)):
            assert other.part == keys.part
            assert other.keys.tolist() == keys.keys.tolist()
            assert other.sizes.tolist() == keys.sizes.tolist()
    assert info.keys["questions"].keys.tolist() == [1, 2]
    small, large = info.keys["questions"].sizes.tolist()
    assert large - small == len("é".encode()) * 40
    assert member_of(info.keys["questions"].part) == 3


@pytest.fixture
def part_files(tmp_path: Path) -> list[Path]:
    """The files of a part of two tables, `0000-000000-000000` in `tmp_path`/work."""
    rows = question(1, Body="b" * 9_000) * 50 + answer(2, 1, Body="c" * 9_000)
    contents = read(document(rows), posts_format(PostChoice(answers=True)))
    write_part(contents, "0000-000000-000000", str(tmp_path / "work"), str(tmp_path / "rejects"))
    return sorted(path for path in (tmp_path / "work").rglob("*") if path.is_file())


def is_found(folder: Path) -> bool:
    return find_part("0000-000000-000000", str(folder / "work"), ("questions", "answers")) is not None


def test_a_part_that_lacks_a_file_or_is_torn_anywhere_is_not_found(part_files: list[Path], tmp_path: Path) -> None:
    assert [f"{path.parent.name}{path.suffix}" for path in part_files] == [
        "answers.arrow",
        "answers.keys",
        "questions.arrow",
        "questions.keys",
    ]
    for path in part_files:
        whole = path.read_bytes()
        middle = len(whole) // 2
        torn = {
            "cut short": whole[:-20],
            "empty": b"",
            "of less than a digest": whole[:5],
            "zeros": bytes(len(whole)),
            "zeros in the middle": whole[: middle - 8] + bytes(16) + whole[middle + 8 :],
            "zeros in front": bytes(64) + whole[64:],
            "one bit": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        }
        assert is_found(tmp_path)
        for how, content in torn.items():
            path.write_bytes(content)
            assert not is_found(tmp_path), (path, how)
        path.unlink()
        assert not is_found(tmp_path), path
        path.write_bytes(whole)
    assert is_found(tmp_path)


def test_sizes_count_all_texts_and_tags() -> None:
    tags = [["a", "é"], [], ["ccc"], [], ["d" * 50, "", "e"]]
    titles = ["", "é", None, "abc", "x"]
    table = pa.table({"id": list(range(5)), "title": titles, "tags": pa.array(tags, pa.list_(pa.string()))})

    def slow(title: str | None, names: list[str]) -> int:
        return 100 + len((title or "").encode()) + sum(len(name.encode()) + 4 for name in names)

    sizes = [slow(*row) for row in zip(titles, tags, strict=True)]
    assert row_sizes(table).tolist() == sizes
    assert row_sizes(table.slice(1, 3)).tolist() == sizes[1:4]
    assert row_sizes(pa.concat_tables([table.slice(3), table.slice(0, 3)])).tolist() == sizes[3:] + sizes[:3]
    assert row_sizes(table.slice(0, 0)).tolist() == []
    assert row_sizes(table).dtype == np.int32


def test_few_rows_of_a_part_do_not_keep_the_others(tmp_path: Path) -> None:
    (part,) = written(tmp_path, [b"".join(question(number, Body="b" * 5_000) for number in range(2_500))])
    some, most = np.zeros(2_400, np.bool_), np.ones(2_400, np.bool_)
    some[[0, 7, 2_399]] = True

    few, many = read_rows(part.part, 100, some), read_rows(part.part, 100, most)

    assert few.column("question_id").to_pylist() == [100, 107, 2_499]
    assert few.get_total_buffer_size() < 3 * 6_000
    assert many.column("question_id").to_pylist() == list(range(100, 2_500))
    assert many.get_total_buffer_size() < 2 * many.nbytes


def test_parts_without_rows_are_in_no_catalogue(tmp_path: Path) -> None:
    parts = written(tmp_path, [b"", question(7) + question(3), b"", question(5)])

    assert plan_parts([parts[0].part], KINDS["questions"], ShardLimits(9), str(tmp_path / "none.parquet")) == []
    (shard,) = plan_parts(
        [part.part for part in parts], KINDS["questions"], ShardLimits(9), str(tmp_path / "some.parquet")
    )

    assert parts_of(shard) == (parts[1].part, parts[3].part)
    assert list(row_groups(ShardPlan(0, ()), KINDS["questions"])) == []


def shuffled(folder: Path, body: str = "") -> list[PartKeys]:
    """40 parts of 150 questions, every shard with rows of each of them."""
    ids = np.random.default_rng(1).permutation(6_000).reshape(40, 150).tolist()
    return written(folder, [b"".join(question(number, Body=body) for number in numbers) for numbers in ids])


def test_a_plan_is_small_however_many_parts_have_a_row_of_each_shard(tmp_path: Path) -> None:
    parts = shuffled(tmp_path)

    shards = plan_parts(
        [part.part for part in parts], KINDS["questions"], ShardLimits(600), str(tmp_path / "parts.parquet")
    )

    assert [len(parts_of(shard)) for shard in shards] == [40] * 10
    assert len(pickle.dumps(shards)) < 100 * len(shards) + len(str(tmp_path)) + 500


def test_a_row_group_of_many_parts_does_not_keep_their_other_rows(tmp_path: Path) -> None:
    parts = shuffled(tmp_path, "b" * 3_000)

    for shard in plan_shards(parts, True, ShardLimits(600, group_rows=300)):
        for rows, _ in row_groups(shard, KINDS["questions"]):
            assert len(rows) == 300
            assert rows.get_total_buffer_size() < 2 * rows.nbytes


def test_parts_on_s3_are_found_planned_and_merged_like_local_ones(tmp_path: Path, s3: str) -> None:
    ids = [[5, 1, 9], [], [1, 9], [9, 2, 30, 31]]
    contents = [
        read(document(b"".join(question(number, Title=f"{part}") for number in numbers)), QUESTIONS)
        for part, numbers in enumerate(ids)
    ]

    def made(folder: str) -> tuple[list[pa.Table], Counter[int]]:
        names = [f"{number:04d}-000000-000000" for number in range(len(ids))]
        assert find_part(names[0], folder, ("questions",)) is None
        for name, content in zip(names, contents, strict=True):
            write_part(content, name, folder, folder)
        found = [find_part(name, folder, ("questions",)) for name in names]
        assert [part.counts for part in found if part] == [content.counts for content in contents]
        parts = [part.keys["questions"].part for part in found if part]
        return merged(plan_parts(parts, KINDS["questions"], ShardLimits(4), f"{folder}/parts.parquet"), "questions")

    local, on_s3 = made(str(tmp_path)), made(f"{s3}/parts-of-a-test")
    assert on_s3 == local
    assert [group.column("question_id").to_pylist() for group in on_s3[0]] == [[1, 2, 5, 9], [30, 31]]
    assert on_s3[1] == {0: 2, 2: 1}


def test_items_are_worked_on_a_few_at_a_time_and_given_in_their_order() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return item * item

    for at_once in (1, 3):
        begun.clear()
        given = []
        for result in in_turn(work, range(20), at_once):
            given.append(result)
            assert len(begun) <= len(given) + at_once - 1
        assert given == [item * item for item in range(20)]
