"""Let judges of known quality read the likeliest pairs of finished runs, and count what is joined then.

    python benchmarks/judge.py --run out/cardano/runs [--run …] [--json FILE]

Each run is on one site and has no judge. A judge is a server on this machine that answers by the readings of
benchmarks/verdicts, and by links of people: it misses a quarter of the right pairs, and says yes to a share of the
others. A pair without a reading counts as different. How sure it says that it is varies as a reader's answers do
(docs/judge.md). The same is done with verdicts on the 50 pairs where judge and run differ most, also by readings.
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from worklists import _ENDS, _OTHERS, VERDICTS

from dupq.evaluation.verdicts import Verdict, format_verdicts, last_verdicts
from dupq.job import cluster
from dupq.judging.prompt import asked
from dupq.links import known_duplicates
from dupq.pipelines.arguments import with_judge
from dupq.pipelines.dedup import dedup
from dupq.pipelines.gates import Gates
from dupq.runs.queries import disputed
from dupq.runs.reader import Run, open_run
from dupq.text.keys import Sites, are_pairs_among

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from judge_server import Call, answer_text, judge_server, reply_of

MISSES, FALSE_YES = 0.25, (0.015, 0.07, 0.3)
JUDGED = 50
_BINS = ((0, 10), (10, 30), (30, 50), (50, 60), (60, 80), (80, 95), (95, 101))
_OF_RIGHT, _OF_WRONG = (0.2, 0.3, 0.5, 0.1, 0.36, 0.36, 0.18), (0.6, 0.28, 0.12, 0.25, 0.4, 0.3, 0.05)
Titles = tuple[str, str]


class Readings:
    """The right pairs of a site, by ids and by what a judge reads."""

    def __init__(self, run: Run) -> None:
        [self.site] = run.metrics["sites"]
        files = [VERDICTS / name for name in (*_OTHERS, f"rivals/{self.site}.tsv", f"{self.site}.tsv")]
        verdicts, _ = last_verdicts([str(file) for file in files if file.exists()])
        same = {v[1:4:2] for v in verdicts if v.site_left == self.site and v.verdict == "same"}
        self.same, self._links = same, known_duplicates(run.manifest["inputs"]["links"] or "", Sites([self.site]))
        keys = {(self.site, number) for pair in (*same, *self._links.tolist()) for number in pair}
        read = run.question_rows(keys, ["title", "body_html"])
        texts = {key[1]: asked(row["title"], row["body_html"], run.settings.text.code) for key, row in read}
        right = [pair for pair in (*same, *map(tuple, self._links.tolist())) if texts.keys() >= set(pair)]
        self.texts = {tuple(sorted(texts[number] for number in pair)) for pair in right}

    def are_right(self, pairs: np.ndarray) -> np.ndarray:
        """Tell which pairs of ids (int64, (m, 2)) are right."""
        read = np.array([pair in self.same for pair in map(tuple, pairs.tolist())], bool)
        return read | are_pairs_among(self._links, pairs)


def reply_by(readings: Readings, false_yes: float, call: Call) -> dict[str, Any]:
    """Return the answer of a judge that knows the readings, and says yes to a share of the other pairs."""
    pair = tuple(sorted((side["title"], side["text"]) for side in call.questions.values()))
    chance = random.Random(hashlib.sha256(json.dumps([pair, false_yes]).encode()).hexdigest())
    is_right, is_copy = pair in readings.texts, pair[0] == pair[1]
    yes = is_copy or chance.random() < (1 - MISSES if is_right else false_yes)
    weights = _OF_RIGHT if is_right or is_copy else _OF_WRONG
    bins = range(3, 7) if yes else range(3)
    low, high = _BINS[chance.choices(bins, [weights[number] for number in bins])[0]]
    content = answer_text(chance.randrange(low, high), covers="both" if yes else "none")
    used = len(str(call.body["messages"])) // 4, 60
    return reply_of(content, call.body["model"], used=used)


def figures_of(run: Run, readings: Readings) -> dict[str, Any]:
    """Return what a run joined by meaning, how much of it is right, and the right ones among its likeliest fifty."""
    table = run.pairs.arrow([*_ENDS, "probability", "joined"], pc.field("source").isin(["encoder", "verdict"]))
    pairs, p = np.stack([table[name].to_numpy() for name in _ENDS], axis=1), table["probability"].to_numpy()
    right, joined = readings.are_right(pairs), table["joined"].to_numpy()
    first = np.argsort(-p, kind="stable")[:50]
    figures = {"joined": int(joined.sum()), "right": int(right[joined].sum()), "first_50": int(right[first].sum())}
    judge = run.metrics.get("judge")
    if judge:
        rows = run.judgements.arrow([*_ENDS, "kind"], pc.field("kind").isin(["likely", "verdict"]))
        own = np.stack([rows[name].to_numpy() for name in _ENDS], axis=1)
        own_right = own[readings.are_right(own)]
        [trust] = judge["trust"].values()
        figures |= {
            "asked": len(own),
            "asked_right": len(own_right),
            "is_used": judge["is_used"],
            "asked_right_joined": int(are_pairs_among(np.unique(pairs[joined], axis=0), own_right).sum()),
            **{name: round(trust[name], 3) for name in ("found", "false_yes", "shift")},
        }
    return figures


def main() -> None:
    """Print the figures of each run, judge and number of verdicts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="append", required=True, metavar="URI", help="a finished run on one site")
    parser.add_argument("--pairs", type=int, default=500, help="that a judge reads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    cluster.connect("none")
    figures: dict[str, Any] = {}
    for uri in options.run:
        base = open_run(uri)
        readings = Readings(base)
        rows = figures[readings.site] = {"without": figures_of(base, readings)}
        print(readings.site, json.dumps(rows["without"]), flush=True)
        for rate in FALSE_YES:
            reply = partial(reply_by, readings, rate)
            with tempfile.TemporaryDirectory() as folder, judge_server(reply) as server:
                settings = (f"judge.url={server.url}", f"judge.model=readings-{rate}", f"judge.pairs={options.pairs}")
                job = with_judge(base, folder, settings, Gates())
                judged = open_run(dedup(job).uri)
                rows[f"{rate}"] = figures_of(judged, readings)
                sheet = Path(folder, "fifty.tsv")
                sheet.write_text(format_verdicts([*said_of(judged, readings)]))
                told = open_run(dedup(replace(job, verdicts=str(sheet))).uri)
                rows[f"{rate}, {JUDGED} verdicts"] = figures_of(told, readings)
                alone = replace(with_judge(base, folder, ("judge.url=", "judge.model="), Gates()), verdicts=str(sheet))
                rows[f"without a judge, the {JUDGED} verdicts for {rate}"] = figures_of(
                    open_run(dedup(alone).uri), readings
                )
            for name in [*rows][-3:]:
                print(readings.site, name, json.dumps(rows[name]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")


def said_of(run: Run, readings: Readings) -> Iterator[Verdict]:
    """Yield verdicts by readings on the pairs where judge and run differ most."""
    for row in disputed(run, JUDGED):
        pair = row["question_id_left"], row["question_id_right"]
        word = "same" if readings.are_right(np.array([pair]))[0] else "different"
        yield Verdict(readings.site, pair[0], readings.site, pair[1], word)


if __name__ == "__main__":
    main()
