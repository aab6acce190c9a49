"""When a GPU searches, and that its lists are those of CPUs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from searched import FLOOR, MIX, SITES, beyond, contents, made_up, search, search_request, searched, write

from dupq import storage
from dupq.job import cluster, gpus
from dupq.job.gpus import Gpus
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.gpu import search as gpu_search
from dupq.stages.search.blocks import Questions, Span
from dupq.stages.search.everything import gpus_for_search


@pytest.mark.parametrize(
    ("counts", "measure"), [([70, 0, 45], MIX), ([70, 0, 45], Measure()), ([0, 0, 0], MIX), ([3, 0, 0], MIX)]
)
def test_several_gpus_and_small_ones_find_the_same(
    tmp_path: Path, counts: list[int], measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four search shares of an archive; or that have room for two blocks, and search it batch by batch; or one does."""
    archive, request = made_up(counts), search_request(measure, block_rows=20)
    by_cpus, of_cpus = search(archive, tmp_path / "cpus", request)
    expected = contents(by_cpus)
    monkeypatch.setattr(gpu_search, "_TILE", 8)
    monkeypatch.setattr(gpu_search, "_SMALLEST_PANEL", 8)
    monkeypatch.setattr(gpu_search, "_LARGEST_PANEL", 24)  # rows of a launch
    shared, report = search(archive, tmp_path / "shared", replace(request, gpus=Gpus(4)))
    assert report.rows_out == of_cpus.rows_out
    monkeypatch.setattr(gpu_search, "room_on", lambda *_: (45, 45))
    both, _ = search(archive, tmp_path / "both", replace(request, gpus=Gpus(4)))
    sizes, upload = [], gpu_search.upload
    monkeypatch.setattr(
        gpu_search, "upload", lambda block, *others: sizes.append(len(block.keys)) or upload(block, *others)
    )
    batched, _ = search(archive, tmp_path / "batched", replace(request, gpus=Gpus(1)))
    assert contents(shared) == contents(both) == contents(batched) == expected
    assert sum(sizes) == (115 * 4 if counts[0] == 70 else sum(counts))  # each of three batches is compared with all


def test_gpus_with_less_memory_begin_again_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of the pairs and a share of the blocks together would lack pairs."""
    archive, request = made_up([70, 0, 45]), replace(search_request(block_rows=20), gpus=Gpus(2))
    expected = contents(search(archive, tmp_path / "cpus", replace(request, gpus=Gpus(0)))[0])
    monkeypatch.setattr(gpu_search, "_TILE", 8)
    monkeypatch.setattr(gpu_search, "_SMALLEST_PANEL", 8)
    with monkeypatch.context() as patched:
        nearest_of_all = gpu_search.nearest_of_all

        def fails(*arguments: Any) -> Any:
            if arguments[-1] == (1, 2):
                raise RuntimeError("ended")
            return nearest_of_all(*arguments)

        patched.setattr(gpu_search, "nearest_of_all", fails)
        with pytest.raises(RuntimeError, match="ended"):
            search(archive, tmp_path / "gpus", request)
    answers = iter([(100, 45)])  # asked for once, not by each share
    monkeypatch.setattr(gpu_search, "room_on", lambda *_: next(answers))
    assert contents(search(archive, tmp_path / "gpus", request)[0]) == expected


def test_gpus_share_the_site_that_has_most_pairs(tmp_path: Path) -> None:
    archive, request = made_up([140, 0, 90]), search_request(scope="site", block_rows=50)
    expected = contents(search(archive, tmp_path / "cpus", request)[0])
    files, shards = write(archive, tmp_path / "gpus", SITES)
    searched(files, shards, replace(request, gpus=Gpus(4)))
    beyond(files, request, FLOOR)
    assert contents(files) == expected
    made = [path.name for path in sorted((tmp_path / "gpus/work/neighbours/tiles").iterdir())]
    assert made == ["gpu-0-of-1-shares", *(f"gpu-{share}-of-3-shares" for share in range(3))]


def test_gpus_make_all_that_cpus_had_not_finished(tmp_path: Path) -> None:
    archive, request = made_up([90, 0, 0]), search_request(block_rows=20)
    files, _ = search(archive, tmp_path, request)
    expected = contents(files)
    (tmp_path / "work/neighbours/directed/_part-00000.arrow.json").unlink()
    (tmp_path / "work/neighbours/directed/part-00000.arrow").unlink()
    search(archive, tmp_path, replace(request, gpus=Gpus(1)))
    assert contents(files) == expected


def test_auto_takes_a_gpu_where_cpus_are_slower_and_says_if_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, _ = write(made_up([40]), tmp_path, SITES[:1])
    uri = storage.join(files.path("embeddings"), "part-00000.parquet")
    small, large = ([Questions((Span(uri, 0, rows),), (SITES[0],), MIX, "")] for rows in (1000, 10**7))
    monkeypatch.setattr(cluster, "gpus", lambda: 2)
    monkeypatch.setattr(gpus, "_nodes_with_gpus", lambda: ())
    monkeypatch.setattr(gpus, "_trouble", lambda nodes: None)
    auto = replace(search_request(), gpus=Gpus(None))
    caplog.set_level("INFO")
    assert (gpus_for_search(auto, large), gpus_for_search(auto, [])) == (2, 0)
    assert gpus_for_search(replace(auto, measure=Measure("cosine", 1.0, -0.5)), large) == 0
    assert not caplog.messages
    assert gpus_for_search(auto, small) == 0
    assert caplog.messages == ["searched by CPUs, some 0 s; a GPU would take 8 s"]
    assert gpus_for_search(replace(auto, gpus=Gpus(1)), small) == 1
