"""A run's sample of pairs to be judged, and what verdicts on it tell: `Run.review`, `Run.judged`."""

import os
from typing import Any

import pyarrow as pa

from dupq import storage
from dupq.api.inputs import collected, column_of, keys_in, names_of, texts
from dupq.errors import DupqError
from dupq.evaluation.review import Estimate, estimate, verdicts_of
from dupq.evaluation.verdict_files import Judged, judged, read_verdicts
from dupq.evaluation.verdicts import COLUMNS, Verdict, format_verdicts, parse_verdicts
from dupq.runs.reader import Run
from dupq.runs.sample import asked, drawn
from dupq.runs.table_view import TableView, in_memory
from dupq.text.keys import Sites

_SCHEMA = pa.schema(
    [
        pa.field("site_left", pa.string(), nullable=False),
        pa.field("question_id_left", pa.int64(), nullable=False),
        pa.field("site_right", pa.string(), nullable=False),
        pa.field("question_id_right", pa.int64(), nullable=False),
        pa.field("title_left", pa.string()),  # null: no longer in the archive
        pa.field("title_right", pa.string()),
        pa.field("joined", pa.bool_(), nullable=False),
        pa.field("pairs", pa.float64(), nullable=False),  # candidate pairs of the run that this one counts for
        pa.field("verdict", pa.string()),  # same, different or unsure, as in review.tsv; null: not judged yet
    ]
)


def sample(run: Run) -> TableView:
    """See Run.review."""
    pairs = asked(run)
    titles = run.titles(key for pair in pairs for key in (pair.left, pair.right))
    sides = [[pair.left for pair in pairs], [pair.right for pair in pairs]]
    columns = [
        *([key[part] for key in side] for side in sides for part in (0, 1)),
        *([titles[key].title if key in titles else None for key in side] for side in sides),
        [pair.joined for pair in pairs],
        [pair.pairs for pair in pairs],
        [pair.verdict or None for pair in pairs],
    ]
    return in_memory(f"{run.uri}, review", pa.table(columns, schema=_SCHEMA))


def estimated(run: Run, verdicts: Any) -> Estimate:
    """See Run.judged."""
    found = drawn(run)
    if found is None:
        raise DupqError(f"{run.uri}: no sample to judge, because the run has no candidate pairs of the encoder")
    rows, sites = found
    is_file = isinstance(verdicts, (str, os.PathLike))
    given = read_verdicts(storage.absolute(verdicts), sites) if is_file else _of_table(verdicts, sites)
    return estimate(rows, verdicts_of(rows, given.left, given.right, given.verdicts)[0])


def _of_table(given: object, sites: Sites) -> Judged:
    """The verdicts of a pandas, Polars or Arrow table, checked as those of a file are."""
    table = collected(given)
    names = names_of(table)
    if names is None:
        raise DupqError(f"judged: {type(table).__name__}; the address of a review.tsv, or a table like it, expected")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DupqError(f"judged: the table has no column '{missing[0]}'; it has {', '.join(names)}")
    left, right = (keys_in(table, end, "judged") for end in ("_left", "_right"))
    words = texts(column_of(table, "verdict", "judged"), "judged", "verdict")
    rows = [Verdict(*one, *other, word) for one, other, word in zip(left, right, words, strict=True) if one and other]
    return judged(parse_verdicts(format_verdicts(rows), "judged"), sites, "judged")
