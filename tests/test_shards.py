from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dupq.archive import pinned, question_shards, read_shard, read_shard_batches
from dupq.errors import DupqError
from dupq.tables import QUESTIONS


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
