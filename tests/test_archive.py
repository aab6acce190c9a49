"""The files of a table: those that ingest recorded, whatever else is in the folder; and shards that are left out."""

import logging
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dupq import storage
from dupq.archive import pinned, question_shards, read_shard, read_shard_batches, record_of, table_files
from dupq.errors import DupqError
from dupq.tables import QUESTIONS

A, B = "a.example.com", "b.example.com"


def write(archive: Path, table: str, site: str, name: str, size: int = 5) -> str:
    storage.write_bytes(f"{archive}/{table}/site={site}/{name}", b"x" * size)
    return f"{table}/{name}"


def record(archive: Path, site: str, tables: dict[str, int]) -> None:
    counts = dict.fromkeys(("rows", "link_rows", "rejects", "link_rejects"), 0)
    storage.write_json(record_of(str(archive), site), {"made_from": {}, "counts": counts, "tables": tables})


def relative(table: Path | str) -> list[str]:
    return [file.relative for file in table_files(str(table))]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write two sites with records, each with two shards of questions and one of links."""
    for site in (A, B):
        names = [("questions", "part-0.parquet"), ("questions", "part-1.parquet"), ("links", "part-0.parquet")]
        record(tmp_path, site, {write(tmp_path, table, site, name): 5 for table, name in names})
    return tmp_path


def test_what_records_name_is_the_table(archive: Path) -> None:
    shards = [f"site={site}/part-{number}.parquet" for site in (A, B) for number in (0, 1)]
    assert relative(archive / "questions") == shards
    assert relative(archive / "links") == [f"site={site}/part-0.parquet" for site in (A, B)]
    assert relative(archive / f"questions/site={B}") == ["part-0.parquet", "part-1.parquet"]


def test_a_table_of_records_may_be_given_relative_or_as_a_file_uri(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(archive)
    for given in ("questions", "./questions/", f"file://{archive}/questions", f"{archive}/links/../questions"):
        assert table_files(given) == table_files(f"{archive}/questions")


def test_files_that_no_record_names_are_left_out_and_counted(archive: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = relative(archive / "questions")
    write(archive, "questions", A, "part-0-ab12.parquet")
    write(archive, "questions", B, "part-2.parquet")
    with caplog.at_level(logging.WARNING):
        assert relative(archive / "questions") == before
    assert "2 files that no finished ingest has named are left out" in caplog.text


@pytest.mark.parametrize(("size", "said"), [(None, "is gone since its ingest"), (4, "has another size than when its")])
def test_a_file_that_a_record_names_must_be_there_as_it_was(archive: Path, size: int | None, said: str) -> None:
    place = archive / f"questions/site={B}/part-1.parquet"
    place.unlink()
    if size is not None:
        place.write_bytes(b"x" * size)
    with pytest.raises(DupqError, match=f"{place}: {said}"):
        table_files(str(archive / "questions"))
    assert len(relative(archive / "links")) == 2
    assert len(relative(archive / f"questions/site={A}")) == 2


def test_a_site_whose_first_ingest_was_cut_off_is_an_error(archive: Path) -> None:
    write(archive, "questions", "c.example.com", "part-0.parquet")
    assert len(relative(archive / "questions")) == 5  # a table of other origin
    storage.write_json(f"{archive}/_parts/c.example.com/begun.json", {})
    with pytest.raises(DupqError, match=r"the ingest of c\.example\.com was cut off"):
        table_files(str(archive / "questions"))
    storage.write_json(f"{archive}/_parts/{A}/begun.json", {})  # of a later dump, of which nothing is recorded yet
    assert len(relative(archive / f"questions/site={A}")) == 2


def test_tables_without_records_are_all_their_files(tmp_path: Path) -> None:
    write(tmp_path, "questions", A, "part-0.parquet")
    record(tmp_path, A, {"links/part-0.parquet": 5})  # a table of another name beside it
    write(tmp_path, "links", A, "part-0.parquet")
    assert relative(tmp_path / "questions") == [f"site={A}/part-0.parquet"]
    storage.write_bytes(f"{tmp_path}/elsewhere/flat.parquet", b"")
    assert relative(tmp_path / "elsewhere") == ["flat.parquet"]
    assert relative(tmp_path / "nowhere") == []
    assert relative(tmp_path / "links") == [f"site={A}/part-0.parquet"]


def test_a_damaged_record_is_one_clear_error(archive: Path) -> None:
    Path(record_of(str(archive), A)).write_text("[]")
    with pytest.raises(DupqError, match=rf"ingest/{A}\.json: .*; remove it, and the site is ingested anew"):
        table_files(str(archive / "questions"))


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    for name in ("site=a/0.parquet", "site=a/1.parquet", "site=b/0.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_a_skipped_shard_is_left_out_and_its_site_keeps_its_place(questions: Path) -> None:
    shards, sites = question_shards(str(questions), ["site=a/0.parquet", "site=a/1.parquet"])
    assert [(shard.number, shard.site) for shard in shards] == [(0, "b")]
    assert sites.names == ["a", "b"]
    assert [shard.skip_as for shard in shards] == ["site=b/0.parquet"]


def test_a_job_that_cannot_skip_shards_knows_no_name_for_that(questions: Path) -> None:
    assert {shard.skip_as for shard in question_shards(str(questions))[0]} == {None}
    assert [shard.skip_as for shard in question_shards(str(questions / "site=a"), [])[0]] == ["0.parquet", "1.parquet"]


def test_a_shard_to_skip_that_is_not_there_is_an_error(questions: Path) -> None:
    with pytest.raises(DupqError, match=r"--skip-shard site=c/0\.parquet: no such file below .*site=a/0\.parquet"):
        question_shards(str(questions), ["site=c/0.parquet"])
    with pytest.raises(DupqError, match=r"no shard of .* is left"):
        question_shards(str(questions), ["site=a/0.parquet", "site=a/1.parquet", "site=b/0.parquet"])


def test_a_pinned_shard_that_changes_or_goes_is_an_error_and_another_one_is_read(questions: Path) -> None:
    file = questions / "site=b" / "0.parquet"
    pq.write_table(QUESTIONS.empty_table(), file)
    (free, *_), _ = question_shards(str(questions), ["site=a/0.parquet", "site=a/1.parquet"])
    (shard,) = pinned([free])
    assert read_shard(shard, QUESTIONS, ["title"]).num_rows == 0
    pq.write_table(QUESTIONS.empty_table(), file)
    assert read_shard(free, QUESTIONS, ["title"]).num_rows == 0
    for wanted in ("has changed", "is gone"):
        with pytest.raises(DupqError, match=f"{file}: {wanted} since this run was opened; run the same command again"):
            read_shard(shard, QUESTIONS, ["title"])
        with pytest.raises(DupqError, match=f"{file}: {wanted}"):
            list(read_shard_batches(shard, QUESTIONS, ["title"], 10))
        file.unlink(missing_ok=True)
