"""The pairs of a run to be judged: its random sample, in the order of review.tsv, and its worklist."""

from typing import NamedTuple

from dupq import storage
from dupq.evaluation import review
from dupq.evaluation.verdict_files import read_rows, read_verdicts
from dupq.evaluation.verdicts import VERDICTS, VERDICTS_FILE, Verdict, add_verdict, last_verdicts
from dupq.runs.reader import Key, Run, TableRow, ends_of
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


def verdicts_file(run: Run) -> str:
    """The file that the next run reads verdicts from: one for all runs of a folder."""
    return storage.join(storage.parent(run.uri), VERDICTS_FILE)


def unjudged(run: Run) -> list[TableRow]:
    """The rows of the worklist that nobody has judged yet; none of a run of an older version."""
    if not storage.list_files(storage.join(run.uri, "worklist"), ".parquet"):
        return []
    target = verdicts_file(run)
    known = {verdict[:4] for verdict in last_verdicts([target] if storage.exists(target) else [])[0]}
    return [row for row in run.worklist.arrow().to_pylist() if (*ends_of(row)[0], *ends_of(row)[1]) not in known]


def judge(run: Run, row: TableRow, word: str) -> None:
    """Write a verdict (same, different or unsure) on a row of the worklist, where the next run reads it."""
    verdict = Verdict(**{**{name: row[name] for name in Verdict._fields}, "verdict": word})
    add_verdict(verdicts_file(run), verdict, {name: row[name] or "" for name in ("title_left", "title_right")})


def estimated(uri: str, runs: str) -> dict[str, object] | None:
    """What the verdicts of a file say of the run whose sample they are on; None if no run below `runs` drew them.

    By the keys of that run, which are numbered by its own sites. Raises DupqError if its metrics.json is damaged.
    """
    run_id = _run_of(storage.read_bytes(uri).decode())
    sample = drawn(Run(storage.join(runs, run_id))) if run_id else None
    if sample is None:
        return None
    rows, sites = sample
    judged = read_verdicts(uri, sites)
    codes, elsewhere = review.verdicts_of(rows, judged.left, judged.right, judged.verdicts)
    found = review.estimate(rows, codes)
    intervals = {
        name: None if getattr(found, name) is None else getattr(found, name)._asdict()
        for name in ("precision", "recall", "duplicates")
    }
    return {"run_id": run_id, **intervals, "judged": found.judged, "unsure": found.unsure, "on_other_pairs": elsewhere}


def _run_of(text: str) -> str | None:
    """The run that a sheet names, if it names one."""
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    columns = [name.strip() for name in lines[0].split("\t")] if lines else []
    if "run_id" not in columns or len(lines) < 2:
        return None
    fields = lines[1].split("\t")
    name = fields[columns.index("run_id")].strip() if len(fields) == len(columns) else ""
    return name if name.isalnum() else None
