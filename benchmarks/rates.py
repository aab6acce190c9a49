"""Measure this machine's rates, from which `dupq plan` says what a job would take on machines of this kind.

    python benchmarks/rates.py --work FOLDER [--output dupq/plan/rates.json]

Made archives of some sizes go through ingest, training and dedup on the local disk, and smaller ones, whose pieces of
work are made smaller too, through a simulated S3, which counts the requests and shows what is done by many tasks. CPU
seconds are measured, so that other work on the machine matters less, though it does: best leave it alone. Goes on where
an earlier attempt stopped.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.big_archive import write_archive
from benchmarks.whole_job import meter
from benchmarks.whole_job.fit import by_stage, stage_rates
from benchmarks.whole_job.server import s3
from dupq.plan.rates import SHIPPED, read_rates

_SHARD = 50_000  # questions
_QUICK = ("title_body.epochs=1", "training.epochs=1")
HOW = (
    "CPU seconds of the driver and of all tasks, so waiting for disks is not in them; peak memory of processes; bytes "
    "written to disk; requests counted by a simulated S3."
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for archives, runs and what was measured")
    parser.add_argument("--output", type=Path, default=SHIPPED)
    parser.add_argument("--questions", type=int, nargs="+", default=[10_000, 25_000, 50_000], help="of all three jobs")
    parser.add_argument("--only-dedup", type=int, nargs="*", default=[], help="without training")
    parser.add_argument("--cut", type=int, default=50, help="times smaller are the pieces of work that go through S3")
    parser.add_argument("--cut-questions", type=int, nargs="*", default=[4_000, 8_000, 16_000])
    parser.add_argument("--note", default="", help="a sentence about this measurement")
    options = parser.parse_args()
    sizes = sorted(options.questions)
    encoder = options.work / f"out-{sizes[0]}" / "encoder"
    whole = {size: local(options.work, size) for size in sizes}
    whole |= {size: local(options.work, size, "--encoder", str(encoder)) for size in options.only_dedup}
    cut = {size: on_s3(options.work, size, options.cut) for size in options.cut_questions}
    stages, finer = by_stage(whole), by_stage(cut)
    rates = {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "how": " ".join([HOW, options.note]).strip(),
        "preset": "dupq",
        "questions": sorted(whole),
        "questions_a_shard": _SHARD,
        "stages": [stage_rates(lines, finer.get(key, {}), options.cut, _SHARD) for key, lines in stages.items()],
    }
    options.output.write_text(json.dumps(rates, indent=1) + "\n")
    read_rates(options.output)
    print(f"{len(stages)} stages; written to {options.output}")


def dump_of(work: Path, questions: int) -> Path:
    """A made archive of so many questions, made now if it is not there."""
    folder, mark = work / f"dump-{questions}", work / f"dump-{questions}" / "truth.tsv"
    if not mark.exists():
        shutil.rmtree(folder, ignore_errors=True)
        making = work / "making"
        shutil.rmtree(making, ignore_errors=True)
        write_archive(making, questions=questions, with_answers=False)
        making.rename(folder)
    return folder


def local(work: Path, questions: int, *more: str) -> list[dict]:
    """What each stage of a job on the local disk took."""
    place = work / f"m-{questions}.jsonl"
    done = work / f"m-{questions}.done"
    if not done.exists():
        run_jobs(dump_of(work, questions), str(work / f"out-{questions}"), place, *more)
        done.touch()
    return meter.read(place)


def on_s3(work: Path, questions: int, times: int) -> list[dict]:
    """The same with smaller pieces of work, through a simulated S3. It is done from the beginning each time."""
    place, done = work / f"cut-{questions}.jsonl", work / f"cut-{questions}.done"
    if not done.exists():
        place.unlink(missing_ok=True)
        log = work / "s3.log"
        quick = [word for setting in _QUICK for word in ("--set", setting)]
        with s3(log) as environment:
            dump = dump_of(work, questions)
            more = ["--cut", str(times), "--s3-log", str(log), *quick]
            run_jobs(dump, "s3://dupq/out", place, *more, environment=environment)
        done.touch()
    return meter.read(place)


def run_jobs(dump: Path, output: str, place: Path, *more: str, environment: dict[str, str] | None = None) -> None:
    """The jobs over a dump, in a process of their own."""
    print(f"{dump.name}: {output}", file=sys.stderr, flush=True)
    site = next(path for path in dump.iterdir() if path.is_dir())
    root = str(Path(__file__).parents[1])
    environment = {**(environment or os.environ), "PYTHONPATH": root}
    command = [sys.executable, "-m", "benchmarks.whole_job.jobs", "--dump", str(site), "--output", output]
    command += ["--truth", str(dump / "truth.tsv"), "--measures", str(place), *more]
    with place.with_suffix(".log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=root)


def machine() -> dict[str, object]:
    """This one."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {"processor": name, "cpus": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1)}


def versions() -> dict[str, str]:
    from dupq import __version__
    from dupq.runs.writer import versions as libraries

    return {"dupq": __version__, **libraries()}


if __name__ == "__main__":
    main()
