"""The runner: tables from tables, each verb against the same in memory, and attempts that end anywhere."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from inline import without_ray
from run_tables import by_home, contents, cut_off, home_of, question_row, table, write_rows

from dupq import storage
from dupq.archive import Shard, pinned
from dupq.errors import DupqError, LeaseError
from dupq.job.run import Run
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Computed, InBatches, Partition, Shards, Streamed, Table, subdivided, zipped
from dupq.kinds import ANY, JSON, streamed
from dupq.settings.config import Settings
from dupq.tables import KEYS, QUESTIONS

NUMBERS = pa.schema([pa.field("key", pa.int64(), False), pa.field("number", pa.int64(), False)])
PARTITIONS = 3
ROWS = [{"key": key * 7919, "number": key} for key in range(40)]


@pytest.fixture(autouse=True)
def _inline() -> Iterator[None]:
    with without_ray():
        yield


def numbers(folder: Path) -> Table:
    return table(f"{folder}/numbers", NUMBERS, *by_home(ROWS, "key", PARTITIONS))


@step(NUMBERS, makes=NUMBERS, second=KEYS)
def twice(some: pa.Table, more: int) -> StepResult:
    found = pa.table([some["key"], pa.array(some["number"].to_numpy() * 2 + more)], schema=NUMBERS)
    return StepResult(found, {"rows_in": len(some), "even": len(some)}, some.select(["key"]))


@step(NUMBERS, NUMBERS, streamed(NUMBERS), makes=NUMBERS)
def plus_all(some: pa.Table, whole: pa.Table, each: Iterator[pa.Table]) -> pa.Table:
    total = sum(whole["number"].to_pylist()) + sum(len(table) for table in each)
    return pa.table([some["key"], pa.array(some["number"].to_numpy() + total)], schema=NUMBERS)


@step(KEYS, makes=KEYS)
def keys_of(some: pa.Table) -> pa.Table:
    return some.select(["key"])


@step(NUMBERS, makes=ANY)
def third(some: pa.Table) -> pa.Table:
    return some.append_column("partition", pa.array(some["number"].to_numpy() % PARTITIONS))


@step(makes=NUMBERS)
def counted_to(bounds: list[int]) -> Iterator[pa.Table]:
    return (pa.table([[*range(bound)]] * 2, schema=NUMBERS) for bound in bounds)


def test_a_step_is_called_for_each_partition_and_what_it_counts_is_summed(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "doubles")
    second = run.table("second", KEYS, PARTITIONS)
    made = run.map("doubled", twice, second=second)(numbers(tmp_path), 5)
    assert Broadcast(made).read().sort_by("key").to_pylist() == [
        {**row, "number": row["number"] * 2 + 5} for row in ROWS
    ]
    assert [some["key"] for some in Streamed(second)] == [some["key"] for some in Streamed(made)]
    report = run.report
    assert (made.rows, report.rows_in, report.tasks, report.counts["even"]) == (
        len(ROWS),
        len(ROWS),
        PARTITIONS,
        len(ROWS),
    )
    assert made.file(1) == f"{tmp_path}/work/doubles/doubled/part-00001.parquet"
    published = run.map("shown", plus_all, publish=True)(numbers(tmp_path), Broadcast(made), Streamed(made))
    assert published.file(0) == f"{tmp_path}/shown/part-00000.parquet"
    total = sum(row["number"] * 2 + 5 for row in ROWS) + len(ROWS)
    found = Broadcast(published).read().sort_by("key")["number"].to_pylist()
    assert found == [row["number"] + total for row in ROWS]


def test_a_step_may_yield_the_row_groups_of_its_partition(tmp_path: Path) -> None:
    for _ in range(2):  # made, and found
        made = Run(str(tmp_path), "counted").map("numbers", counted_to)(zipped([[3, 2], [1], []]))
        assert [len(rows) for rows in Streamed(made)] == [5, 1, 0]
        assert made.rows == 6
    footer = storage.read_footer(made.file(0))
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [3, 2]


def test_rows_go_to_the_partition_of_their_key_or_to_the_one_that_is_told(tmp_path: Path) -> None:
    run, source = Run(str(tmp_path), "spread"), numbers(tmp_path)
    by_key = run.spread("by_key", source, 5, by="key")
    by_number = run.shuffle("told", third, PARTITIONS, to="partition", schema=NUMBERS)(source)
    assert (by_key.rows, by_number.rows, len(by_key.files), by_key.partitions) == (len(ROWS), len(ROWS), PARTITIONS, 5)
    for number in range(5):
        expected = [row for row in ROWS if home_of(row["key"], 5) == number]
        assert by_key.read(number).sort_by("key").to_pylist() == expected
    for number in range(PARTITIONS):
        assert by_number.read(number).sort_by("key").to_pylist() == [
            row for row in ROWS if row["number"] % PARTITIONS == number
        ]
    assert Broadcast(by_number).read().num_rows == len(ROWS)


def test_who_asks_for_keys_gets_the_rows_that_are_there_or_made_and_a_second_table_is_spread_too(
    tmp_path: Path,
) -> None:
    run, source = Run(str(tmp_path), "answered"), numbers(tmp_path)
    wants = [[3, 1, 99], [], [3, 39]]
    asked = table(f"{tmp_path}/asked", KEYS, *([{"key": number * 7919} for number in some] for some in wants))
    keys = run.spread("wanted", asked, PARTITIONS, by="key")
    looked_up = run.look_up("looked_up", source, keys)
    second = run.shuffled("second", KEYS, PARTITIONS, 2, by="key")
    found = run.shuffle("found", twice, len(wants), keys=keys, second=second)(source, 1)
    for number, some in enumerate(wants):
        rows = [ROWS[number] for number in sorted(some) if number < len(ROWS)]
        assert looked_up.read(number).sort_by("key").to_pylist() == rows
        expected = [{**row, "number": 2 * row["number"] + 1} for row in rows]
        assert found.read(number).sort_by("key").to_pylist() == expected
    for number in range(2):
        keys = [row["key"] for row in ROWS if home_of(row["key"], 2) == number]
        assert sorted(second.table.read(number)["key"].to_pylist()) == sorted(keys)
    assert (found.rows, run.report.counts["even"]) == (len(ROWS), len(ROWS))


@step(streamed(NUMBERS), makes=NUMBERS)
def rows_twice(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of batches that are gone through twice."""
    rows = [len(batch) for _ in range(2) for batch in batches]
    return pa.table([rows, rows], schema=NUMBERS)


