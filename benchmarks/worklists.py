"""Count the right pairs among those that runs join by meaning, at the top of all pairs, and of their worklists.

    python benchmarks/worklists.py --run out/cardano/runs [--run …] [--json FILE]

Each run is on one site, by a prior of other sites (benchmarks/prior.py --leave-out SITE, --set calibration.prior=FILE).
A joined pair is right if it is linked as a duplicate, or if a reading (a language model's label) calls it the same;
`expected` is the sum of the worklist's probabilities; `likeliest` are the first pairs of all by probability, joined
ones too, without those that people linked. A pair that the reading leaves unsure isn't right. Readings are
those of benchmarks/verdicts/SITE.tsv, then those of rivals/SITE.tsv and two files of pairs that later runs found, which
no prior has learned from.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dupq.evaluation.verdicts import last_verdicts
from dupq.links import known_duplicates
from dupq.runs.reader import Run, open_run
from dupq.text.keys import Sites, are_pairs_among

VERDICTS, TOPS, LIKELIEST = Path(__file__).parent / "verdicts", (50, 100), (20, 50, 100)
_OTHERS = ("second-opinion-2026-11-29.tsv", "worklists-2026-11-27.tsv")
_ENDS = ["question_id_left", "question_id_right"]


def figures_of(run: Run) -> dict[str, Any]:
    """Return the counts of a run: its questions, the joined pairs, and the tops of its worklist."""
    [site] = run.metrics["sites"]
    files = [VERDICTS / name for name in (*_OTHERS, f"rivals/{site}.tsv", f"{site}.tsv")]
    verdicts, _ = last_verdicts([str(file) for file in files if file.exists()])
    said = {verdict[1:4:2]: verdict.verdict for verdict in verdicts if verdict.site_left == site}
    joined = run.pairs.arrow(_ENDS, pc.field("joined") & (pc.field("source") == "encoder"))
    pairs = np.stack([joined[name].to_numpy() for name in _ENDS], axis=1)
    linked = are_pairs_among(known_duplicates(run.manifest["inputs"]["links"] or "", Sites([site])), pairs)
    same = np.array([said.get((left, right)) == "same" for left, right in pairs.tolist()], dtype=bool)
    figures = {
        "questions": run.metrics["questions"],
        "joined": {"pairs": len(pairs), "right": int((linked | same).sum()), "linked": int(linked.sum())},
    }
    worklist = run.worklist.arrow([*_ENDS, "probability"]).to_pydict()
    listed = [said.get(pair, "") for pair in zip(*(worklist[name] for name in _ENDS), strict=True)]
    for top in TOPS:
        counts = {verdict: listed[:top].count(verdict) for verdict in ("same", "different", "unsure")}
        figures[f"first_{top}"] = {**counts, "expected": round(sum(worklist["probability"][:top]), 3)}
    figures["likeliest"] = {str(top): row for top, row in likeliest_of(run, site, said)}
    return {site: figures}


def likeliest_of(run: Run, site: str, said: dict[Any, str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the counts of the likeliest pairs by meaning, joined ones too, without those that people linked."""
    table = run.pairs.arrow([*_ENDS, "probability"], pc.field("source") == "encoder")
    pairs, p = np.stack([table[name].to_numpy() for name in _ENDS], axis=1), table["probability"].to_numpy()
    is_open = ~are_pairs_among(known_duplicates(run.manifest["inputs"]["links"] or "", Sites([site])), pairs)
    order = np.flatnonzero(is_open)[np.argsort(-p[is_open], kind="stable")]
    for top in LIKELIEST:
        words = [said.get(pair, "not read") for pair in map(tuple, pairs[order[:top]].tolist())]
        yield top, {**Counter(words), "expected": round(float(p[order[:top]].sum()), 1)}


def main() -> None:
    """Print the figures of each run and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="append", required=True, metavar="URI", help="a finished run on one site")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for uri in options.run:
        row = figures_of(open_run(uri))
        print(json.dumps(row))
        figures |= row
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
