"""Whole jobs on the code for GPUs, with the CPU as the device: they answer as on CPUs, byte for byte."""

from functools import cache
from pathlib import Path

import pytest
from trained import TrainedSample

from dupq import storage, system
from dupq.encoders import on_device
from dupq.encoders.saved import read_description
from dupq.job import cluster, gpus
from dupq.job.run import Run
from dupq.neighbours.gpu import device_questions, search
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.train import TrainingJob, train
from dupq.stages.embeddings import device_of
from dupq.stages.search import everything
from dupq.training import loop

QUICK = ("training.epochs=1", "word_vectors.dimensions=20", "word_vectors.epochs=1")
DUPQ = ("word_vectors.algorithm=random", "encoder.dropout=0", "title_body.epochs=1")
LISTS = ("work/neighbours/nearest", "work/neighbours/directed", "work/beyond_lists/directed")
TABLES = ("pairs", "clusters", "cluster_stats", *LISTS)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU for each task of this process; its device is the CPU. A search has several rounds, and loses candidates."""
    monkeypatch.setattr(cluster, "gpus", lambda: 1)
    monkeypatch.setattr(gpus, "_nodes_with_gpus", lambda: ())
    monkeypatch.setattr(gpus, "_trouble", cache(lambda nodes: None))
    monkeypatch.setattr(system, "GPU", system.CPU)
    monkeypatch.setattr(search, "_SMALLEST_PANEL", 16)
    monkeypatch.setattr(device_questions, "_SMALLEST", 16)


def answers(run: Run) -> dict[str, bytes]:
    files = (file for table in TABLES for file in storage.list_files(run.path(table)))
    return {file.uri.removeprefix(run.uri): storage.read_bytes(file.uri) for file in files}


def test_a_nightly_job_answers_the_same(
    small_sample: TrainedSample, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def run(name: str, gpus: int) -> Run:
        output, settings = str(tmp_path / name), ("run.keep_work=true",)
        return dedup(DedupJob(small_sample.questions, small_sample.encoder, output, gpus=gpus, assignments=settings))

    by_cpus = run("cpus", 0)
    request.getfixturevalue("device")
    searched = request.getfixturevalue("monkeypatch")
    on_gpus, calls = everything.search_on_gpus, []
    searched.setattr(everything, "search_on_gpus", lambda *arguments: calls.append(1) or on_gpus(*arguments))
    by_device = run("device", 1)
    assert calls
    assert device_of(by_device.uri) == "gpu"
    assert len(answers(by_cpus)) >= len(TABLES)
    assert answers(by_device) == answers(by_cpus)


def test_training_makes_the_same_encoder_and_as_a_gpu_computes_learns_the_same(
    small_sample: TrainedSample, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Sums have another order on a GPU."""

    def trained(name: str, gpus: int) -> tuple[str, list[float]]:
        given = small_sample.questions, small_sample.links, str(tmp_path / name)
        train(TrainingJob(*given, gpus=gpus, assignments=(*QUICK, *DUPQ)))
        made = read_description(given[2])
        return made["fingerprint"], [epoch["loss"] for epoch in made["metrics"]["learning_curve"]]

    fingerprint, losses = trained("cpus", 0)
    request.getfixturevalue("device")
    assert trained("device", 1)[0] == fingerprint
    patched, uploads, upload = request.getfixturevalue("monkeypatch"), [], loop.texts_by_key
    patched.setattr(on_device, "is_gpu", lambda _: True)
    patched.setattr(loop, "texts_by_key", lambda *texts: uploads.append(1) or upload(*texts))
    assert trained("gpu", 1)[1] == pytest.approx(losses, rel=1e-3)
    assert len(uploads) == len(losses)
