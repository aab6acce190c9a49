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
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.whole_job import meter
from benchmarks.whole_job.fit import by_stage, stage_rates
from benchmarks.whole_job.run import dump_of, machine, run_jobs, versions
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
    parser.add_argument("--only-dedup", type=int, nargs="*", default=[100_000, 200_000], help="without training")
    parser.add_argument("--cut", type=int, default=50, help="times smaller are the pieces of work that go through S3")
    parser.add_argument("--cut-questions", type=int, nargs="*", default=[4_000, 8_000, 16_000])
    parser.add_argument("--note", default="", help="a sentence about this measurement")
    options = parser.parse_args()
    sizes = sorted(options.questions)
    encoder = options.work / f"out-{sizes[0]}" / "encoder"
    whole = {size: local(options.work, size) for size in sizes}
    whole |= {size: local(options.work, size, str(encoder)) for size in options.only_dedup}
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


def local(work: Path, questions: int, encoder: str | None = None) -> list[dict]:
    """What each stage of a job on the local disk took."""
    place = work / f"m-{questions}.jsonl"
    done = work / f"m-{questions}.done"
    if not done.exists():
        run_jobs(dump_of(work, questions), str(work / f"out-{questions}"), place, encoder=encoder)
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


if __name__ == "__main__":
    main()
