"""Workers and jobs that are killed at random moments, and a training with every kind of input."""

import functools
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy
from encoder_settings import QUICK_LEARNER
from inline import without_ray
from riddles.grammar import write_sample
from torch import distributed, multiprocessing

from dupq.encoders.saved import encoder_at, load, read_description
from dupq.job import cluster
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq.stages.training import fit
from dupq.training.checkpoints import Checkpoints

ROOT = Path(__file__).parents[2]
LEARNER = tuple(one for one in QUICK_LEARNER if not one.startswith("training.learning_rate"))
TOGETHER = 10  # epochs of the trainings by several workers
SETTINGS = (
    "training.epochs=3",
    "training.checkpoint_seconds=0",
    "training.learning_rate=0.05",
    "training.batch_size=2",
    "training.optimizer=adagrad",
    "training.mined_negatives=1",
    "word_vectors.dimensions=40",
    "word_vectors.epochs=1",
    "encoder.units=50",
    "encoder.kind=word_bag_cnn",  # it has dropout
    *LEARNER,
)


class Archive(NamedTuple):
    questions: str
    links: str


@pytest.fixture(scope="module")
@without_ray()
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("small")
    sample = write_sample(folder / "dump", questions=400)
    ingest(IngestJob((str(sample.archive),), str(folder)))
    return Archive(str(folder / "questions"), str(folder / "links"))


def encoder_file(output: Path, name: str) -> bytes:
    return Path(encoder_at(str(output)), name).read_bytes()


def epochs_done(output: Path) -> int:
    found = list(output.glob("work/*/checkpoints/checkpoint.safetensors"))
    return len(json.loads(safetensors.numpy.load(found[0].read_bytes())["curve"].tobytes())) if found else 0


