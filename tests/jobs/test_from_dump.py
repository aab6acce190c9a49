"""A dump to clusters in one job, with real Ray."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dupq import storage
from dupq.errors import SettingError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.from_dump import FromDumpJob, from_dump
from dupq.sample.archive import SampleFiles, write_sample

QUICK = ("ingest.shard_rows=150", "word_vectors.dimensions=20", "word_vectors.epochs=1", "calibration.precision=0.9")


@pytest.fixture
def sample(tmp_path: Path) -> SampleFiles:
    return write_sample(tmp_path / "dump", questions=400)


@pytest.mark.ray
def test_it_does_what_the_three_jobs_do_and_a_rerun_does_nothing(sample: SampleFiles, tmp_path: Path) -> None:
    job = FromDumpJob((str(sample.archive),), str(tmp_path / "out"), "arora-sif", str(sample.truth), QUICK)
    run = from_dump(job, job.check())
    assert pq.read_table(run.path("clusters")).num_rows == 400
    assert len(storage.list_files(f"{tmp_path}/out/questions", ".parquet")) == 3
    assert json.loads(Path(run.path("config.json")).read_text())["calibration"]["precision"] == 0.9
    again = from_dump(job)
    assert again.uri == run.uri
    questions, links, encoder = (f"{tmp_path}/out/{name}" for name in ("questions", "links", "encoder"))
    alone = DedupJob(questions, encoder, f"{tmp_path}/out/runs", links, str(sample.truth), assignments=QUICK[-1:])
    assert dedup(alone).uri == run.uri


@pytest.mark.parametrize(
    ("assignment", "job"),
    [("ingest.shard_rows=9", "ingest"), ("encoder.dropout=0.1", "train"), ("neighbours.k=9", "dedup")],
)
def test_a_setting_goes_to_the_job_that_it_is_of(assignment: str, job: str) -> None:
    whole = FromDumpJob((), "out", assignments=(assignment,))
    found = {name: whole.settings_of(name) for name in ("ingest", "train", "dedup")}
    assert found == {"ingest": (), "train": (), "dedup": ()} | {job: (assignment,)}


def test_a_wrong_setting_is_told_before_any_work(sample: SampleFiles, tmp_path: Path) -> None:
    job = FromDumpJob((str(sample.archive),), str(tmp_path / "out"), assignments=("neighbours.q=1",))
    with pytest.raises(SettingError, match="has no 'q'"):
        job.check()
    assert not (tmp_path / "out").exists()
