"""Training by teachers: other encoders of dupq's teach."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from trained import TrainedSample

from dupq import storage
from dupq.encoders.saved import encoder_at, load, save
from dupq.errors import DupqError, SettingError
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.pipelines import train as pipeline
from dupq.pipelines.train import TrainingJob, train
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.embeddings import device_for
from dupq.stages.training import teach
from dupq.stages.training.teach import FROM_EARLIER, _batches, targets_of
from dupq.text.languages import stems
from dupq.training.pairs import DistillationTargets
from dupq_papers.word_vectors import spellings, teacher_word_vectors

QUICK = (
    "title_body.epochs=1",
    "teacher.epochs=3",
    "teacher.held_out=false",
    "training.epochs=1",
    "teacher.questions=700",
    "encoder.units=30",
)


def job(sample: TrainedSample, output: Path, *more: str) -> TrainingJob:
    settings = (*QUICK, f"teacher.encoder={sample.encoder}", *more)
    return TrainingJob(sample.questions, sample.links, str(output), "dupq-distilled", settings)


def read_targets(run: Run, teachers: int) -> DistillationTargets:
    folders = [run.path("work", "teach", f"teacher-{number}") for number in range(teachers)]
    return targets_of([Table(folder, None, len(storage.list_files(folder, ".parquet"))) for folder in folders])


def test_a_teacher_gives_words_and_questions_but_none_that_are_kept_for_later(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    run = train(job(trained_sample, tmp_path / "encoder"))

    made, teacher = load(str(tmp_path / "encoder")), load(trained_sample.encoder)
    assert [record["name"] for record in run.records] == ["inputs", "texts", "prepare", "teach", "fit", "save"]
    curve = made.metrics["learning_curve"]
    assert [row["epoch"] for row in curve] == [1, 2, 3, 4, 5]
    assert curve[3]["loss"] < curve[1]["loss"]
    assert made.network.dimensions == teacher.network.dimensions
    taught = read_targets(run, 1)
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


def test_a_teacher_may_read_texts_that_are_kept_for_later_and_training_goes_on_without_its_gpus(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("teacher.held_out=true", "teacher.questions=100000", "teacher.epochs=1", "training.mined_negatives=1")
    training = job(trained_sample, tmp_path / "encoder", *settings)

    def begun_on_gpus(run: Run, *_: object) -> int:
        run.record("device", device_for)(True)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(teach, "gpus_to_make", begun_on_gpus)
        patch.delattr(pipeline, "fit")  # as if the job was killed then
        with pytest.raises(NameError):
            train(training)
    run = train(training)
    taught = set(read_targets(run, 1).left.tolist())
    assert taught == set(pq.read_table(f"{run.uri}/texts", columns=["key"])["key"].to_pylist())


def test_two_teachers_teach_by_their_vectors_and_what_one_has_read_is_not_read_again(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    other = load(trained_sample.encoder)
    with torch.no_grad():
        other.network.words.weight.mul_(torch.linspace(0.5, 2, other.network.words.embedding_dim))
    save(f"{tmp_path}/other", other, "0" * 16)
    shutil.copy(Path(encoder_at(trained_sample.encoder), "split.parquet"), tmp_path / "other")
    output = tmp_path / "encoder"
    first = train(job(trained_sample, output, "teacher.epochs=1"))
    kept = {path: path.read_bytes() for path in (output / "work" / "teachers").rglob("*.parquet")}

    def count(run: Run) -> int:
        return run.records[3]["counts"].get(FROM_EARLIER, 0)

    both = f"teacher.encoder={trained_sample.encoder},{tmp_path}/other"
    mined = ("training.mined_negatives=1",)
    second = train(job(trained_sample, output, both, *mined))
    one = read_targets(first, 1)
    two = read_targets(second, 2)
    assert (count(first), count(second)) == (0, len(one.left))
    assert second.records[3]["rows_out"] == 2 * len(one.left) == 2 * len(two.left)
    dimensions = one.vectors.shape[1]
    assert two.vectors.shape[1] == 2 * dimensions
    assert np.abs(two.vectors[:, :dimensions] * np.sqrt(2) - one.vectors).max() < 1e-6
    assert np.abs(two.vectors[:, dimensions:] * np.sqrt(2) - one.vectors).max() > 0.01
    losses = [row["loss"] for row in load(str(output)).metrics["learning_curve"]]
    assert losses[3] < losses[1]

    damaged = min(kept)
    damaged.write_bytes(kept[damaged][:-9])
    third = train(job(trained_sample, output, "teacher.epochs=1", "title_body.epochs=2"))
    assert count(third) == len(one.left) - pq.read_metadata(damaged).num_rows
    assert {path: path.read_bytes() for path in kept} == kept
    shutil.rmtree(output / "work" / "teachers")
    assert count(train(job(trained_sample, output, both, *mined))) == count(second)  # which has a copy


def test_one_question_more_changes_its_own_piece_alone() -> None:
    keys = np.arange(0, 40_000, 2)
    before, after = (_batches(found) for found in (keys, np.sort(np.append(keys, 20_001))))
    assert np.array_equal(np.concatenate(before), keys)
    assert all(len(piece) for piece in before)
    assert 300 < np.mean([len(piece) for piece in before]) < 800
    same = {piece.tobytes() for piece in before} & {piece.tobytes() for piece in after}
    assert len(same) == len(before) - 1


def taught_words(words: list[str], encoder: str, written: dict[str, int], settings: Settings) -> np.ndarray:
    return teacher_word_vectors(encoder, spellings(words, written, settings), len(words))


def test_single_words_have_the_teachers_embeddings(trained_sample: TrainedSample) -> None:
    teacher = load(trained_sample.encoder)
    words = teacher.vocabulary.words[:3]
    found = taught_words([*words, "no-such-word-anywhere"], trained_sample.encoder, {}, Settings())
    assert found.shape == (4, teacher.network.dimensions)
    assert (found[:3].astype(float) ** 2).sum(axis=1) == pytest.approx(1, abs=1e-2)


def test_a_stem_has_the_mean_of_its_words_embeddings(trained_sample: TrainedSample) -> None:
    settings = config.load("dupq-distilled", ["text.word_form=stems", "word_vectors.minimum_count=2"])
    known = set(load(trained_sample.encoder).vocabulary.words)
    by_stem: dict[str, list[str]] = {}
    for word in sorted(known):
        by_stem.setdefault(stems("english")(word), []).append(word)
    stem, (one, other) = next((stem, words[:2]) for stem, words in by_stem.items() if len(words) > 1)
    alone = next(stem for stem, words in by_stem.items() if words == [stem])
    plain = taught_words([one, other, alone], trained_sample.encoder, {}, Settings())
    written = {one: 3, other: 2, f"{one}-unheard-of": 1}
    found = taught_words([alone, stem], trained_sample.encoder, written, settings)
    expected = (3 * plain[0].astype(float) + 2 * plain[1].astype(float)) / 5
    assert found[0] == pytest.approx(plain[2], abs=1e-3)  # which is nowhere frequent enough
    assert found[1] == pytest.approx(expected, abs=1e-3)


def test_a_teacher_that_is_none_and_one_that_reads_other_texts_are_clear_errors(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    with pytest.raises(DupqError, match="no encoder here"):
        job(trained_sample, tmp_path, f"teacher.encoder={tmp_path}").check()
    with pytest.raises(SettingError, match=r"'teacher\.encoder' is empty.*word_vectors\.algorithm=teacher"):
        job(trained_sample, tmp_path, "teacher.encoder=").check()
    with pytest.raises(
        DupqError, match=r"the teacher reads text\.code=removed.*kept, words, title\+body; set them alike"
    ):
        train(job(trained_sample, tmp_path / "x", "text.code=kept"))
    assert not storage.exists(str(tmp_path / "x" / "latest.json"))
