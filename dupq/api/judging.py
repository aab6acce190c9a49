"""A run's sample of pairs to be judged, and what verdicts on it tell: `Run.review`, `Run.judged`."""

from typing import Any

import pyarrow as pa

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
    given = read_verdicts(verdicts, sites) if isinstance(verdicts, str) else _of_table(verdicts, sites)
    return estimate(rows, verdicts_of(rows, given.left, given.right, given.verdicts)[0])


def _of_table(table: Any, sites: Sites) -> Judged:
    """The verdicts of a pandas, Polars or Arrow table, checked as those of a file are."""
    names = getattr(table, "column_names", getattr(table, "columns", ()))
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DupqError(f"judged: the table has no column '{missing[0]}'; it has {', '.join(map(str, names))}")
    columns = [_values(table[name]) for name in COLUMNS]
    columns[-1] = [value if isinstance(value, str) else "" for value in columns[-1]]
    given = [Verdict(*row) for row in zip(*columns, strict=True)]
    return judged(parse_verdicts(format_verdicts(given), "judged"), sites, "judged")


def _values(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)
