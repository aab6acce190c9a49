"""Whole jobs with a GPU: what each stage takes, its processes and files included, and what two CPUs take beside it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from on_gpu.parts import Figures, Scale

_ROOT = Path(__file__).parents[2]
_JOBS = _ROOT / "jobs"
_CNN = (  # of a made archive, without the preset's teacher
    "--preset", "bow-cnn-distilled", "--set", "word_vectors.algorithm=random", "--set", "teacher.epochs=0",
    "--set", "title_body.epochs=2", "--set", "training.epochs=1",
)  # fmt: skip
_MADE = 30_000


def train(scale: Scale) -> Iterator[Figures]:
    """A CNN by the GPU and by two workers on CPUs."""
    with tempfile.TemporaryDirectory() as folder:
        _make(scale.size(_MADE, 1_000), folder)
        gpu, two = ("--gpus", "none" if scale.is_rehearsal else "1"), ("--gpus", "none", "--workers", "2")
        found = _trained(f"{folder}/made", f"{folder}/cnn", *_CNN, *gpu)
        yield {"cnn": found}
        by_cpus = _trained(f"{folder}/made", f"{folder}/cnn-cpus", *_CNN, *two)
        yield {"cnn_two_cpus": by_cpus, "cnn_fit_vs_two_cpus": by_cpus["fit"] / found["fit"]}


def prepare(is_rehearsal: bool, folder: str) -> None:
    """Make what `dedup` and `cpus` need in `folder`, on CPUs: a small site's encoder, and a made archive.

    The small site's run compiles what those compile. `ready` says that it is done, or why not.
    """
    os.setsid()  # so that its jobs end with it
    said = ""
    try:
        _run("from_dump.py", "--dump", _dump(), "--output", f"{folder}/cs", "--gpus", "none")
        _make(1_000 if is_rehearsal else 200_000, folder)
    except Exception as error:
        said = str(error)
    Path(f"{folder}/ready").write_text(said)


def dedup(_: Scale) -> Iterator[Figures]:
    """A run of 200,000 made questions with a small site's encoder, and training that encoder; what `auto` decides."""
    yield {"dedup": _deduped("gpus")}
    yield {"encoder": _trained(f"{_prepared()}/cs", f"{_prepared()}/encoder")}


def cpus(_: Scale) -> Iterator[Figures]:
    """The same run by this machine's CPUs."""
    yield {"dedup": _deduped("cpus", "--gpus", "none")}


def _prepared() -> str:
    """The folder that `prepare` has filled."""
    folder = os.environ["DUPQ_PREPARED"]
    ready = Path(f"{folder}/ready")
    why = ready.read_text() if ready.exists() else "not prepared in time"
    if why:
        raise RuntimeError(why)
    return folder


def _deduped(name: str, *given: str) -> dict[str, Any]:
    made, output = f"{_prepared()}/made", f"{_prepared()}/runs-{name}"
    told = ("--questions", f"{made}/questions", "--links", f"{made}/links", "--encoder", f"{_prepared()}/cs/encoder")
    return _stages(output, _run("dedup.py", *told, "--set", "calibration.unfit=continue", "--output", output, *given))


def _make(questions: int, folder: str) -> None:
    """Write a made archive to `folder`/made."""
    command = [sys.executable, "-m", "benchmarks.big_archive", "--no-answers", "--output", f"{folder}/dump"]
    subprocess.run([*command, "--questions", str(questions)], check=True, cwd=_ROOT, stdout=subprocess.DEVNULL)
    _run("ingest.py", "--dump", f"{folder}/dump", "--output", f"{folder}/made")


def _dump() -> str:
    shared = Path(os.environ.get("DUPQ_SHARED_DATA", _ROOT.parent / "shared" / "data"))
    return str(shared / "dumps" / "cs.stackexchange.com.7z")


def _trained(archive: str, output: str, *given: str) -> dict[str, Any]:
    told = ("--questions", f"{archive}/questions", "--links", f"{archive}/links", "--output", output)
    return _stages(output, _run("train.py", *told, *given))


def _run(job: str, *arguments: str) -> tuple[float, str]:
    """Run a job; its seconds, and what it printed. Raises RuntimeError with its last line if it fails."""
    start = time.perf_counter()
    command = [sys.executable, str(_JOBS / job), *arguments]
    ended = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode:
        raise RuntimeError(f"{job}: {' '.join(ended.stdout.strip().splitlines()[-3:])}")
    return time.perf_counter() - start, ended.stdout


def _stages(output: str, ended: tuple[float, str]) -> dict[str, Any]:
    """The seconds of the job and of its stages, the memory of the largest task, and what was said of GPUs."""
    seconds, printed = ended
    found: dict[str, Any] = {"job": seconds}
    largest = 0.0
    for path in Path(output).rglob("manifest.json"):
        stages = json.loads(path.read_text())["stages"]
        found |= {stage["name"]: stage["seconds"] for stage in stages}
        largest = max(largest, *(stage["peak_memory_mb"] for stage in stages))
    found["largest_task_mb"] = largest
    found["said"] = re.findall(r"[^\n]*GPU[^\n]*", printed)
    return found
