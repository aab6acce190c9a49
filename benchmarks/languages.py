"""Made sites in nine languages, from nothing to clusters: what is joined, rightly or wrongly, and what comes next.

    python benchmarks/languages.py [--quick] [--json FILE] [--languages NAME …] [--questions N] [--work FOLDER]

Each site has planted exact copies, edited copies, rephrasings and siblings: the same asked of another thing
(benchmarks/generator/household.py). `dupq from-dump` runs on it with its defaults, so that the language is found out,
and without known duplicates. Reported are the near duplicates that are none, as a share; the copies and rephrasings in
one cluster; the rephrasings that the encoder finds nearest of all, and those in one cluster or among the 100 likeliest
pairs that are not joined; and the joined pairs that are no duplicates.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import dupq
from benchmarks.generator.household import COPIES, LANGUAGES, Question, write_site
from dupq.job import cluster
from dupq.pipelines.train import FromDumpJob, from_dump

LIKELIEST = 100


def main() -> None:
    """Make, run and measure each site; print a table, write the JSON."""
    options = arguments()
    cluster.connect("local")
    figures: dict[str, Any] = {}
    for name in options.languages:
        figures[name] = measured(name, 150 if options.quick else options.questions, options.work / name)
        print(f"{name}: {figures[name]}", flush=True)
    print(table(figures))
    if options.json:
        about = {"date": time.strftime("%Y-%m-%d"), "questions": options.questions}
        Path(options.json).write_text(json.dumps({**figures, **about}, indent=2) + "\n")


def measured(name: str, questions: int, work: Path) -> dict[str, Any]:
    """The figures of one site."""
    shutil.rmtree(work, ignore_errors=True)
    asked = write_site(work / f"{name}.example.com", name, questions)
    started = time.perf_counter()
    run = from_dump(FromDumpJob((str(work / f"{name}.example.com"),), str(work / "out")))
    seconds = time.perf_counter() - started
    return {**judged(asked, run.uri), "seconds": round(seconds, 1)}


def judged(asked: list[Question], uri: str) -> dict[str, Any]:
    """What a run has found of the questions, which have the ids 1, 2 and so on."""
    run = dupq.open_run(uri)
    names = ["question_id_left", "question_id_right", "source", "probability", "rank", "joined"]
    rows = run.pairs.arrow(names).to_pylist()
    for row in rows:
        left, right = (asked[row[f"question_id_{side}"] - 1] for side in ("left", "right"))
        row["meaning"], row["is_right"] = left.meaning, left.meaning == right.meaning
        row["kind"] = left.kind if left.kind != "original" else right.kind
    near = [row for row in rows if row["source"] in ("exact", "near_duplicate")]
    joined = [row for row in rows if row["joined"]]
    next_ones = sorted((row for row in rows if not row["joined"]), key=lambda row: -row["probability"])[:LIKELIEST]
    planted = {kind: sum(question.kind == kind for question in asked) for kind in COPIES}

    def share(kind: str, some: list[dict[str, Any]]) -> float:
        return round(sum(row["is_right"] and row["kind"] == kind for row in some) / planted[kind], 3)

    return {
        "language": run.manifest["inputs"].get("language"),
        "near_duplicates": len(near),
        "false_near_duplicates": round(sum(not row["is_right"] for row in near) / max(1, len(near)), 3),
        **{f"{kind.replace(' ', '_').replace('copy', 'copie')}s_joined": share(kind, joined) for kind in COPIES},
        "rephrasings_nearest": share("rephrasing", [row for row in rows if row["rank"] == 1]),
        "rephrasings_joined_or_next": share("rephrasing", [*joined, *next_ones]),
        "joined": len(joined),
        "wrongly_joined": sum(not row["is_right"] for row in joined),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures in lines for people."""
    names = [name for name in next(iter(figures.values())) if name != "language"]
    lines = ["language | " + " | ".join(names), "|".join(["---"] * (len(names) + 1))]
    return "\n".join(
        [*lines, *(f"{key} | " + " | ".join(f"{row[name]}" for name in names) for key, row in figures.items())]
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="150 questions: does it run?")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--languages", nargs="+", metavar="NAME", choices=LANGUAGES, default=LANGUAGES)
    parser.add_argument("--questions", type=int, default=600, metavar="N", help="of a site (default: %(default)s)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", default=Path("out/languages"), help="is made anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
