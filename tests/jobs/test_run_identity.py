"""A run is named by the contents of its inputs, not by where they are."""

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import pytest
import sentence_stand_in
from trained import TrainedSample

from dupq.job.run import Run
from dupq.pipelines import opening
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.train import TrainingJob, train

Name = Callable[[Callable[[], object]], str]


class Opened(Exception):  # noqa: N818
    """Raised when a run was opened, so that nothing is done."""


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Name:
    """Return a function that returns the name of the run that a job opens."""

    def held(run: Run) -> NoReturn:
        raise Opened(run.run_id)

    def opened(job: Callable[[], object]) -> str:
        with pytest.raises(Opened) as found:
            job()
        return str(found.value)

    monkeypatch.setattr(Run, "held", held)
    return opened


def test_a_training_is_named_by_its_word_vectors_teacher_and_wrapped_model_wherever_they_are(
    name: Name, trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def training(preset: str, *given: str) -> str:
        questions, links = trained_sample.questions, trained_sample.links
        return name(lambda: train(TrainingJob(questions, links, str(tmp_path / "out"), preset, given)))

    def with_vectors(file: str, lines: str) -> str:
        (tmp_path / file).write_text(lines)
        return training("bogdanova-max", f"word_vectors.file={tmp_path}/{file}", "word_vectors.dimensions=2")

    here = with_vectors("here.txt", "bread 1 2\n")
    assert with_vectors("there.txt", "bread 1 2\n") == here
    assert with_vectors("there.txt", "bread 1 3\n") != here

    shutil.copytree(trained_sample.encoder, tmp_path / "teacher")
    here = training("dupq", f"teacher.encoder={trained_sample.encoder}")
    assert training("dupq", f"teacher.encoder={tmp_path}/teacher") == here
    assert training("dupq") != here

    sentence_stand_in.install(monkeypatch)
    sentence_stand_in.write_model(tmp_path / "model")
    wrapping = "sentence-transformers", f"encoder.model={tmp_path}/model"
    before = training(*wrapping)
    assert training(*wrapping) == before
    (tmp_path / "model" / "model.safetensors").write_text("of its own")
    assert training(*wrapping) != before


def test_a_run_is_named_by_its_reranker_wherever_that_is(
    name: Name, trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_stand_in.install(monkeypatch)
    for place in ("here", "there", "other", "all-MiniLM-L12-v2"):
        sentence_stand_in.write_model(tmp_path / place)
    (tmp_path / "other" / "model.safetensors").write_text("of its own")
    (tmp_path / "there" / "README.md").write_text("its vectors do not depend on this")

    def run(reranker: str | None, language: str = "english") -> str:
        monkeypatch.setattr(opening, "languages_of_sites", lambda shards: {shards[0].site: language})
        given = str(tmp_path / reranker) if reranker and reranker != "none" else reranker
        job = DedupJob(trained_sample.questions, trained_sample.encoder, str(tmp_path / "out"), reranker=given)
        return name(lambda: dedup(job))

    here = run("here")
    assert run("there") == here
    assert run("none") == run(None)  # tests lack the default one
    assert len({here, run("other"), run(None)}) == 3
    assert run("here", "german") == here
    assert run("all-MiniLM-L12-v2") == here  # the same weights
    assert run("all-MiniLM-L12-v2", "german") == run(None)  # it would read nothing


def test_a_run_is_named_by_its_prior_wherever_that_is(
    name: Name, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    prior = json.loads((files("dupq") / "clusters" / "prior.json").read_text())

    def run(place: str, **changes: object) -> str:
        (tmp_path / place).write_text(json.dumps(prior | changes))
        given = (f"calibration.prior={tmp_path}/{place}",)
        job = DedupJob(trained_sample.questions, trained_sample.encoder, str(tmp_path / "out"), assignments=given)
        return name(lambda: dedup(job))

    here = run("here.json")
    assert run("there.json") == here
    assert run("there.json", sites=["elsewhere.example.com"]) != here
