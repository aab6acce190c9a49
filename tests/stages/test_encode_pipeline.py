"""The pipeline of Ray Data that encodes, beside one process that takes all steps of each shard."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray
from random_bag import WORDS, saved_encoder

from dupq import storage, system
from dupq.errors import DupqError
from dupq.job import cluster
from dupq.job.actors import Pool, run_in_actors
from dupq.job.gpus import NO_GPUS
from dupq.job.records import Encoding
from dupq.job.tasks import Report
from dupq.settings.sections import EncodeSettings
from dupq.stages import embeddings
from dupq.stages.embeddings import Embedder, EncodeContext, encode_shards, gpus_to_make, pool_for
from dupq.system import recording
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import Sites

SHARDS = (30, 0, 1, 200, 30, 7)  # questions of each
NAMES = [f"{number}.parquet" for number in range(len(SHARDS))]
WITH_GPUS = """
import pickle, sys
import ray
from dupq.settings.sections import EncodeSettings
from dupq.stages.embeddings import Embedder, pool_for
from dupq.job.actors import run_in_actors
gpus = int(sys.argv[2])
ray.init("local", num_cpus=gpus, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
context, shards = pickle.load(open(sys.argv[1], "rb"))
from dupq import system
from dupq.system import recording
def hold():
    system.GPU = system.CPU
    return Embedder(context).encode_shard
with recording() as written:
    pool = pool_for(EncodeSettings(actors=gpus), len(shards), gpus)
    report = run_in_actors("encode", hold, shards, pool)
pickle.dump((report, written), open(sys.argv[1], "wb"))
"""


class Archive:
    """Texts, of which some are represented by others, and where embeddings go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        encoder, random, first = saved_encoder(folder / "encoder"), np.random.default_rng(3), 0
        for number, size in enumerate(SHARDS):
            texts = [" ".join(random.choice(WORDS, random.integers(0, 60))) for _ in range(size)]
            columns = [pa.array(np.arange(first, first + size)), pa.array([text[:8] for text in texts], pa.string())]
            table = pa.table([*columns, pa.array(texts, pa.string())], schema=TEXTS)
            storage.write_table(f"{folder}/texts/{number}.parquet", table, TEXTS)
            first += size
        represented = {"key": np.array([3, 35, 36]), "representative": np.array([3, 30, 31])}
        table = pa.table([pa.array(represented[field.name]) for field in REPRESENTATIVES], schema=REPRESENTATIVES)
        storage.write_table(f"{folder}/representatives.parquet", table, REPRESENTATIVES)
        self.encoder = encoder

    def to(self, output: str, gpu: bool = False) -> EncodeContext:
        files = (f"{self.folder}/{name}" for name in ("representatives.parquet", "as.json", output))
        return EncodeContext(Encoding(f"{self.folder}/texts", "", self.encoder, *files), ["a"], 64, gpu)


def outputs(context: EncodeContext) -> list[str]:
    return [f"{context.files.output}/{name}" for name in NAMES]


def by_actors(context: EncodeContext, pool: Pool) -> Report:
    return run_in_actors("encode", lambda: Embedder(context).encode_shard, NAMES, pool)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    made = Archive(tmp_path_factory.mktemp("archive"))
    for name in NAMES:
        encode_shards(made.to("alone"), [name])
    return made


def check(archive: Archive, context: EncodeContext, report: Report, written: Iterable[str]) -> None:
    """All is written, as by one process, and told."""
    assert report.rows_out == sum(SHARDS) - 2
    assert report.peak_memory_mb > 0
    assert set(written) == set(outputs(context))
    check_bytes(archive, context)


def check_bytes(archive: Archive, context: EncodeContext) -> None:
    for output, alone in zip(outputs(context), outputs(archive.to("alone")), strict=True):
        assert storage.read_bytes(output) == storage.read_bytes(alone)


def test_threads_write_the_files_of_one(archive: Archive) -> None:
    """Some are there already."""
    context = archive.to("by threads")
    encode_shards(context, [NAMES[1]])
    with recording() as written:
        counts = encode_shards(context, NAMES)
    check(archive, context, Report(rows_out=counts["rows_out"], peak_memory_mb=1.0), written)


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
    context = archive.to("by tasks", gpu=True)
    with recording() as written:
        counts = encode_shards(context, NAMES)
    check(archive, context, Report(rows_out=counts["rows_out"], peak_memory_mb=1.0), written)


@pytest.mark.ray
def test_files_of_several_workers_are_those_of_one_process(archive: Archive, ray_started: None) -> None:
    context = archive.to("by three")
    with recording() as written:
        report = by_actors(context, Pool(3, 0.2, 0))
    check(archive, context, report, written)


def test_it_works_where_ray_has_as_many_gpus_as_cpus(archive: Archive, tmp_path: Path) -> None:
    """Ray counts a GPU that is not there, and its device is the CPU. The tasks that feed it find a free CPU."""
    context = archive.to("with a gpu", gpu=True)
    (tmp_path / "call").write_bytes(pickle.dumps((context, NAMES)))
    run = [sys.executable, "-c", WITH_GPUS, str(tmp_path / "call"), "1"]
    subprocess.run(run, check=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    check(archive, context, *pickle.loads((tmp_path / "call").read_bytes()))


@pytest.mark.ray
def test_what_is_whole_is_left_out_and_the_rest_made_again(
    archive: Archive, ray_started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = archive.to("again")
    gpus_to_make(context.files.made_as, context.files.output, NO_GPUS, {})
    for name in NAMES[:3]:  # what a job that was killed has left
        encode_shards(context, [name])
    first, *kept, lost = outputs(context)[:3]
    storage.write_bytes(first, b"damaged")
    storage.delete(lost)
    whole = list(map(storage.version, kept))
    report = embeddings.encode_texts(context.files, Sites(["a"]), EncodeSettings(actors=2), NO_GPUS)
    assert list(map(storage.version, kept)) == whole
    assert (report.tasks, report.rows_out) == (len(SHARDS), sum(SHARDS) - 2)
    check_bytes(archive, context)


def test_no_actors_start_for_what_is_finished(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    context = archive.to("finished")
    gpus_to_make(context.files.made_as, context.files.output, NO_GPUS, {})
    encode_shards(context, NAMES)
    monkeypatch.setattr(cluster, "widest", lambda: 1.0)
    monkeypatch.setattr(cluster, "is_in_process", lambda: False)
    monkeypatch.setattr(embeddings, "run_in_actors", lambda *_: pytest.fail("actors were started"))
    monkeypatch.setattr(embeddings, "run_tasks", lambda *_, **__: Report(rows_out=7))
    assert embeddings.encode_texts(context.files, Sites(["a"]), EncodeSettings(actors=2), NO_GPUS).rows_out == 7


@pytest.mark.ray
def test_an_error_of_an_actor_is_that_of_its_step(tmp_path: Path, ray_started: None) -> None:
    archive = Archive(tmp_path)
    storage.write_bytes(f"{tmp_path}/texts/5.parquet", b"damaged")
    with pytest.raises(DupqError) as alone:
        encode_shards(archive.to("alone"), [NAMES[5]])
    with pytest.raises(DupqError) as caught:
        by_actors(archive.to("embeddings"), Pool(1, 0.2, 0))
    assert str(caught.value) == str(alone.value)
    wanted = ray.cluster_resources()["CPU"]
    for _ in range(600):  # actors end when nothing holds them, soon after
        if ray.available_resources().get("CPU") == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"of {wanted} CPUs there are {ray.available_resources()}")


@pytest.mark.parametrize(
    ("settings", "gpus", "cpus", "least", "actors"),
    [
        (EncodeSettings(), 0, 2, 32, 2),  # a small run on CPUs: tasks
        (EncodeSettings(actors=2), 0, 8, 3, 2),
        (EncodeSettings(), 4, 64, 64, 4),
        (EncodeSettings(), 4, 4, 64, 4),
    ],
)
def test_the_pipeline_is_for_actors_that_are_asked_for_and_for_large_runs(
    settings: EncodeSettings, gpus: int, cpus: int, least: int, actors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"is_in_process": False, "cpus": cpus, "widest": 1.0}.items():
        monkeypatch.setattr(cluster, name, lambda value=value: value)
    assert pool_for(settings, least - 1, gpus) is None
    crew = pool_for(settings, least, gpus)
    assert crew is not None
    assert (crew.actors, crew.gpus) == (actors, 1 if gpus else 0)
    if gpus:
        assert crew.cpus == 0  # CPUs are for the tasks that feed it
    else:
        assert crew.cpus == 1  # an actor takes all steps, on a CPU of its own
