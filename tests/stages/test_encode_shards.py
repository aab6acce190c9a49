"""The shards that tasks and processes with a GPU encode, beside one process that takes all steps of each shard."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from random_bag import WORDS, saved_encoder

from dupq import storage
from dupq.encoders.saved import read_description
from dupq.encoders.steps import Place, Work, encode_shard, encode_shards, encode_texts, gpus_to_make
from dupq.job.gpus import NO_GPUS
from dupq.runs.records import Encoding
from dupq.settings.sections import EncodeSettings
from dupq.system import recording
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import Sites

SHARDS = (30, 0, 1, 200, 30, 7)  # questions of each


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


def test_a_gpus_process_writes_the_files_of_one(archive: Archive) -> None:
    """Some are there already."""
    places = archive.places("by threads")
    encode_shard(archive.work, places[1])
    with recording() as written:
        counts = encode_shards(archive.work, places)
    assert counts["rows_out"] == sum(SHARDS) - 2
    assert set(written) == {place.output for place in places}
    for place, alone in zip(places, archive.places("alone"), strict=True):
        assert storage.read_bytes(place.output) == storage.read_bytes(alone.output)


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
    whole = [storage.version(place.output) for place in places[1:3]]
    job = Encoding(f"{folder}/texts", f"{folder}/contents", archive.work.encoder, archive.work.representatives,
                   f"{folder}/as.json", f"{folder}/again")  # fmt: skip
    report = encode_texts(job, Sites(["a"]), EncodeSettings(actors=2), NO_GPUS)
    assert [storage.version(place.output) for place in places[1:3]] == whole
    assert (report.tasks, report.rows_out) == (len(SHARDS), sum(SHARDS) - 2)
    for place, alone in zip(places, archive.places("alone"), strict=True):
        assert storage.read_bytes(place.output) == storage.read_bytes(alone.output)
