"""The pairs that a run drew to be judged, for the report's keys: in the order of review.tsv, with its verdicts."""

from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.evaluation import review
from dupq.evaluation.verdict_files import read_verdicts
from dupq.evaluation.verdicts import VERDICTS
from dupq.runs.reader import Key, Run
from dupq.tables import REVIEW
from dupq.text.keys import Sites

_WORDS = {code: word for word, code in VERDICTS.items()}


class Asked(NamedTuple):
    """A pair to be judged; the verdict is empty until it is."""

    left: Key
    right: Key
    verdict: str


def asked(run: Run) -> list[Asked]:
    """All of the sample; empty if the run drew none. Raises DupqError if review.tsv is damaged."""
    place, sheet = (storage.join(run.uri, f"review.{kind}") for kind in ("parquet", "tsv"))
    if not storage.exists(place) or not run.metrics.get("sites"):
        return []
    sites = Sites(sorted(run.metrics["sites"]))
    table = storage.read_table(place, REVIEW)
    rows = review.Rows(*(table[name].to_numpy() for name in REVIEW.names))
    given = read_verdicts(sheet if storage.exists(sheet) else None, sites)
    codes, _ = review.verdicts_of(rows, given.left, given.right, given.verdicts)
    sides = [sites.unpack(side) for side in (rows.left, rows.right)]
    left, right = (list(zip(names, numbers.tolist(), strict=True)) for names, numbers in sides)
    order = np.argsort(rows.hashes, kind="stable").tolist()  # as in review.tsv: places tell nothing
    return [Asked(left[row], right[row], _WORDS.get(int(codes[row]), "")) for row in order]
