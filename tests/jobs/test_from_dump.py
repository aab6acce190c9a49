"""A dump to clusters in one job; with real Ray it is in tests/anywhere/test_places.py."""

import json
import logging
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from riddles.grammar import write_sample

from dupq import storage
from dupq.errors import SettingError
from dupq.job import progress
from dupq.pipelines.arguments import training_settings
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.train import FromDumpJob, from_dump
from examples.sample.archive import SampleFiles

QUICK = ("ingest.shard_rows=150", "title_body.epochs=1", "training.epochs=1", "calibration.precision=0.9")


@pytest.fixture
def sample(tmp_path: Path) -> SampleFiles:
    return write_sample(tmp_path / "dump", questions=400)


def test_it_does_what_the_three_jobs_do_and_a_rerun_does_nothing(sample: SampleFiles, tmp_path: Path) -> None:
    job = FromDumpJob((str(sample.archive),), str(tmp_path / "out"), "dupq", str(sample.truth), QUICK)
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
    ("assignment", "jobs"),
    [
        ("ingest.shard_rows=9", ["ingest"]),
        ("encoder.dropout=0.1", ["train"]),
        ("neighbours.k=9", ["dedup"]),
        ("encode.batch_size=8", ["train", "dedup"]),
    ],
)
def test_a_setting_goes_to_the_jobs_that_read_it(assignment: str, jobs: list[str]) -> None:
    whole = FromDumpJob((), "out", assignments=(assignment,))
    found = {name: whole.settings_of(name) for name in ("ingest", "train", "dedup")}
    assert found == {"ingest": (), "train": (), "dedup": ()} | dict.fromkeys(jobs, (assignment,))


@pytest.mark.parametrize("assignment", ["clusters.worklist=7", "ingest.shard_rows=5"])
def test_training_refuses_settings_that_it_does_not_read(assignment: str) -> None:
    with pytest.raises(SettingError, match="not read by this job"):
        training_settings("dupq", (assignment,))


@pytest.mark.parametrize(("assignments", "epochs"), [((), 12), (("title_body.epochs=4",), 4)])
def test_the_default_of_english_may_be_chosen_in_other_languages(assignments: tuple[str, ...], epochs: int) -> None:
    assert training_settings("dupq", ("text.language=german", *assignments)).title_body.epochs == epochs


def test_a_site_to_search_that_no_dump_has_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("title\nHow do I bake bread?\n")
    job = FromDumpJob((f"{tmp_path}/faq.csv",), f"{tmp_path}/out", assignments=("neighbours.sites=fqa",))
    with pytest.raises(SettingError, match=r"neighbours\.sites.*fqa"):
        job.check()
    assert not (tmp_path / "out").exists()


def test_what_dedup_says_is_not_kept_with_the_trainings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("dupq.tests.from_dump")

    def trained(job: object) -> None:
        with progress.of_stage(f"{tmp_path}/training", "fit", {}):
            logger.info("of the training")
        progress.end(f"{tmp_path}/training", "finished")

    def refused(job: object) -> None:
        assert progress.current.run is None
        logger.error("of dedup")

    for name, other in {"ingest": lambda *_: None, "train": trained, "dedup": refused}.items():
        monkeypatch.setattr(f"dupq.pipelines.{name}.{name}", other)
    from_dump(FromDumpJob((), str(tmp_path)))
    kept = (tmp_path / "training" / "run.log").read_text().splitlines()
    assert [json.loads(line)["message"] for line in kept] == ["of the training"]
