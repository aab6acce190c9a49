"""Where the encode stage runs."""

from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import DupqError
from dupq.job import cluster, gpus
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.settings.sections import EncodeSettings
from dupq.stages import embeddings
from dupq.stages.embeddings import check_room_to_encode, device_of, gpus_to_encode, gpus_to_make, groups_of, pool_for
from dupq.tables import EMBEDDED

MADE_BY = {"torch": "2"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(str(tmp_path), "encode")


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


@pytest.mark.parametrize(
    ("actors", "gpus", "cluster_of", "counts", "made"),
    [
        (0, 0, (2, 1.0), [50_000] * 31, None),  # a small run on CPUs: tasks
        (0, 0, (2, 1.0), [50_000] * 32, (2, 1, 0)),  # an actor takes all steps, on a CPU of its own
        (2, 0, (8, 1.0), [0] * 2, None),
        (2, 0, (8, 1.0), [0] * 3, (2, 1, 0)),
        (0, 4, (64, 1.0), [50_000] * 63, None),
        (0, 4, (4, 1.0), [50_000] * 64, (4, 0, 1)),  # CPUs are for the tasks that feed it
        (0, 0, (1, 1.0), [7_999] * 100, None),  # many small shards
        (0, 0, (1, 0.0), [50_000] * 32, None),  # a cluster that has no CPU yet
    ],
)
def test_actors_encode_where_they_are_asked_for_and_large_runs(
    actors: int, gpus: int, cluster_of: tuple[int, float], counts: list[int], made: tuple | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in {"is_in_process": False, "cpus": cluster_of[0], "widest": cluster_of[1]}.items():
        monkeypatch.setattr(cluster, name, lambda value=value: value)
    pool = pool_for(EncodeSettings(actors=actors), counts, gpus)
    assert (pool and (pool.actors, pool.cpus, pool.gpus)) == made


@pytest.mark.parametrize("actors", [0, 1])
def test_without_ray_tasks_encode_however_many_shards_there_are(actors: int, tmp_path: Path) -> None:
    settings = EncodeSettings(actors=actors)
    check_room_to_encode(settings, 32, str(tmp_path), NO_GPUS)
    assert pool_for(settings, [50_000] * 32, 0) is None


@pytest.mark.parametrize(
    ("counts", "groups"),
    [([0, 6, 4], ["012"]), ([6, 5, 4, 0, 2, 11], ["0", "123", "4", "5"]), ([20, 1], ["0", "1"]), ([], [])],
)
def test_small_shards_go_together(counts: list[int], groups: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_LARGE_SHARD", 10)
    assert ["".join(map(str, group)) for group in groups_of(counts, "word_bag", 0)] == groups


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (5, [2, 2, 1]), (200, [67, 67, 66])])
def test_gpus_share_the_partitions_and_a_slow_encoder_has_groups_for_all_cores(count: int, sizes: list[int]) -> None:
    groups = groups_of([1] * count, "cnn", 3)
    assert [len(group) for group in groups] == sizes
    assert sorted(number for group in groups for number in group) == [*range(count)]
    assert len(groups_of([430] * 46, "word_bag", 0)) == 1
    assert len(groups_of([430] * 46, "sentence_transformers", 0)) == 23  # of 860 texts: 43 seconds


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