def test_a_task_reads_batches_as_often_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dupq.job.table._FILES_AT_ONCE", 2)
    run = Run(str(tmp_path), "grouped")
    shuffled = run.shuffle("spread", third, PARTITIONS, to="partition", schema=NUMBERS)(numbers(tmp_path))
    made = run.map("rows", rows_twice)(InBatches(shuffled))
    assert [made.read(number)["key"].to_pylist() for number in range(PARTITIONS)] == [
        [len(batch) for batch in shuffled.batches(number)] * 2 for number in range(PARTITIONS)
    ]
    assert made.rows_of(0) == 2 * PARTITIONS


def test_what_is_no_batch_of_a_task_is_named(tmp_path: Path) -> None:
    shuffled = Run(str(tmp_path), "some").spread("spread", numbers(tmp_path), 2, by="key")
    Path(shuffled.files[1]).write_bytes(b"no Arrow")
    with pytest.raises(DupqError, match=r"spread/part-00001\.arrow: not a readable Arrow file"):
        shuffled.read(0)


def test_gathered_rows_are_in_one_partition_in_their_order(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "gathered")
    made = run.gather("all", twice)(numbers(tmp_path), 5)
    assert (made.partitions, made.rows, run.report.rows_in) == (1, len(ROWS), len(ROWS))
    assert made.read(0)["key"].to_pylist() == Broadcast(numbers(tmp_path)).read()["key"].to_pylist()


