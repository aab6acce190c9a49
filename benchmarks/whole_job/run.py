"""Running the jobs of `jobs.py` over made archives, each in a process of its own, and what the machine is."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.generator.archive import QUESTION_PHRASES, SHORT_PHRASES, write_archive

_ROOT = Path(__file__).parents[2]


def name_of(questions: int, short: bool = False, alike: int = 0) -> str:
    """What files of a made archive are called."""
    return f"{questions}{'-short' * short}{f'-alike-{alike}' if alike else ''}"


def dump_of(work: Path, questions: int, short: bool = False, alike: int = 0) -> Path:
    """A made archive of so many questions, made now if it is not there."""
    folder = work / f"dump-{name_of(questions, short, alike)}"
    if not (folder / "truth.tsv").exists():
        shutil.rmtree(folder, ignore_errors=True)
        making = work / "making"
        shutil.rmtree(making, ignore_errors=True)
        phrases = SHORT_PHRASES if short else QUESTION_PHRASES
        write_archive(making, questions=questions, with_answers=False, phrases=phrases, alike=alike)
        making.rename(folder)
    return folder


def run_jobs(dump: Path, output: str, place: Path, *more: str, encoder: str | None = None) -> None:
    """The jobs over a dump, each in a process of its own; no training if an encoder is given."""
    site = next(path for path in dump.iterdir() if path.is_dir())
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # of libraries that are not installed
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    for job in ("ingest", "dedup") if encoder else ("ingest", "train", "dedup"):
        print(f"{dump.name}: {job}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.whole_job.jobs", "--job", job, "--dump", str(site)]
        command += ["--output", output, "--truth", str(dump / "truth.tsv"), "--measures", str(place), *more]
        command += ["--encoder", encoder] if encoder else []
        with place.with_suffix(".log").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=_ROOT)


def machine() -> dict[str, object]:
    """This one."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {"processor": name, "cpus": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1)}
