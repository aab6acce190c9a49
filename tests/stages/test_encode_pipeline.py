"""The pipeline of Ray Data that encodes, beside one process that takes all steps of each shard."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray
from random_bag import WORDS, saved_encoder
from scipy import sparse

from dupq import storage
from dupq.encoders.description import read_description
from dupq.encoders.steps import encode, shard_encoding
from dupq.encoders.steps.encode import encode_shards, gpus_to_make, tokenise_shard
from dupq.encoders.steps.encode_pipeline import encode_by_pipeline
from dupq.encoders.steps.shard_encoding import Crew, Place, Tokens, Work, crew_for, encode_shard
from dupq.errors import DupqError
from dupq.execution.gpus import NO_GPUS
from dupq.execution.tasks import Outcome
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.layout import Encoding
from dupq.settings.sections import EncodeSettings
from dupq.system import Written, recording
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import Sites
from dupq.text.token_arrays import TokenIds

SHARDS = (30, 0, 1, 200, 30, 7)  # questions of each
WITH_GPUS = """
import pickle, sys
import ray
from dupq.settings.sections import EncodeSettings
from dupq.encoders.steps.shard_encoding import crew_for
from dupq.encoders.steps.encode import gpus_to_make
from dupq.encoders.steps.encode_pipeline import encode_by_pipeline
gpus = int(sys.argv[2])
ray.init("local", num_cpus=gpus, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
work, places = pickle.load(open(sys.argv[1], "rb"))
outcomes = encode_by_pipeline(work, places, crew_for(EncodeSettings(), gpus, gpus))
pickle.dump(outcomes, open(sys.argv[1], "wb"))
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
        fingerprint = read_description(encoder)["fingerprint"]
        self.work = Work(encoder, fingerprint, ["a"], f"{folder}/representatives.parquet", 64, gpu=False)

    def places(self, output: str) -> list[Place]:
        return [
            Place(f"{self.folder}/texts/{number}.parquet", "", f"{self.folder}/{output}/{number}.parquet")
            for number in range(len(SHARDS))
        ]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    made = Archive(tmp_path_factory.mktemp("archive"))
    for place in made.places("alone"):
        encode_shard(made.work, place)
    return made


def check(archive: Archive, places: list[Place], outcomes: list[Outcome]) -> None:
    """All is written, as by one process, and told."""
    assert sum(counts["rows_out"] for counts, _, _ in outcomes) == sum(SHARDS) - 2
    assert {uri for _, _, written in outcomes for uri in written} == {place.output for place in places}
    assert all(peak > 0 for _, peak, _ in outcomes)
    for place, alone in zip(places, archive.places("alone"), strict=True):
        assert storage.read_bytes(place.output) == storage.read_bytes(alone.output)


def test_a_gpus_process_writes_the_files_of_one(archive: Archive) -> None:
    """Some are there already; token ids of the others are in files."""
    places = archive.places("by threads")
    encode_shard(archive.work, places[1])
    shards = [(place, f"{archive.folder}/token_ids/{number}") for number, place in enumerate(places)]
    for place, uri in shards:
        tokenise_shard(archive.work, place, uri)
    assert not storage.exists(shards[1][1])
    with recording() as written:
        counts = encode_shards(archive.work, shards)
    check(archive, places, [(counts, 1.0, written)])


@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 4])
def test_files_are_those_of_one_process_for_any_number_of_workers(
    workers: int, archive: Archive, ray_started: None
) -> None:
    places = archive.places(f"by {workers}")
    check(archive, places, encode_by_pipeline(archive.work, places, Crew(workers, 0.2, 0, 0)))


