"""Training by a teacher: another encoder of dupq's teaches."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq import storage
from dupq.encoders.saved import encoder_at, load
from dupq.errors import DupqError, SettingError
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.pipelines import train as pipeline
from dupq.pipelines.train import TrainingJob, train
from dupq.stages.embeddings import device_for
from dupq.stages.training import teach
from dupq.stages.training.teach import targets_of
from dupq.training.pairs import DistillationTargets

QUICK = ("title_body.epochs=1", "teacher.epochs=3", "training.epochs=1", "teacher.questions=700", "encoder.units=30")


def job(sample: TrainedSample, output: Path, *more: str) -> TrainingJob:
    settings = (*QUICK, f"teacher.encoder={sample.encoder}", *more)
    return TrainingJob(sample.questions, sample.links, str(output), "dupq-distilled", settings)


def read_targets(run: Run) -> DistillationTargets:
    folder = run.path("work", "teach", "embeddings")
    return targets_of(Table(folder, None, len(storage.list_files(folder, ".parquet"))))


def test_a_teacher_gives_words_and_questions_but_none_kept_for_later(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    run = train(job(trained_sample, tmp_path / "encoder"))

    made, teacher = load(str(tmp_path / "encoder")), load(trained_sample.encoder)
    assert [record["name"] for record in run.records] == ["inputs", "texts", "prepare", "teach", "fit", "save"]
    curve = made.metrics["learning_curve"]
    assert [row["epoch"] for row in curve] == [1, 2, 3, 4, 5]
    assert curve[3]["loss"] < curve[1]["loss"]
    assert made.network.dimensions == teacher.network.dimensions
    taught = read_targets(run)
    assert np.linalg.norm(taught.vectors, axis=1) == pytest.approx(1, abs=1e-4)  # 300 roundings of 2^-24 are 2e-5
    split = pq.read_table(Path(encoder_at(str(tmp_path / "encoder")), "split.parquet")).to_pylist()
    later = {row["question_id"] for row in split if row["part"] in ("development", "test")}
    assert 400 < len(taught.left) <= 700
    assert [row["examples"] for row in curve[1:4]] == [len(taught.left)] * 3
    assert len(taught.left) not in (curve[0]["examples"], curve[4]["examples"])
    assert not later & set((taught.left & ((1 << 48) - 1)).tolist())

    before = Path(encoder_at(str(tmp_path / "encoder")), "encoder.json").stat().st_mtime_ns
    train(job(trained_sample, tmp_path / "encoder"))
    assert Path(encoder_at(str(tmp_path / "encoder")), "encoder.json").stat().st_mtime_ns == before


def test_training_goes_on_without_the_gpus_of_its_teacher(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = job(trained_sample, tmp_path / "encoder", "teacher.epochs=1", "training.mined_negatives=1")

    def begun_on_gpus(run: Run, *_: object) -> int:
        run.record("device", device_for)(True)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(teach, "gpus_to_make", begun_on_gpus)
        patch.delattr(pipeline, "fit")  # as if the job was killed then
        with pytest.raises(NameError):
            train(training)
    assert len(read_targets(train(training)).left) > 400


def test_a_teacher_that_is_none_or_reads_other_texts_is_an_error(trained_sample: TrainedSample, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="no encoder here"):
        job(trained_sample, tmp_path, f"teacher.encoder={tmp_path}").check()
    with pytest.raises(SettingError, match=r"'teacher\.encoder' is empty.*word_vectors\.algorithm=teacher"):
        job(trained_sample, tmp_path, "teacher.encoder=").check()
    with pytest.raises(
        DupqError, match=r"the teacher reads text\.code=removed.*kept, words, title\+body; set them alike"
    ):
        train(job(trained_sample, tmp_path / "x", "text.code=kept"))
    assert not storage.exists(str(tmp_path / "x" / "latest.json"))
