"""When a GPU searches, and that its lists are those of CPUs."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from inline import without_ray
from searched import MIX, SITES, contents, lists_in, made_up, search, search_request, write

from dupq import storage
from dupq.job import cluster, gpus
from dupq.job.gpus import Gpus
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.steps.blocks import Questions, Span
from dupq.neighbours.steps.search_all import gpus_for_search


@pytest.mark.parametrize("scope", ["all", "site"])
@pytest.mark.parametrize("measure", [MIX, Measure("euclidean")])
@without_ray()
def test_a_gpu_writes_the_lists_that_cpus_write(
    tmp_path: Path, measure: Measure, scope: Literal["all", "site"]
) -> None:
    archive, wanted = made_up([90, 0, 140]), search_request(measure, scope=scope, block_rows=37)
    on_cpus, _ = search(archive, tmp_path / "cpus", wanted)
    on_gpu, report = search(archive, tmp_path / "gpu", replace(wanted, gpus=Gpus(1)))
    assert contents(on_gpu) == contents(on_cpus)
    assert report.rows_out == sum(
        map(len, map(lists_in, [f.uri for f in storage.list_files(on_gpu.nearest, ".parquet")]))
    )


@without_ray()
def test_auto_takes_a_gpu_where_cpus_are_slower_and_says_if_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, _ = write(made_up([40]), tmp_path, SITES[:1])
    uri = storage.join(files.embeddings, "part-00000.parquet")
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
