"""Training by Ray Train, with real workers."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from trained import TrainedSample

from dupq import storage
from dupq.errors import DupqError
from dupq.ingest_pipeline import IngestJob, ingest
from dupq.pipeline import DedupJob, dedup
from dupq.training_pipeline import TrainingJob, train

QUICK = ("training.epochs=2", "word_vectors.dimensions=50", "word_vectors.epochs=1", "encoder.units=32")


def train_sample(sample: TrainedSample, output: Path, workers: int) -> dict[str, np.ndarray]:
    settings = (*QUICK, "training.batch_size=16", "training.learning_rate=0.005")
    train(TrainingJob(sample.questions, sample.links, str(output), "bogdanova-sum", settings, workers))
    return safetensors.numpy.load((output / "model.safetensors").read_bytes())


def test_two_workers_learn_what_one_learns_and_a_rerun_does_nothing(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    one = train_sample(trained_sample, tmp_path / "one", workers=1)
    two = train_sample(trained_sample, tmp_path / "two", workers=2)
    curves = [
        storage.read_json(f"{tmp_path}/{name}/encoder.json")["metrics"]["learning_curve"] for name in ("one", "two")
    ]
    assert [row["loss"] for row in curves[0]] == pytest.approx([row["loss"] for row in curves[1]], abs=1e-4)
    # sums that saturate tanh are ill-conditioned: one worker at a learning rate of 0.0050000005 differs by 1.1e-4
    for name, values in one.items():
        assert values == pytest.approx(two[name], abs=1e-3), name
    before = (tmp_path / "one" / "encoder.json").stat().st_mtime_ns
    train_sample(trained_sample, tmp_path / "one", workers=1)
    assert (tmp_path / "one" / "encoder.json").stat().st_mtime_ns == before


def test_the_encoder_tells_how_good_each_epoch_was_and_which_questions_it_saw(trained_sample: TrainedSample) -> None:
    metrics = storage.read_json(f"{trained_sample.encoder}/encoder.json")["metrics"]
    assert [row["epoch"] for row in metrics["learning_curve"]] == list(range(1, 7))
    assert metrics["development_pair_accuracy"] > 0.8
    split = pq.read_table(f"{trained_sample.encoder}/split.parquet").to_pandas()
    assert set(split.part) == {"train", "development", "test"}
    assert split.groupby("duplicates").part.nunique().max() == 1


@pytest.mark.realdata
def test_a_small_real_site_goes_from_dump_to_clusters(shared_data: Path, ray_started: None, tmp_path: Path) -> None:
    dump = str(shared_data / "dumps" / "bicycles.meta.stackexchange.com.7z")
    counts = ingest(IngestJob((dump,), str(tmp_path)))["bicycles.meta.stackexchange.com"]
    assert counts["questions"] == 453
    questions, links = str(tmp_path / "questions"), str(tmp_path / "links")
    train(TrainingJob(questions, links, str(tmp_path / "encoder"), assignments=QUICK))
    run = dedup(DedupJob(questions, str(tmp_path / "encoder"), str(tmp_path / "runs"), links))
    assert len(pq.read_table(run.path("clusters"))) == 453
    known = storage.read_json(run.path("metrics.json"))["known_duplicates"]
    assert known["retrieval"]["bm25"]["accuracy_at_10"] > 0


def test_an_archive_without_duplicate_links_is_one_clear_error(tmp_path: Path, ray_started: None) -> None:
    folder = tmp_path / "bread.example.com"
    folder.mkdir()
    rows = "".join(f'<row Id="{i}" PostTypeId="1" Title="flat bread {i}" Body="b" />\n' for i in range(9))
    (folder / "Posts.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{rows}</posts>\n')
    ingest(IngestJob((str(folder),), str(tmp_path / "out")))
    with pytest.raises(DupqError, match="0 sets of known duplicates"):
        train(TrainingJob(f"{tmp_path}/out/questions", f"{tmp_path}/out/links", str(tmp_path / "encoder")))
