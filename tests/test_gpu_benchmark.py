"""The benchmarks for GPUs run where there is none, at tiny sizes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.on_gpu.parts import Figures, in_process

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


def part(ending: str) -> Iterator[Figures]:
    yield {"found": 0, "more": 2}
    yield {"found": 1}
    if ending == "hangs":
        time.sleep(600)
    elif ending == "dies":
        os._exit(3)
    elif ending == "fails":
        raise ValueError("no memory\nof the device")


ERRORS = {
    "hangs": "ended after 1 s",
    "dies": "its process ended with 3",
    "fails": "ValueError: no memory",
    "ends": None,
}


@pytest.mark.parametrize(("ending", "error"), ERRORS.items())
def test_what_a_part_has_found_is_kept_however_it_ends(ending: str, error: str | None) -> None:
    found = in_process(partial(part, ending), 1 if ending == "hangs" else 100)
    assert found == {"found": 1, "more": 2} | ({"error": error} if error else {})
