"""The papers' tables on real data: travel, cs, quora, arabic and semeval, at full length.

    python benchmarks/papers.py --output out/papers [--quick] [--json FILE]

Hours on two cores; run it again to go on where it was. The pages are left in benchmarks/results/papers.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITES = ("travel", "cs")
PAIR_SETS = ("quora", "arabic", "semeval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("DUPQ_SHARED_DATA", ROOT.parent / "shared" / "data")
    )
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "papers")
    parser.add_argument("--quick", action="store_true", help="smaller, on the two sites alone; pages stay in --output")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    archive, pages = options.output / "archive", options.output / "papers"
    dumps = [f"--dump={options.data}/dumps/{site}.stackexchange.com.7z" for site in SITES]
    run("ingest.py", *dumps, f"--output={archive}")  # what is there is not read again
    sets = [] if options.quick else [f"--pair-set={options.data}/{name}" for name in PAIR_SETS]
    run(
        "evaluate.py",
        *(f"--{name}={archive}/{name}" for name in ("questions", "links")),
        f"--output={options.output}",
        "--table=all",
        *(["--quick"] if options.quick else sets),
    )
    if options.json:
        shutil.copyfile((pages / "quick" if options.quick else pages) / "results.json", options.json)
    if not options.quick:
        kept = ROOT / "benchmarks" / "results" / "papers"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(pages, kept, ignore=shutil.ignore_patterns("quick"))


def run(job: str, *arguments: str) -> None:
    subprocess.run([sys.executable, str(ROOT / "jobs" / job), *arguments], check=True)


if __name__ == "__main__":
    main()