def test_a_job_that_is_cut_off_and_rerun_ends_with_the_encoder_of_one_that_was_not(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in a process of its own, it is in tests/chaos; here it has dropout, drawn negatives and checkpoints."""
    jobs = [
        TrainingJob(archive.questions, archive.links, str(tmp_path / name), "bogdanova-max", SETTINGS) for name in "ab"
    ]
    train(jobs[0])
    save, saved = Checkpoints.save, []

    def cut_off(*arguments: object) -> None:
        save(*arguments)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        train(jobs[1])
    assert epochs_done(tmp_path / "b") == 2
    train(jobs[1])
    assert len(saved) == 3  # one an epoch
    for name in ("model.safetensors", "vocabulary.txt", "split.parquet"):
        assert encoder_file(tmp_path / "b", name) == encoder_file(tmp_path / "a", name), name
    whole, again = (read_description(job.output) for job in jobs)
    assert (whole["fingerprint"], whole["metrics"]) == (again["fingerprint"], again["metrics"])
    assert [row["epoch"] for row in whole["metrics"]["learning_curve"]] == [1, 2, 3]


def workers_of_this_process(title: bytes) -> Iterator[int]:
    """Return the pids of Ray's processes with this title that descend from this process; others may run here too."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and title in _read(entry / "cmdline"):
            above = int(entry.name)
            while above > 1 and above != os.getpid():
                fields = _read(Path(f"/proc/{above}/stat")).rpartition(b")")[2].split()
                above = int(fields[1]) if fields else 0
            if above == os.getpid():
                yield int(entry.name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def train_together(archive: Archive, output: Path) -> None:
    """A network that forgives rounding.

    With each of its first weights 2^-23 of itself off, the loss comes out 1.3e-8 off at most and a weight 2.4e-7. At a
    learning rate that is 2 % off they are 8e-4 and 3e-2 off. Sums that saturate tanh (bogdanova-sum) amplify 2^-23 to
    3e-5 of the loss and 3e-2 of a weight, as much as 2 % of the learning rate do.
    """
    settings = (f"training.epochs={TOGETHER}", "word_vectors.dimensions=50", "word_vectors.epochs=1")
    settings += ("training.batch_size=16", "encoder.word_vectors=learned", "encoder.maximum_tokens=30")
    train(TrainingJob(archive.questions, archive.links, str(output), "othman-gru", settings, 2))


@pytest.fixture
def _soon_ended() -> Iterator[None]:
    """Where Ray has no dashboard, as here, what watches its placement groups asks for it in vain for ten seconds.

    Ray Train waits for that at the end of a training.
    """
    from ray.train.v2.api import data_parallel_trainer as trainer

    watching = functools.partial(trainer.PlacementGroupCleanerCallback, stop_timeout=0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "PlacementGroupCleanerCallback", watching)
        yield


def _in_processes(job: fit._Job, workers: int) -> float:
    """In place of Ray Train, which starts nine processes for two workers."""
    with tempfile.TemporaryDirectory() as meeting:
        multiprocessing.spawn(_one_of, args=(job, workers, meeting), nprocs=workers)
    return 0.0


def _one_of(rank: int, job: fit._Job, workers: int, meeting: str) -> None:
    distributed.init_process_group("gloo", f"file://{meeting}/address", rank=rank, world_size=workers)
    with without_ray():
        fit.train_with_others(job, (rank, workers), "cpu")
    (Path(meeting) / f"trained-{rank}").touch()
    while len(list(Path(meeting).glob("trained-*"))) < workers:  # which is still connected to this one
        time.sleep(0.01)
    os._exit(0)  # a process that ends as usual may be aborted by gloo's threads


def weights(output: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load(encoder_file(output, "model.safetensors"))


@pytest.mark.ray
@pytest.mark.usefixtures("_soon_ended")
def test_a_worker_that_is_killed_is_replaced_and_goes_on(
    archive: Archive,
    dice: random.Random,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of Ray Train's two; losses and weights equal those of undisturbed workers."""
    killed: list[int] = []
    undisturbed = tmp_path / "undisturbed"
    with pytest.MonkeyPatch.context() as patch, without_ray():
        patch.setattr(cluster, "check_fits", lambda *_: None)
        patch.setattr(fit, "_train_together", _in_processes)
        train_together(archive, undisturbed)

    def kill() -> None:
        while not epochs_done(tmp_path / "killed"):
            time.sleep(0.1)
        time.sleep(0.5 * dice.random())
        killed.append(dice.choice(sorted(workers_of_this_process(b"ray::RayTrainWorker"))))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    capsys.readouterr()
    train_together(archive, tmp_path / "killed")
    killer.join()
    assert killed
    one, two = (read_description(str(folder))["metrics"] for folder in (undisturbed, tmp_path / "killed"))
    assert [row["epoch"] for row in two["learning_curve"]] == list(range(1, TOGETHER + 1))
    assert one == two
    again = weights(tmp_path / "killed")
    for tensor, values in weights(undisturbed).items():
        assert np.array_equal(values, again[tensor]), tensor
    assert capsys.readouterr().out.count("  epoch ") == TOGETHER


def test_an_encoder_is_trained_on_a_pair_file_alone_with_hard_negatives(archive: Archive, tmp_path: Path) -> None:
    from dupq.archive import question_shards
    from dupq.links import known_duplicates

    sites = question_shards(archive.questions)[1]
    pairs = known_duplicates(archive.links, sites)
    lines = [f"{sites.label(left)}\t{right & ((1 << 48) - 1)}" for left, right in pairs.tolist()]
    lines += [f"{pairs[0, 0] & ((1 << 48) - 1)}\t{pairs[1, 0] & ((1 << 48) - 1)}\t0", "1\t999999999"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    settings = (
        *SETTINGS[4:],
        "training.epochs=3",
        "training.pairs=20",
        "training.loss=softmax",
        "training.negatives=0",
        "training.optimizer=adam",
        "training.learning_rate=0.01",
    )
    job = TrainingJob(
        archive.questions, None, str(tmp_path / "encoder"), "bogdanova-max", settings, 1, (str(tmp_path / "pairs.tsv"),)
    )
    run = train(job)
    curve = load(str(tmp_path / "encoder")).metrics["learning_curve"]
    assert len(curve) == 3
    assert {row["examples"] for row in curve} == {20}
    prepared = next(record for record in run.records if record["name"] == "prepare")
    assert prepared["counts"]["pairs of files not in the archive"] == 1
