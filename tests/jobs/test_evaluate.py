"""The evaluation job: its inputs, and that it measures only the named tables."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from trained import TrainedSample

from dupq import storage
from dupq.encoders.saved import FILES, load, save
from dupq.errors import DupqError, SettingError
from dupq.evaluation.measures import TABLES
from dupq.pipelines import evaluate as pipeline
from dupq.pipelines.evaluate import EvaluationJob, evaluate


def job(sample: TrainedSample, folder: Path, with_encoder: bool = True, **changes: tuple[str, ...]) -> EvaluationJob:
    encoder = sample.encoder if with_encoder else None
    return EvaluationJob(sample.questions, sample.links, str(folder), encoder, **changes)


def test_the_free_settings_are_taken_and_the_others_are_those_of_the_encoder(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    plain = job(trained_sample, tmp_path).check()
    changed = job(trained_sample, tmp_path, assignments=("encode.batch_size=3",)).check()
    assert changed.encode.batch_size == 3
    assert (changed.text, changed.training) == (plain.text, plain.training)
    assert plain.training.epochs == 6  # as the sample's encoder was trained


def test_without_an_encoder_texts_and_split_can_be_set(trained_sample: TrainedSample, tmp_path: Path) -> None:
    assignments = ("text.code=kept", "training.seed=2")
    settings = job(trained_sample, tmp_path, with_encoder=False, assignments=assignments).check()
    assert (settings.text.code, settings.training.seed) == ("kept", 2)
    with pytest.raises(SettingError, match=r"encoder.units=5: not read without an encoder; free are text, training"):
        job(trained_sample, tmp_path, with_encoder=False, assignments=("encoder.units=5",)).check()


def test_metrics_hold_what_was_asked_for_and_nothing_else(trained_sample: TrainedSample, tmp_path: Path) -> None:
    shown, measured = {}, {}
    for name, tables in {"all": tuple(TABLES), **{name: (name,) for name in TABLES}}.items():
        shown[name] = evaluate(job(trained_sample, tmp_path, tables=tables))
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


@pytest.mark.parametrize("before", ["check_room_to_encode", "make_distinct_texts"])
def test_an_encoder_that_is_replaced_at_work_leaves_no_embeddings_under_the_name_of_the_other(
    before: str, trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is replaced before it is copied, the job fails; after that, the job reads the copy."""
    others = another_encoder(trained_sample.encoder, tmp_path / "other")
    shutil.copytree(trained_sample.encoder, tmp_path / "encoder")
    asked = dataclasses.replace(
        job(trained_sample, tmp_path / "out", tables=("pairs",)), encoder=str(tmp_path / "encoder")
    )
    does = getattr(pipeline, before)

    def replaces(*arguments: object) -> object:
        for name in FILES:
            storage.write_bytes(f"{tmp_path}/encoder/{name}", storage.read_bytes(f"{others}/{name}"))
        return does(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, before, replaces)
        if before == "check_room_to_encode":
            with pytest.raises(DupqError, match=storage.CHANGED):
                evaluate(asked)
        else:
            evaluate(asked)
    evaluate(asked)
    found = {file.read_bytes() for file in (tmp_path / "out").glob("work/*/embeddings/part-00000.parquet")}
    wanted = set()
    for encoder in (others, trained_sample.encoder)[: len(found)]:
        evaluate(dataclasses.replace(asked, encoder=encoder, output=str(tmp_path / "twin")))
        [run] = (tmp_path / "twin").glob("work/*")
        wanted.add((run / "embeddings" / "part-00000.parquet").read_bytes())
        shutil.rmtree(tmp_path / "twin")
    assert found == wanted
    assert len(found) == (1 if before == "check_room_to_encode" else 2)


def another_encoder(encoder: str, folder: Path) -> str:
    """Write an encoder with other weights, and return its URI."""
    saved = load(encoder)
    with torch.no_grad():
        saved.network.words.weight.mul_(-1)
    save(str(folder), saved, "another")
    shutil.copy(f"{encoder}/split.parquet", folder)
    return str(folder)
