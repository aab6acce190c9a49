"""A dump to clusters in one job; with real Ray it is in tests/anywhere/test_places.py."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from riddles.grammar import write_sample
from trained import TrainedSample

from dupq import storage
from dupq.errors import SettingError
from dupq.pipelines.arguments import training_settings
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import FromDumpJob, TrainingJob, from_dump, train
from examples.sample.archive import SampleFiles

QUICK = ("ingest.shard_rows=150", "title_body.epochs=1", "training.epochs=1", "calibration.precision=0.9")
FEW_EPOCHS = ("training.epochs=2", "title_body.epochs=2")


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


def test_the_encoder_tells_how_good_each_epoch_was_and_which_questions_it_saw(trained_sample: TrainedSample) -> None:
    metrics = storage.read_json(f"{trained_sample.encoder}/encoder.json")["metrics"]
    assert [row["epoch"] for row in metrics["learning_curve"]] == list(range(1, 7))
    assert metrics["development_pair_accuracy"] > 0.8
    split = pq.read_table(f"{trained_sample.encoder}/split.parquet").to_pandas()
    assert set(split.part) == {"train", "development", "test"}
    assert split.groupby("duplicates").part.nunique().max() == 1


@pytest.mark.realdata
def test_a_small_real_site_goes_from_dump_to_clusters(shared_data: Path, tmp_path: Path) -> None:
    dump = str(shared_data / "dumps" / "bicycles.meta.stackexchange.com.7z")
    counts = ingest(IngestJob((dump,), str(tmp_path)))["bicycles.meta.stackexchange.com"]
    assert counts["questions"] == 453
    questions, links = str(tmp_path / "questions"), str(tmp_path / "links")
    train(TrainingJob(questions, links, str(tmp_path / "encoder"), assignments=FEW_EPOCHS))
    run = dedup(DedupJob(questions, str(tmp_path / "encoder"), str(tmp_path / "runs"), links))
    assert len(pq.read_table(run.path("clusters"))) == 453
    assert storage.read_json(run.path("metrics.json"))["links"]["among_nearest"]["10"] > 0


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