def test_it_works_where_ray_has_as_many_gpus_as_cpus(archive: Archive, tmp_path: Path) -> None:
    """Ray counts a GPU that is not there, and the encoder stays on the CPU: the steps are those with a real one."""
    places = archive.places("with a gpu")
    (tmp_path / "call").write_bytes(pickle.dumps((archive.work, places)))
    run = [sys.executable, "-c", WITH_GPUS, str(tmp_path / "call"), "1"]
    subprocess.run(run, check=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    check(archive, places, pickle.loads((tmp_path / "call").read_bytes()))


@pytest.mark.ray
def test_what_is_whole_is_left_out_and_the_rest_made_again(
    archive: Archive, ray_started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, folder = archive.places("again"), archive.folder
    gpus_to_make(f"{folder}/as.json", f"{folder}/again", NO_GPUS, {})
    for place in places[:4]:  # what a job that was killed has left
        encode_shard(archive.work, place)
    storage.write_bytes(places[0].output, b"damaged")
    storage.delete(places[3].output)
    taken: list[list[Place]] = []
    by_pipeline = encode_by_pipeline

    def watched(work: Work, left: list[Place], crew: Crew) -> object:
        taken.append(left)
        return by_pipeline(work, left, crew)

    monkeypatch.setattr("dupq.encoders.steps.encode_pipeline.encode_by_pipeline", watched)
    job = Encoding(f"{folder}/texts", f"{folder}/contents", archive.work.encoder, archive.work.representatives,
                   f"{folder}/as.json", f"{folder}/again")  # fmt: skip
    report = encode.encode_texts(job, Sites(["a"]), EncodeSettings(actors=2), NO_GPUS)
    assert [[Path(place.texts).stem for place in left] for left in taken] == [["0", "3", "4", "5"]]
    assert (report.tasks, report.rows_out) == (len(SHARDS), sum(SHARDS) - 2)
    for place, alone in zip(places, archive.places("alone"), strict=True):
        assert storage.read_bytes(place.output) == storage.read_bytes(alone.output)


@pytest.mark.ray
@pytest.mark.parametrize("damaged", ["texts/5.parquet", "encoder/model.safetensors"])
def test_an_error_of_any_step_is_that_of_the_step_itself(damaged: str, tmp_path: Path, ray_started: None) -> None:
    archive = Archive(tmp_path)
    storage.write_bytes(f"{tmp_path}/{damaged}", b"damaged")
    with pytest.raises(DupqError) as alone:
        encode_shard(archive.work, archive.places("alone")[5])
    with pytest.raises(DupqError) as caught:
        encode_by_pipeline(archive.work, archive.places("embeddings"), Crew(1, 0.2, 0, 0))
    assert str(caught.value) == str(alone.value)
    wanted = ray.cluster_resources()["CPU"]
    for _ in range(600):  # actors end when nothing holds them, soon after
        if ray.available_resources().get("CPU") == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"of {wanted} CPUs there are {ray.available_resources()}")


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("is_lexical", [False, True])
def test_a_row_gives_back_what_it_was_made_of(size: int, is_lexical: bool) -> None:
    place, keys = Place("t", "c", "o"), np.arange(size) << 50
    texts = TokenIds.of([np.arange(number, dtype=np.int32) for number in range(size)])
    tokens = Tokens(keys, keys[:1], ["f"], texts, {"rows_in": size})
    assert shard_encoding.place_in(pa.Table.from_pylist([shard_encoding.row_of_place(place)])) == place
    there, found, peak = shard_encoding.tokens_in(shard_encoding.row_of_tokens(place, tokens, 1.5))
    assert (there, found.files, found.counts, peak) == (place, ["f"], {"rows_in": size}, 1.5)
    assert [ids.tolist() for ids in found.texts] == [ids.tolist() for ids in texts]
    bags = sparse.csr_array(np.eye(size, 7, dtype=np.float32)) if is_lexical else None
    encoded = Embeddings(keys, np.arange(size * 4, dtype=np.float16).reshape(size, 4), bags)
    *_, back, _ = shard_encoding.embeddings_in(shard_encoding.row_of_embeddings(place, tokens, encoded, 0.0))
    assert back.keys.tolist() == keys.tolist()
    assert back.vectors.tolist() == encoded.vectors.tolist()
    assert back.vectors.dtype == np.float16
    assert (back.words is None) == (bags is None)
    assert bags is None or (back.words is not None and back.words.data.tolist() == bags.data.tolist())
    outcome = ({"rows_in": size}, 2.5, {"o": Written(1, "checksum", size)})
    assert shard_encoding.outcome_in(shard_encoding.row_of_outcome(outcome)) == outcome


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
    settings: EncodeSettings, gpus: int, cpus: int, least: int, actors: int
) -> None:
    crew = crew_for(settings, gpus, cpus)
    assert [crew.is_for(shards) for shards in (least - 1, least)] == [False, True]
    assert (crew.actors, crew.gpus) == (actors, 1 if gpus else 0)
    if gpus:
        assert crew.actors * crew.cpus < cpus  # else the actors wait for tasks that find no room
    else:
        assert crew.cpus == 1  # an actor takes all steps, on a CPU of its own
