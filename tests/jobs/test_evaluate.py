"""The evaluation job: its inputs, and that it measures only the named tables."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from trained import TrainedSample

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.evaluation.measures import TABLES
from dupq.pipelines.evaluate import EvaluationJob, evaluate


def job(sample: TrainedSample, folder: Path, with_encoder: bool = True, **changes: tuple[str, ...]) -> EvaluationJob:
    encoder = sample.encoder if with_encoder else None
    return EvaluationJob(sample.questions, sample.links, str(folder), encoder, **changes)


def test_without_an_encoder_texts_and_split_can_be_set(trained_sample: TrainedSample, tmp_path: Path) -> None:
    assignments = ("text.code=kept", "training.seed=2")
    settings = job(trained_sample, tmp_path, with_encoder=False, assignments=assignments).check()
    assert (settings.text.code, settings.training.seed) == ("kept", 2)
    with pytest.raises(SettingError, match=r"encoder.units=5: not read without an encoder; free are text, training"):
        job(trained_sample, tmp_path, with_encoder=False, assignments=("encoder.units=5",)).check()


def test_metrics_hold_what_was_asked_for_and_nothing_else(small_sample: TrainedSample, tmp_path: Path) -> None:
    shown, measured = {}, {}
    for name, tables in {"all": tuple(TABLES), **{name: (name,) for name in TABLES}}.items():
        shown[name] = evaluate(job(small_sample, tmp_path, tables=tables))
        measured[name] = storage.read_json(f"{tmp_path}/metrics.json")
    counts = {"test_queries", "test_queries_available", "archive_questions", "left_out"}
    assert set(measured["retrieval"]) == {*counts, "retrieval", "intervals"}
    assert set(measured["pairs"]) == {"balanced_pairs", "left_out"}
    assert measured["all"] == {**measured["retrieval"], **measured["pairs"]}
    assert "MAP" not in shown["pairs"]
    assert "half of them linked" not in shown["retrieval"]
    assert "bm25" in shown["retrieval"]
    found = measured["all"]
    assert found["retrieval"]["encoder"]["accuracy_at_10"] > 0.5
    assert found["balanced_pairs"]["encoder"] > found["balanced_pairs"]["shingle_jaccard_3"]


def test_an_encoder_that_is_replaced_after_the_check_is_refused(trained_sample: TrainedSample, tmp_path: Path) -> None:
    shutil.copytree(trained_sample.encoder, tmp_path / "encoder")
    asked = dataclasses.replace(job(trained_sample, tmp_path / "out"), encoder=str(tmp_path / "encoder"))
    checked = asked.check()
    description = storage.read_json(f"{tmp_path}/encoder/encoder.json")
    description["settings"]["text"]["fields"] = "title"
    storage.write_json(f"{tmp_path}/encoder/encoder.json", description)
    with pytest.raises(DupqError, match=storage.CHANGED):
        evaluate(asked, checked)