@step(streamed(NUMBERS), makes=JSON, second=KEYS)
def total(each: Iterator[pa.Table], more: int) -> StepResult:
    numbers = [number for some in each for number in some["number"].to_pylist()]
    return StepResult(
        {"total": sum(numbers) + more},
        {"rows_in": len(numbers), "rows_out": 1},
        keys_of(pa.Table.from_pylist(ROWS, NUMBERS)),
    )


def test_a_record_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt in range(2):
        run = Run(str(tmp_path), "recorded")
        second = run.table("second", KEYS)
        found = run.record("total", total, second)(Streamed(numbers(tmp_path)), 5)
        assert found == {"total": sum(row["number"] for row in ROWS) + 5}
        assert (run.report.rows_in, run.report.rows_out, second.read(0).num_rows) == (len(ROWS), 1, len(ROWS)), attempt
        assert (tmp_path / "work/recorded/total.json").exists()
        monkeypatch.setattr(total, "function", lambda each, more: pytest.fail("called again"))


@step(makes=JSON)
def counted_bytes(some: bytes) -> StepResult:
    return StepResult(some, {"rows_out": 7})


def test_bytes_that_a_step_makes_are_a_file(tmp_path: Path) -> None:
    for content in (b"\x00some", b"other"):  # the second time by no call of the step
        run = Run(str(tmp_path), "written")
        made = run.write("some.bin", counted_bytes)(content)
        assert (made, run.report.rows_out) == (f"{tmp_path}/work/written/some.bin", 7)
        assert Path(made).read_bytes() == b"\x00some"


def test_a_table_may_have_the_schema_of_what_its_step_returns(tmp_path: Path) -> None:
    made = Run(str(tmp_path), "any").map("marked", third)(numbers(tmp_path))
    assert [table.schema.names for table in Streamed(made)] == [["key", "number", "partition"]] * PARTITIONS


@pytest.mark.parametrize("count", [3, 50])
def test_smaller_partitions_have_the_rows_in_their_order(count: int, tmp_path: Path) -> None:
    source = numbers(tmp_path)
    smaller = subdivided(source, count)
    assert smaller.partitions == count * PARTITIONS
    for number in range(PARTITIONS):
        some = [smaller.read(number) for number in range(count * number, count * (number + 1))]
        assert max(map(len, some)) - min(map(len, some)) <= 1
        assert pa.concat_tables(some) == source.read(number)
    made = Run(str(tmp_path), "divided").map("keys", keys_of)(smaller)
    assert Broadcast(made).read() == Broadcast(source.only("key")).read()


def test_an_attempt_that_ends_anywhere_is_finished_to_the_same_bytes(tmp_path: Path) -> None:
    source = numbers(tmp_path)

    def work(run: Run) -> None:
        doubled = run.map("doubled", twice, second=run.table("second", KEYS, PARTITIONS))(source, 5)
        keys = run.shuffle("wanted", keys_of, PARTITIONS, by="key")(doubled)
        shuffled = run.shuffled("third", KEYS, PARTITIONS, 2, by="key")
        run.shuffle("answered", twice, PARTITIONS, keys=keys, second=shuffled)(doubled, 1)
        run.map("looked", third)(run.look_up("found", doubled, keys))

    whole = Run(f"{tmp_path}/whole", "some")
    work(whole)
    expected = contents(whole.folder)
    for outputs in itertools.count():
        if not cut_off(outputs, work, Run(f"{tmp_path}/{outputs}", "some")):
            break
        again = Run(f"{tmp_path}/{outputs}", "some")
        work(again)
        assert contents(again.folder) == expected
        assert (again.report.counts, again.report.rows_in) == (whole.report.counts, whole.report.rows_in)
    assert outputs > len(expected)  # marks are files too


