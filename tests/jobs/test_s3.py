"""The jobs as a user starts them, with every URI on a real S3 server (moto), against the same on the local disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from encoder_settings import QUICK_LEARNER
from inline import without_ray
from trained import TrainedSample

from dupq import storage
from dupq.encoders.description import encoder_at
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.runs.writer import Run

ROOT = Path(__file__).parents[2]


def start(job: str, *arguments: str) -> str:
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    command = [sys.executable, str(ROOT / "jobs" / f"{job}.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def upload(folder: str, target: str) -> None:
    for file in storage.list_files(folder):
        storage.write_bytes(f"{target}/{file.relative}", storage.read_bytes(file.uri))


@pytest.fixture(scope="module")
@without_ray()
def local_run(trained_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output = str(tmp_path_factory.mktemp("runs"))
    return dedup(DedupJob(trained_sample.questions, trained_sample.encoder, output, trained_sample.links))


def test_ingest_and_dedup_on_s3_give_the_tables_of_the_local_disk(
    trained_sample: TrainedSample, local_run: Run, s3: str
) -> None:
    dump = f"{s3}/dumps/sample.stackexchange.com.7z"
    storage.write_bytes(dump, Path(trained_sample.dump).read_bytes())
    upload(trained_sample.encoder, f"{s3}/encoder")
    start("ingest", "--dump", dump, "--output", f"{s3}/archive", "--set", "ingest.shard_rows=700")
    for name in ("questions", "links", "rejects"):
        there, here = (storage.list_files(f"{archive}/{name}") for archive in (f"{s3}/archive", trained_sample.archive))
        assert [storage.read_bytes(file.uri) for file in there] == [storage.read_bytes(file.uri) for file in here]

    arguments = ["--questions", f"{s3}/archive/questions", "--links", f"{s3}/archive/links"]
    arguments += ["--encoder", f"{s3}/encoder", "--output", f"{s3}/runs"]
    shown = start("dedup", *arguments)
    run = storage.read_json(f"{s3}/runs/latest.json")["run"]
    assert run in shown
    for name in ("pairs", "clusters", "cluster_stats", "embeddings"):
        files = storage.list_files(local_run.path(name))
        assert [file.relative for file in storage.list_files(f"{run}/{name}")] == [file.relative for file in files]
        for file in files:
            assert storage.read_bytes(f"{run}/{name}/{file.relative}") == storage.read_bytes(file.uri)
    assert storage.read_json(f"{run}/metrics.json") == storage.read_json(local_run.path("metrics.json"))
    assert "is finished already" in start("dedup", *arguments)
    report = storage.read_bytes(f"{run}/report.html")
    storage.delete(f"{run}/report.html")
    assert start("report", "--run", f"{s3}/runs").strip() == f"{run}/report.html"
    assert storage.read_bytes(f"{run}/report.html") == report


def test_training_on_s3_gives_the_encoder_of_the_local_disk(trained_sample: TrainedSample, s3: str) -> None:
    upload(trained_sample.questions, f"{s3}/train/questions")
    upload(trained_sample.links, f"{s3}/train/links")
    arguments = ["--questions", f"{s3}/train/questions", "--links", f"{s3}/train/links"]
    settings = [part for one in (*QUICK_LEARNER, "training.epochs=6") for part in ("--set", one)]
    start("train", *arguments, "--output", f"{s3}/trained", "--preset", "bogdanova-max", *settings)
    for name in ("model.safetensors", "vocabulary.txt", "split.parquet"):
        here = storage.read_bytes(f"{trained_sample.encoder}/{name}")
        assert storage.read_bytes(storage.join(encoder_at(f"{s3}/trained"), name)) == here
