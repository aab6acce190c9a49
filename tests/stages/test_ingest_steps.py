"""Partitions of a site: written once, sorted if necessary, and combined into shards."""

import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from dupq import storage
from dupq.dump.files import DumpSite, Member
from dupq.dump.parsing import ParsedRows, sort_rows
from dupq.dump.reading import Batch, Ingest
from dupq.job.run import Run
from dupq.job.table import zipped
from dupq.settings.sections import IngestSettings
from dupq.stages.ingest import (
    Partition,
    RowRange,
    all_rows,
    are_ordered,
    inputs_of,
    plan_shards,
    read_batch,
    row_groups,
    sort_partitions,
)
from dupq.tables import LINKS, QUESTIONS, REJECTS


def questions(ids: list[int], title: str = "") -> pa.Table:
    rows = [{"question_id": number, "title": title or str(number), "body_html": "", "tags": ["a"]} for number in ids]
    return pa.Table.from_pylist([{**row, "creation_date": 1_600_000_000_123} for row in rows], QUESTIONS)


def written(folder: Path, tables: list[pa.Table], table: str) -> list[Partition]:
    parts = []
    for number, rows in enumerate(tables):
        content = {table: sort_rows(table, rows)[0]}
        read = partial(ParsedRows, content, REJECTS.empty_table(), {"rows": len(rows), "rejects": 0})
        parts.append(read_batch(Batch(f"{number:04d}-x", 0, read), str(folder)).partitions[table])
    return parts


def test_an_archive_of_many_tables_is_read_once_for_a_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faq = f"{tmp_path}/faq.zip"
    Path(faq).write_bytes(b"packed")
    read, checksum = list[str](), storage.checksum
    monkeypatch.setattr(storage, "checksum", lambda uri: read.append(uri) or checksum(uri))
    site = DumpSite("faq", tuple(Member(faq, f"{number}.csv") for number in range(500)), is_table=True)
    files = inputs_of(site, Ingest("", IngestSettings()))["parts"]["files"]
    assert files == [[checksum(faq), f"{number}.csv", "csv"] for number in range(500)]
    assert read == [faq]


def test_a_batch_is_read_once(tmp_path: Path) -> None:
    tables = {"questions": questions([1, 5]), "links": LINKS.empty_table()}
    contents = ParsedRows(tables, REJECTS.empty_table(), {"rows": 2, "rejects": 0})
    reads: list[int] = []

    def read() -> ParsedRows:
        reads.append(1)
        return contents

    batch = Batch("0000-a", 7, read)
    written = read_batch(batch, str(tmp_path))
    assert written.packed_bytes == 7
    assert written.partitions["questions"][1:] == (2, 1, 5)
    assert written.partitions["links"][1:] == (0, 0, 0)
    assert all_rows(written.partitions["questions"].uri).equals(tables["questions"])
    assert read_batch(batch, str(tmp_path)) == written
    assert len(reads) == 1
    for number, file in enumerate(("batches/0000-a.json", "batches/_0000-a.json.json", "questions/0000-a.arrow"), 2):
        (tmp_path / file).write_text("{")  # half written, if that were possible
        assert read_batch(batch, str(tmp_path)) == written
        assert len(reads) == number


def test_a_shard_is_the_next_rows_of_ordered_partitions() -> None:
    a, b, none = Partition("a", 3, 1, 3), Partition("b", 5, 4, 9), Partition("none", 0, 0, 0)

    assert plan_shards([a, none, b], 4) == [[RowRange("a", 0, 3), RowRange("b", 0, 1)], [RowRange("b", 1, 4)]]
    assert plan_shards([b], 3) == [[RowRange("b", 0, 3)], [RowRange("b", 3, 2)]]
    assert plan_shards([none], 4) == [[]]
    assert are_ordered([a, none, b])
    assert not are_ordered([b, none, a])
    assert not are_ordered([a, b, Partition("c", 1, 9, 9)])


def test_rows_in_any_order_are_sorted_and_of_the_same_id_the_last_stays(tmp_path: Path) -> None:
    generator = random.Random(1)
    ids = [[generator.randrange(6_000) for _ in range(3_000)] for _ in range(3)]
    parts = written(tmp_path, [questions(some, f"of {file}") for file, some in enumerate(ids)], "questions")

    found, left_out = sort_partitions(parts, "questions", str(tmp_path))

    last = {number: f"of {file}" for file, some in enumerate(ids) for number in some}
    rows = pa.concat_tables(map(all_rows, [part.uri for part in found]))
    assert rows.schema == QUESTIONS
    assert list(zip(rows["question_id"].to_pylist(), rows["title"].to_pylist(), strict=True)) == sorted(last.items())
    assert rows["creation_date"].unique().cast(pa.int64()).to_pylist() == [1_600_000_000_123]
    assert dict(left_out) == {
        file: sum(last[number] != f"of {file}" for number in set(some)) for file, some in enumerate(ids[:2])
    }


@pytest.mark.parametrize("rows_of_a_part", [1, 3, 100])
def test_links_are_sorted_by_all_their_columns_and_all_stay(rows_of_a_part: int, tmp_path: Path) -> None:
    generator = random.Random(2)
    rows = [
        {
            "question_id": generator.randrange(5),
            "related_id": generator.randrange(3),
            "link_type": generator.choice("ab"),
        }
        for _ in range(60)
    ]
    links = pa.Table.from_pylist([{**row, "creation_date": generator.choice([None, 1, 2])} for row in rows], LINKS)
    parts = written(tmp_path, [links.slice(at, rows_of_a_part) for at in range(0, 60, rows_of_a_part)], "links")

    found, left_out = sort_partitions(parts, "links", str(tmp_path))
    shards = plan_shards(found, 7)

    assert left_out == []
    made = Run(str(tmp_path), "links").map("links", row_groups, LINKS)(zipped(shards), LINKS.names, None)
    written_shards = [made.read(number) for number in range(made.partitions)]
    assert [len(shard) for shard in written_shards] == [7] * 8 + [4]
    assert pa.concat_tables(written_shards).combine_chunks().equals(sort_rows("links", links)[0].combine_chunks())