@step(streamed(KEYS), makes=KEYS)
def counted(some: Iterator[pa.RecordBatch]) -> pa.Table:
    batches = list(some)
    assert all(len(batch) <= 2 for batch in batches)
    return pa.Table.from_batches(batches).select(["key"])


def test_shards_come_in_batches_with_keys_and_one_that_changed_is_an_error(tmp_path: Path) -> None:
    uris = [f"{tmp_path}/questions/{number}.parquet" for number in range(2)]
    for number, uri in enumerate(uris):
        write_rows(uri, [question_row(row + 10 * number) for row in range(1, 6)], QUESTIONS)
    shards = pinned([Shard(number, uri, "ab"[number]) for number, uri in enumerate(uris)])
    source = Shards(tuple(shards), ("a", "b"), QUESTIONS, batch_rows=2)
    assert [batch["site"].to_pylist() for batch in source.read(1)] == [["b"] * 2, ["b"] * 2, ["b"]]
    made = Run(str(tmp_path), "keys").map("keys", counted)(source)
    keys = [*range(1, 6), *((1 << 48) + number for number in range(11, 16))]
    assert Broadcast(made).read()["key"].to_pylist() == keys
    write_rows(uris[1], [question_row(1)], QUESTIONS)
    with pytest.raises(DupqError, match=r"1\.parquet"):
        Run(str(tmp_path), "again").map("keys", counted)(source)


def test_partitions_are_read_a_few_at_a_time_in_their_order() -> None:
    read: list[int] = []

    def rows(number: int) -> pa.Table:
        read.append(number)
        return pa.table({"number": [number]})

    table = Computed(rows, (), 40)
    for several in (Streamed(table), Streamed(zipped([Partition(table, number) for number in range(40)]))):
        read.clear()
        one_by_one = iter(several)
        first = next(one_by_one)
        assert len(read) <= 6
        assert [each["number"][0].as_py() for each in (first, *one_by_one)] == list(range(40))


@step(NUMBERS, streamed(NUMBERS), makes=NUMBERS)
def sums(one: pa.Table, several: Iterable[pa.Table], own: int, same: int) -> pa.Table:
    rows = pa.concat_tables([one, *several])
    return pa.table([[own], [sum(rows["number"].to_pylist()) + same]], schema=NUMBERS)


def test_each_task_may_have_inputs_of_its_own(tmp_path: Path) -> None:
    """Whatever partitions of tables they are."""
    rows = [[{"key": n, "number": n}] for n in (1, 2, 4)]
    first, second = (table(f"{tmp_path}/{name}", NUMBERS, *rows) for name in "ab")
    ones = zipped((Partition(first, 2), Partition(first, 0)))
    several = zipped((Streamed(zipped([])), Streamed(zipped([Partition(first, 1), Partition(second, 1)]))))
    made = Run(str(tmp_path), "sums").map("sums", sums)(ones, several, zipped((7, 8)), 100)
    assert Broadcast(made).read().to_pylist() == [{"key": 7, "number": 104}, {"key": 8, "number": 105}]
    assert Run(str(tmp_path), "none").map("sums", sums)(zipped(()), zipped(()), zipped(()), 100).partitions == 0


def test_what_was_made_by_something_else_is_made_again(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "doubles")
    for made_by, more in (({"more": 1}, 1), ({"more": 1}, 2), ({"more": 3}, 3)):
        run.discard_stale(made_by, "doubled")
        made = run.map("doubled", twice)(numbers(tmp_path), more)
        assert sum(Broadcast(made).read()["number"].to_pylist()) == sum(2 * key + made_by["more"] for key in range(40))


def test_a_job_that_lost_its_lease_marks_nothing(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path), {"questions": "q"}, {}, Settings(), {"a": 1})
    with run.held():
        run.finish("x", "x", lambda: None, None)
        storage.create(run.path("leases", "000002.json"), b"{}")  # of a job that took this one for dead
        assert run._lease is not None
        run._lease.beat()
        with pytest.raises(LeaseError):
            run.mark()
    assert not storage.exists(run.path("_SUCCESS"))
