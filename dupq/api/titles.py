"""Titles and addresses beside the keys of a table: `Run.with_titles`."""

from collections.abc import Callable

import pyarrow as pa

from dupq.api.inputs import collected, keys_in, names_of
from dupq.errors import DupqError
from dupq.runs.links import link
from dupq.runs.reader import Run

_ENDS = ("", "_left", "_right")


def with_titles(run: Run, frame: object) -> object:
    """See Run.with_titles."""
    frame = collected(frame)
    names = names_of(frame) or ()
    ends = [end for end in _ENDS if f"site{end}" in names and f"question_id{end}" in names]
    if not ends:
        raise DupqError(
            "with_titles: a pandas, Polars or Arrow table with the columns site and question_id expected, or with "
            f"site_left, question_id_left and so on; {type(frame).__name__} has {', '.join(names) or 'no columns'}"
        )
    columns: dict[str, list[str | None]] = {}
    for end in ends:
        keys = keys_in(frame, end, "with_titles")
        found = run.titles(key for key in keys if key is not None)
        columns[f"title{end}"] = [found[key].title if key in found else None for key in keys]
        columns[f"link{end}"] = [None if key is None else link(key) for key in keys]
    return _with(frame, columns)


def _with(frame: object, columns: dict[str, list[str | None]]) -> object:
    """A table with more columns, or with others in the place of those of their names, of the kind that it was."""
    if isinstance(frame, pa.Table):
        kept = frame.drop_columns([name for name in columns if name in frame.column_names])
        for name, values in columns.items():
            kept = kept.append_column(name, pa.array(values, pa.string()))
        return kept
    if hasattr(frame, "with_columns"):  # Polars, which need not be installed
        make: Callable[..., pa.Table] = type(frame)  # of Polars in truth
        return frame.with_columns(make(columns, schema=dict.fromkeys(columns, str)).get_columns())
    if hasattr(frame, "assign"):
        return frame.assign(**columns)
    raise DupqError(f"with_titles: {type(frame).__name__}; a pandas, Polars or Arrow table expected")
