"""The benchmarks for GPUs run where there is none, at tiny sizes."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.on_gpu.parts import Figures, Scale, in_process

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_every_part_of_the_benchmark_for_gpus_runs_on_a_cpu_and_finds_nothing_wrong(tmp_path: Path) -> None:
    parts = [name for name in gpu.LIMITS if not name.startswith("job")]
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--cpu-rehearsal", "--json", tmp_path / "gpu.json"]
    command += [f"--part={name}" for name in parts]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert ended.returncode == 0, ended.stderr[-5000:]
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["failed"] == []
    assert set(parts) <= set(found)
    assert {f"{name}_lists_wrong" for name in ("dense", "hybrid")} <= set(found["kernels"])
    assert found["training"]["dupq_by_2_workers"]["questions_per_second"] > 0
    assert found["training"]["bogdanova-max"]["is_like_the_cpu"]
    assert found["search_hybrid"]["hybrid_300"]["recall_at_10"] == 1.0
    assert found["stage"]["cpus_seconds"] > 0


def test_all_parts_together_have_less_than_eight_minutes() -> None:
    for is_second in (False, True):  # a call each
        limits = [limit for name, limit in gpu.LIMITS.items() if (name in gpu.SECOND) == is_second]
        waiting = gpu.PREPARATION_SECONDS - (0 if is_second else gpu.LIMITS["search_sustained"])
        assert sum(limits) + gpu.TRIAL_SECONDS + waiting <= 8 * 60


def test_a_checkout_that_is_not_installed_is_found_with_its_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [str(ROOT), str(ROOT / "papers")]
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in own])
    monkeypatch.setenv("PYTHONPATH", "/libraries")
    gpu.find_checkout()
    assert sys.path[:2] == own
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [*own, "/libraries"]


def test_a_peer_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Callable[[], object]:
        raise RuntimeError("no kernel\nfor this chip")

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    peers = importlib.import_module("on_gpu.peers")
    monkeypatch.setattr(peers, "PEERS", {"one": fails, "torch": peers.PEERS["torch_float32"]})
    found = list(peers.figures(Scale("cpu", 0, True)))
    assert found[0] == {"one": "failed (RuntimeError: no kernel)"}
    assert [*found[1]] == ["torch_seconds"]


def test_what_is_wrong_fails() -> None:
    found = {
        "kernels": {"torch_wrong": ["float16 (1, 1, 1) 0"], "triton_wrong": [], "torch_checked": 3},
        "training": {"dupq": {"is_like_the_cpu": False}},
        "search": {"dense_9": {"recall_at_10": 0.9}, "hybrid_9": {"recall_at_10": 1.0}},
        "peers": {"error": "ended after 60 s"},
    }
    assert gpu.failures(found) == [
        "kernels torch_wrong",
        "training dupq is_like_the_cpu",
        "search dense_9 recall_at_10",
        "peers error",
    ]


def hangs() -> Iterator[Figures]:
    yield {"found": 1}
    time.sleep(600)


def dies() -> Iterator[Figures]:
    yield {"found": 1}
    os._exit(3)


def fails() -> Iterator[Figures]:
    yield {"found": 1}
    raise ValueError("no memory\nof the device")


def ends() -> Iterator[Figures]:
    yield {"found": 0, "more": 2}
    yield {"found": 1}


@pytest.mark.parametrize(
    ("part", "more"),
    [
        (hangs, {"error": "ended after 1 s"}),
        (dies, {"error": "its process ended with 3"}),
        (fails, {"error": "ValueError: no memory"}),
        (ends, {"more": 2}),
    ],
)
def test_what_a_part_has_found_is_kept_however_it_ends(
    part: Callable[[], Iterator[Figures]], more: dict[str, object]
) -> None:
    assert in_process(part, 1 if part is hangs else 100) == {"found": 1, **more}
