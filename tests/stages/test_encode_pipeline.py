"""The pipeline of Ray Data that encodes, beside one process that takes all steps of each shard."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
from inline import without_ray
from random_bag import WORDS, saved_encoder

from dupq import storage, system
from dupq.encoders.bags import Encoded
from dupq.errors import DupqError
from dupq.job import actors
from dupq.job.actors import Pool, call_on_gpu
from dupq.job.run import Run
from dupq.job.step import unfinished
from dupq.job.table import Broadcast, Table
from dupq.job.tasks import Report
from dupq.stages import embeddings
from dupq.stages.embeddings import Embedder, encode_texts
from dupq.system import recording
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.token_arrays import TokenIds

Groups = Sequence[Sequence[int]]
SHARDS = (30, 0, 1, 200, 30, 7)  # questions of each
WITH_A_GPU = """
import pickle, sys
import ray
ray.init("local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
call = pickle.load(open(sys.argv[1], "rb"))
from test_encode_pipeline import encode
pickle.dump(encode(*call), open(sys.argv[1], "wb"))
"""


class OnCPU(Embedder):
    """An encoder for a GPU that is a CPU."""

    def encode(self, texts: TokenIds) -> Encoded:
        system.GPU = system.CPU
        return super().encode(texts)


class Archive:
    """Texts, of which some are represented by others."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.encoder = folder, saved_encoder(folder / "encoder")
        self.texts, first = Table(f"{folder}/texts", TEXTS, len(SHARDS)), 0
        random = np.random.default_rng(3)
        for number, size in enumerate(SHARDS):
            texts = [" ".join(random.choice(WORDS, random.integers(0, 60))) for _ in range(size)]
            columns = [pa.array(np.arange(first, first + size)), pa.array([text[:8] for text in texts], pa.string())]
            table = pa.table([*columns, pa.array(texts, pa.string())], schema=TEXTS)
            storage.write_table(self.texts.file(number), table, TEXTS)
            first += size
        represented = {"key": np.array([3, 35, 36]), "representative": np.array([3, 30, 31])}
        table = pa.table([pa.array(represented[field.name]) for field in REPRESENTATIVES], schema=REPRESENTATIVES)
        self.representatives = Table(f"{folder}/representatives", REPRESENTATIVES, 1)
        storage.write_table(self.representatives.file(0), table, REPRESENTATIVES)

    def inputs(self, gpu: bool = False, kind: type[Embedder] = Embedder) -> tuple[Any, ...]:
        return (self.texts, Broadcast(self.representatives), None, kind(self.encoder, 64, gpu), ["a"], None)

    def encode(self, name: str, groups: Groups, pool: Pool | None = None) -> tuple[Table, Report]:
        return encode(f"{self.folder}/{name}", self.inputs(), groups, pool)


def encode(
    uri: str, inputs: tuple[Any, ...], groups: Groups, pool: Pool | None = None, gpus: int = 0
) -> tuple[Table, Report]:
    """The table of embeddings, and the report."""
    run = Run(uri, "encode")
    made = run.map("embeddings", encode_texts, publish=True, gpus=gpus, groups=groups, pool=pool)(*inputs)
    return made, run.report


def groups_of(size: int) -> Groups:
    """So many partitions for each task."""
    every = range(len(SHARDS))
    return [every[first : first + size] for first in every[::size]]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    made = Archive(tmp_path_factory.mktemp("archive"))
    with without_ray():
        made.encode("alone", groups_of(1))
    return made


def check(archive: Archive, made: tuple[Table, Report]) -> None:
    """All is written, as by one process, and told."""
    table, report = made
    assert table.rows == report.rows_in == sum(SHARDS) - 2
    assert report.peak_memory_mb > 0
    check_bytes(archive, table)


def check_bytes(archive: Archive, table: Table) -> None:
    alone = Table(f"{archive.folder}/alone/embeddings", None, len(SHARDS))
    assert [*map(storage.read_bytes, table.files)] == [*map(storage.read_bytes, alone.files)]


def test_threads_write_the_files_of_one(archive: Archive) -> None:
    """Some are there already."""
    first = encode(f"{archive.folder}/by threads", archive.inputs(), [[1]])[0]
    check(archive, archive.encode("by threads", groups_of(4)))
    assert storage.exists(first.file(1))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # the ids in Ray's store; not on a GPU
def test_a_gpus_process_has_tasks_read_tokenise_and_write(
    archive: Archive, ray_started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is a CPU here, and this process the one that holds it."""

    def not_here(*_: object) -> None:
        raise AssertionError("read, tokenised or written by the GPU's process")

    monkeypatch.setattr(system, "GPU", system.CPU)
    for name in ("read_table", "write_table"):
        monkeypatch.setattr(storage, name, not_here)
    monkeypatch.setattr(embeddings, "token_ids", not_here)
    made = Run(f"{archive.folder}/by tasks", "encode").table("embeddings", None, len(SHARDS), publish=True)
    inputs = encode_texts.bound(*archive.inputs(gpu=True))
    with recording() as written:
        counts = [call_on_gpu(number, encode_texts, inputs, None, made) for number in range(len(SHARDS))]
    assert sum(each["rows_out"] for each in counts) == sum(SHARDS) - 2
    assert set(written) == set(made.files)
    check_bytes(archive, made)


@pytest.mark.parametrize("pool", [pytest.param(None, id="task", marks=pytest.mark.full), Pool(1, 0, 1)])
def test_it_works_where_ray_has_as_many_gpus_as_cpus(archive: Archive, pool: Pool | None, tmp_path: Path) -> None:
    """Ray counts a GPU that is not there, and its device is the CPU. The tasks that feed it find a free CPU."""
    call = (str(tmp_path / "encoded"), archive.inputs(True, OnCPU), groups_of(6), pool, 1)
    (tmp_path / "calls").write_bytes(pickle.dumps(call))
    run = [sys.executable, "-c", WITH_A_GPU, str(tmp_path / "calls")]
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    subprocess.run(run, check=True, timeout=600, env={**os.environ, "PYTHONPATH": path})
    check(archive, pickle.loads((tmp_path / "calls").read_bytes()))


@pytest.mark.ray
def test_several_workers_make_what_is_not_whole_as_one_process_does(archive: Archive, ray_started: None) -> None:
    made = encode(f"{archive.folder}/again", archive.inputs(), [[0, 1, 2]])[0]  # what a job that was killed left
    first, *kept, lost = made.files[:3]
    storage.write_bytes(first, b"damaged")
    storage.delete(lost)
    whole = list(map(storage.version, kept))
    assert unfinished(made) == [3, 4, 5]
    again = archive.encode("again", groups_of(3), Pool(2, 0.2, 0))
    assert list(map(storage.version, kept)) == whole
    assert again[1].tasks == len(SHARDS)
    check(archive, again)


def test_what_actors_leave_tasks_do(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "run_in_actors", lambda *_: None)  # they died
    check(archive, archive.encode("left", groups_of(2), Pool(2, 0.2, 0)))


@pytest.mark.ray
def test_an_error_of_an_actor_is_that_of_its_step(tmp_path: Path, ray_started: None) -> None:
    archive = Archive(tmp_path)
    storage.write_bytes(archive.texts.file(5), b"damaged")
    with pytest.raises(DupqError) as alone:
        archive.encode("alone", [[5]])
    with pytest.raises(DupqError) as caught:
        archive.encode("by actors", groups_of(6), Pool(1, 0.2, 0))
    assert str(caught.value) == str(alone.value)
    wanted = ray.cluster_resources()["CPU"]
    for _ in range(600):  # actors end when nothing holds them, soon after
        if ray.available_resources().get("CPU") == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"of {wanted} CPUs there are {ray.available_resources()}")
