"""Where the encode stage runs."""

from pathlib import Path

import pytest
from inline import without_ray

from dupq import storage
from dupq.errors import DupqError
from dupq.job import cluster, gpus
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.records import Encoding
from dupq.settings.sections import EncodeSettings
from dupq.stages import embeddings
from dupq.stages.embeddings import gpus_to_encode, gpus_to_make
from dupq.tables import TEXTS
from dupq.text.keys import Sites

SETTINGS = {"encoder": {"kind": "cnn"}}


@pytest.fixture
def record(tmp_path: Path) -> str:
    return str(tmp_path / "encoded_on.json")


def gpus_of(record: str, wanted: int | None) -> int:
    return gpus_to_make(record, f"{record}.embeddings", Gpus(wanted), {"torch": "2"})


@pytest.mark.parametrize("wanted", [None, 2])
def test_a_run_begun_on_cpus_stays_on_them(
    wanted: int | None, record: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpus_of(record, 0) == 0
    monkeypatch.setattr(cluster, "gpus", lambda: 2)
    assert gpus_of(record, wanted) == 0
    assert storage.read_json(record) == {"torch": "2", "device": "cpu"}
    assert ("--gpus 2: this run's embeddings were begun on CPUs" in capsys.readouterr().out) == (wanted == 2)


def test_a_run_begun_on_gpus_needs_them_to_its_end(record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "gpus", lambda: 4)
    monkeypatch.setattr(gpus, "_nodes_with_gpus", tuple)
    monkeypatch.setattr(gpus, "_trouble", lambda nodes: None)
    assert gpus_of(record, None) == 4
    monkeypatch.setattr(cluster, "gpus", lambda: 0)
    assert gpus_of(record, 1) == 1
    for wanted in (None, 0):
        with pytest.raises(DupqError, match="begun on GPUs, and there are none for it now"):
            gpus_of(record, wanted)


def test_what_was_made_before_it_was_known_on_what_is_removed(record: str) -> None:
    storage.write_bytes(f"{record}.embeddings/0.parquet", b"")
    gpus_of(record, 0)
    assert not storage.exists(f"{record}.embeddings/0.parquet")


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What encoded shards."""
    taken: list[str] = []

    def in_actors(*given: object) -> None:  # they died
        taken.append(f"{given[-1][0]} actors")

    monkeypatch.setattr(embeddings, "read_description", lambda encoder: {"fingerprint": "", "settings": SETTINGS})
    monkeypatch.setattr(embeddings, "run_in_actors", in_actors)
    monkeypatch.setattr(embeddings, "run_tasks", lambda *_, **__: taken.append("tasks"))
    return taken


def encode_empty_shards(count: int, settings: EncodeSettings, folder: Path) -> None:
    for number in range(count):
        storage.write_table(f"{folder}/texts/{number}.parquet", TEXTS.empty_table(), TEXTS, {"rows_out": 0})
    folders = (f"{folder}/{name}" for name in ("contents", "encoder"))
    job = Encoding(f"{folder}/texts", *folders, None, f"{folder}/as.json", f"{folder}/embeddings")
    embeddings.encode_texts(job, Sites(["a"]), settings, NO_GPUS)


@pytest.mark.parametrize(("shards", "wanted"), [(2, ["tasks"]), (3, ["2 actors", "tasks"])])
def test_actors_encode_from_so_many_shards_on_and_tasks_what_they_leave(
    shards: int, wanted: list[str], ways: list[str], tmp_path: Path
) -> None:
    encode_empty_shards(shards, EncodeSettings(actors=2), tmp_path)
    assert ways == wanted


@pytest.mark.parametrize(("cpus", "actors"), [(1, 0), (2, 0), (2, 1)])
def test_without_ray_tasks_encode_however_many_shards_there_are(
    cpus: int, actors: int, ways: list[str], tmp_path: Path
) -> None:
    settings = EncodeSettings(actors=actors)
    with without_ray(cpus):
        embeddings.check_room_to_encode(settings, 32, f"{tmp_path}/as.json", NO_GPUS)
        encode_empty_shards(32, settings, tmp_path)
    assert ways == ["tasks"]


def test_tasks_encode_many_small_shards(ways: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"is_in_process": False, "cpus": 1, "gpus": 0, "widest": 1.0}.items():
        monkeypatch.setattr(cluster, name, lambda value=value: value)
    encode_empty_shards(100, EncodeSettings(), tmp_path)
    assert ways == ["tasks"]


@pytest.mark.parametrize(
    ("counts", "groups"),
    [([0, 6, 4], ["012"]), ([6, 5, 4, 0, 2, 11], ["0", "123", "4", "5"]), ([20, 1], ["0", "1"]), ([], [])],
)
def test_small_shards_are_encoded_together(
    counts: list[int], groups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_LARGE_SHARD", 10)
    shards = [str(n) for n in range(len(counts))]
    assert ["".join(group) for group in embeddings._grouped(shards, counts, "word_bag")] == groups


def test_a_slow_encoder_has_small_groups_for_all_cores() -> None:
    shards = [str(n) for n in range(46)]
    groups = {
        kind: len(embeddings._grouped(shards, [430] * 46, kind)) for kind in ("word_bag", "sentence_transformers")
    }
    assert groups == {"word_bag": 1, "sentence_transformers": 23}  # of 860 texts: 43 seconds


def test_tasks_encode_on_a_cluster_that_has_no_cpu_yet(
    ways: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"is_in_process": False, "cpus": 1, "gpus": 0, "widest": 0.0}.items():
        monkeypatch.setattr(cluster, name, lambda value=value: value)
    encode_empty_shards(32, EncodeSettings(), tmp_path)
    assert ways == ["tasks"]


@pytest.mark.parametrize(
    ("kind", "texts", "taken"), [("word_bag", 1_000_000, 0), ("cnn", 50_000, 0), ("cnn", 10**6, 1)]
)
def test_auto_encodes_on_a_gpu_where_it_is_faster(
    kind: str, texts: int, taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "gpus", lambda: 1)
    monkeypatch.setattr(cluster, "cpus", lambda: 2)
    asked = gpus_to_encode(kind, texts, Gpus(None)), gpus_to_encode(kind, texts, Gpus(1))
    assert asked == (Gpus(None) if taken else NO_GPUS, Gpus(1))
    assert ("encoded by CPUs, some" in capsys.readouterr().out) == (not taken)
