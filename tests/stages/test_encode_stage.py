"""Where the encode stage runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from inline import without_ray

from dupq import storage
from dupq.errors import DupqError
from dupq.job import cluster, gpus
from dupq.job.actors import Pool
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.settings.sections import EncodeSettings
from dupq.stages import embeddings
from dupq.stages.embeddings import (
    check_room_to_encode,
    device_of,
    gpus_to_encode,
    gpus_to_make,
    groups_of,
    pool_for,
)
from dupq.tables import EMBEDDED

MADE_BY = {"torch": "2"}
MIXED = {"is_in_process": False, "gpus": 0}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with without_ray():
        yield Run(str(tmp_path), "encode")


def gpus_of(run: Run, wanted: int | None, *tables: Table) -> int:
    return gpus_to_make(run, Gpus(wanted), MADE_BY, *tables)


@pytest.mark.parametrize("wanted", [None, 2])
def test_a_run_begun_on_cpus_stays_on_them(
    wanted: int | None, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert device_of(run.uri) is None
    assert gpus_of(run, 0) == 0
    monkeypatch.setattr(cluster, "gpus", lambda: 2)
    assert gpus_of(run, wanted) == 0
    assert device_of(run.uri) == "cpu"
    assert ("--gpus 2: this run's embeddings were begun on CPUs" in capsys.readouterr().out) == (wanted == 2)


def test_a_run_begun_on_gpus_needs_them_to_its_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "gpus", lambda: 4)
    monkeypatch.setattr(gpus, "_nodes_with_gpus", tuple)
    monkeypatch.setattr(gpus, "_trouble", lambda nodes: None)
    assert gpus_of(run, None) == 4
    monkeypatch.setattr(cluster, "gpus", lambda: 0)
    assert gpus_of(run, 1) == 1
    for wanted in (None, 0):
        with pytest.raises(DupqError, match="begun on GPUs, and there are none for it now"):
            gpus_of(run, wanted)


def test_what_was_made_by_something_else_is_removed(run: Run) -> None:
    table = run.table("embeddings", EMBEDDED, publish=True)
    storage.write_bytes(table.file(0), b"")
    gpus_of(run, 0, table)
    assert not storage.exists(table.file(0))
    storage.write_bytes(table.file(0), b"")
    gpus_of(run, 0, table)
    assert storage.exists(table.file(0))


def pools(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], settings: EncodeSettings, **of_cluster: object
) -> Pool | None:
    """The actors that encode shards of so many questions."""
    for name, value in of_cluster.items():
        monkeypatch.setattr(cluster, name, lambda value=value: value)
    return pool_for(settings, counts, 0)


@pytest.mark.parametrize(("shards", "actors"), [(2, None), (3, 2)])
def test_actors_encode_from_so_many_shards_on(shards: int, actors: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pools(monkeypatch, [0] * shards, EncodeSettings(actors=2), **MIXED, cpus=2, widest=1.0)
    assert (pool and pool.actors) == actors


@pytest.mark.parametrize(("cpus", "actors"), [(1, 0), (2, 0), (2, 1)])
def test_without_ray_tasks_encode_however_many_shards_there_are(
    cpus: int, actors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EncodeSettings(actors=actors)
    with without_ray(cpus):
        check_room_to_encode(settings, 32, str(tmp_path), NO_GPUS)
        assert pools(monkeypatch, [0] * 32 if actors else [50_000] * 32, settings) is None


@pytest.mark.parametrize(("counts", "widest"), [([7_999] * 100, 1.0), ([50_000] * 32, 0.0)])
def test_tasks_encode_many_small_shards_and_on_a_cluster_that_has_no_cpu_yet(
    counts: list[int], widest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pools(monkeypatch, counts, EncodeSettings(), **MIXED, cpus=1, widest=widest) is None


@pytest.mark.parametrize(
    ("counts", "groups"),
    [([0, 6, 4], ["012"]), ([6, 5, 4, 0, 2, 11], ["0", "123", "4", "5"]), ([20, 1], ["0", "1"]), ([], [])],
)
def test_small_shards_are_encoded_together(
    counts: list[int], groups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_LARGE_SHARD", 10)
    assert ["".join(map(str, group)) for group in groups_of(counts, "word_bag", 0)] == groups


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (5, [2, 2, 1]), (200, [67, 67, 66])])
def test_gpus_share_the_partitions(count: int, sizes: list[int]) -> None:
    groups = groups_of([1] * count, "cnn", 3)
    assert [len(group) for group in groups] == sizes
    assert sorted(number for group in groups for number in group) == [*range(count)]


def test_a_slow_encoder_has_small_groups_for_all_cores() -> None:
    groups = {kind: len(groups_of([430] * 46, kind, 0)) for kind in ("word_bag", "sentence_transformers")}
    assert groups == {"word_bag": 1, "sentence_transformers": 23}  # of 860 texts: 43 seconds


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
