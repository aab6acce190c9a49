"""What somebody who follows `dupq dedup` opens: the modules whose functions a run calls, in the order of first calls.

    python benchmarks/modules.py [--encoder URI] [--questions N] [--json FILE]

A made archive of 2,000 questions goes through ingest, training and dedup in this process, tasks one after the other;
in dedup every call of a function of dupq is traced. Printed are the modules, how many functions of each ran, their
lines, and at which place the first question's text is read, an embedding is made, and the model of a pair's probability
is fitted. With `--encoder` none is trained.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/helpers")]
MARKS = {
    "text": "dupq.stages.texts",
    "embedding": "dupq.encoders.unpadded",
    "probability": "dupq.stages.calibration",
}


class Trace:
    """The functions that were called, by module, in the order of the modules' first calls."""

    def __init__(self) -> None:
        """Nothing is called yet."""
        self.called: dict[str, set[str]] = defaultdict(set)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; see sys.setprofile."""
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            name = frame.f_globals.get("__name__", "")
            if name.startswith("dupq."):
                self.called[name].add(frame.f_code.co_qualname)


def main() -> None:
    """Trace a run, print what it opened, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--encoder", help="an encoder that is there")
    parser.add_argument("--questions", type=int, default=2_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = traced(folder, options.encoder, options.questions)
    lines = {name: lines_of(name) for name in found}
    for place, (name, functions) in enumerate(found.items(), 1):
        print(f"{place:4} {name:50} {len(functions):4} functions {lines[name]:6,} lines")
    places = {mark: place for mark, name in MARKS.items() for place, each in enumerate(found, 1) if each == name}
    print(f"{len(found)} modules, {sum(map(len, found.values())):,} functions, {sum(lines.values()):,} lines; {places}")
    if options.json:
        figures = {"modules": {name: len(functions) for name, functions in found.items()}, "places": places}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def traced(folder: str, encoder: str | None, questions: int) -> dict[str, set[str]]:
    """Return the functions that a run calls, by module."""
    from inline import without_ray

    from benchmarks.generator.archive import write_archive
    from dupq.pipelines.arguments import DedupJob, IngestJob, TrainingJob
    from dupq.pipelines.dedup import dedup
    from dupq.pipelines.ingest import ingest
    from dupq.pipelines.train import train

    write_archive(f"{folder}/dump", questions, seed=1)
    archive = f"{folder}/archive"
    with without_ray():
        ingest(IngestJob((f"{folder}/dump",), archive))
        if encoder is None:
            encoder = f"{folder}/encoder"
            train(TrainingJob(f"{archive}/questions", f"{archive}/links", encoder))
        job = DedupJob(f"{archive}/questions", encoder, f"{folder}/runs", links=f"{archive}/links")
        trace = Trace()
        sys.setprofile(trace)
        try:
            dedup(job)
        finally:
            sys.setprofile(None)
    return trace.called


def lines_of(module: str) -> int:
    """Return the lines of a module's file."""
    path = sys.modules[module].__file__
    return len(Path(path).read_text().splitlines()) if path else 0


if __name__ == "__main__":
    main()
