"""The pairs that a run drew to be judged, in the order of review.tsv, with the verdicts that are filled in there."""

from typing import NamedTuple

from dupq import storage
from dupq.evaluation import review
from dupq.evaluation.verdict_files import read_rows, read_verdicts
from dupq.evaluation.verdicts import VERDICTS
from dupq.runs.reader import Key, Run
from dupq.text.keys import Sites

_WORDS = {code: word for word, code in VERDICTS.items()}


class Asked(NamedTuple):
    """A pair to be judged; the verdict is empty until it is."""

    left: Key
    right: Key
    verdict: str
    joined: bool
    pairs: float  # candidate pairs of the run that it counts for


def drawn(run: Run) -> tuple[review.Rows, Sites] | None:
    """The sample as it was drawn, and the sites of its keys; None if the run drew none."""
    place = storage.join(run.uri, "review.parquet")
    if not storage.exists(place) or not run.metrics.get("sites"):
        return None
    return read_rows(place), Sites(sorted(run.metrics["sites"]))


def asked(run: Run) -> list[Asked]:
    """All of the sample; empty if the run drew none. Raises DupqError if review.tsv is damaged."""
    found = drawn(run)
    if found is None:
        return []
    rows, sites = found
    sheet = storage.join(run.uri, "review.tsv")
    given = read_verdicts(sheet if storage.exists(sheet) else None, sites)
    codes, _ = review.verdicts_of(rows, given.left, given.right, given.verdicts)
    sides = [sites.unpack(side) for side in (rows.left, rows.right)]
    left, right = (list(zip(names, numbers.tolist(), strict=True)) for names, numbers in sides)
    words = [_WORDS.get(code, "") for code in codes.tolist()]
    joined, pairs = rows.joined.tolist(), (rows.sizes / rows.drawn).tolist()
    order = review.asking_order(rows).tolist()
    return [Asked(left[row], right[row], words[row], joined[row], pairs[row]) for row in order]
