"""Made archives of growing size through the whole job: what each stage takes, how it grows, and what is found.

    python benchmarks/scale.py --work FOLDER [--questions 10000 100000 1000000] [--short] [--alike N] [--encoder FOLDER]
        [--output NAME]

writes a table (NAME.md), the same as figures (NAME.json) and a plot (NAME.svg). Goes on where an earlier attempt
stopped, with other sizes too: what was measured is kept in FOLDER.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.whole_job import meter
from benchmarks.whole_job.run import dump_of, machine, name_of, run_jobs
from benchmarks.whole_job.scale_page import page, plot


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for archives, runs and what was measured")
    parser.add_argument("--questions", type=whole, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--short", action="store_true", help="short bodies, so that more questions fit on a disk")
    parser.add_argument(
        "--alike", type=int, default=0, metavar="N", help="mean number of questions on a subject; 0: only on a topic"
    )
    parser.add_argument(
        "--train-at-most", type=whole, default=10**9, metavar="N", help="larger archives take the encoder before theirs"
    )
    parser.add_argument("--encoder", help="a trained one for all archives, in place of training")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="of any of the jobs")
    parser.add_argument("--note", default="", help="a sentence about this measurement")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "scale")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    encoder: str | None = options.encoder
    found = {
        "machine": machine(),
        "short": options.short,
        "alike": options.alike,
        "set": options.set,
        "note": options.note,
        "sizes": {},
    }
    for questions in sorted(options.questions):
        trains = encoder is None or (questions <= options.train_at_most and not options.encoder)
        lines, metrics = measured(options, questions, None if trains else encoder)
        if trains:
            encoder = str(options.work / f"out-{name_of(questions, options.short, options.alike)}" / "encoder")
        found["sizes"][str(questions)] = {"stages": lines, "quality": metrics["planted"], "links": metrics["links"]}
        write(options.output, found)  # after each size, as the next one may take hours
    print(page(found))


def whole(text: str) -> int:
    """A whole number, such as 1e6."""
    return int(float(text))


def measured(options: argparse.Namespace, questions: int, encoder: str | None) -> tuple[list[dict], dict]:
    """What each stage took, and the run's metrics."""
    name = name_of(questions, options.short, options.alike)
    place, metrics = options.work / f"m-{name}.jsonl", options.work / f"metrics-{name}.json"
    if not metrics.exists():
        more = [word for setting in options.set for word in ("--set", setting)]
        output = options.work / f"out-{name}"
        run_jobs(
            dump_of(options.work, questions, options.short, options.alike), str(output), place, *more, encoder=encoder
        )
        latest = json.loads((output / "runs" / "latest.json").read_text())["run"]
        metrics.write_bytes((Path(latest) / "metrics.json").read_bytes())
    return meter.read(place), json.loads(metrics.read_text())


def write(output: Path, found: dict) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    output.with_suffix(".md").write_text(page(found) + "\n")
    plot(found, output.with_suffix(".svg"))


if __name__ == "__main__":
    main()
