"""What Python code gives to the API, as texts, numbers and questions. Errors name the call, and the row of a column."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq.errors import DupqError, SettingError
from dupq.runs.reader import Key, TableView
from dupq.text.tokens import Markup, as_html, is_html

_MISSING = ("None", "nan", "NaT", "<NA>")  # as Arrow, Polars and pandas mark it
_ID = re.compile(r"([0-9]{1,15})(?:\.0)?")  # pandas has fractions where one of a column is missing


def collected(table: object) -> object:
    """A table in memory of a lazy one (a LazyFrame of Polars, a TableView); anything else as it is."""
    if isinstance(table, TableView):
        return table.arrow()
    collect = getattr(table, "collect", None)
    return collect() if callable(collect) else table


def as_columns(table: object) -> object:
    """A list of records, as JSON gives them, as a dictionary of columns; anything else as it is."""
    if not (isinstance(table, list) and table and all(isinstance(row, Mapping) for row in table)):
        return table
    names = dict.fromkeys(name for row in table for name in row)
    return {name: [row.get(name) for row in table] for name in names}


def names_of(table: object) -> list[str] | None:
    """The names of the columns of a table (pandas, Polars, Arrow, a dictionary of columns); None for what is none."""
    if isinstance(table, Mapping):
        return list(map(str, table))
    names = getattr(table, "column_names", getattr(table, "columns", None))
    return None if names is None else list(map(str, names))


def column_of(table: object, name: str, call: str) -> list[object]:
    """The values of a column of such a table. Raises DupqError if there are several of that name."""
    try:
        return values_of(table[name], call, name)  # type: ignore[index]
    except KeyError as error:
        raise DupqError(f"{call}: no single column '{name}' ({error.args[0]})") from error


def values_of(column: object, call: str, name: str) -> list[object]:
    """The values of a list or a column. Raises DupqError for what is none, such as one text."""
    if isinstance(column, (str, bytes)):
        raise DupqError(f"{call}: {name} is one text; a list or a column of texts expected")
    if not isinstance(column, Iterable) or hasattr(column, "columns"):
        raise DupqError(f"{call}: {name} is {type(column).__name__}, no list or column")
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def texts(values: Iterable[object], call: str, name: str) -> list[str]:
    """The texts of a column, "" for what is missing. Raises DupqError with the row of what is no text."""
    return [text(value, f"{call}: row {row} of {name}") for row, value in enumerate(values)]


def text(value: object, where: str) -> str:
    """`value` as a text that can be stored, "" if it is missing; raises DupqError that begins with `where`."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DupqError(
                f"{where} holds half a character ({value[error.start]!r}), as a text does that was cut; mend it with "
                "text.encode(errors='replace').decode()"
            ) from error
        return value
    if str(value) in _MISSING:
        return ""
    remedy = "; decode it first" if isinstance(value, bytes) else ""
    if isinstance(value, Mapping):
        remedy = "; give a table, or a dictionary of columns"
    raise DupqError(f"{where} is {type(value).__name__}, no text{remedy}")


def share(value: object, where: str) -> float:
    """A number from 0 to 1; raises SettingError that begins with `where` for anything else."""
    if not isinstance(value, Real):
        raise SettingError(f"{where}{value!r} is {type(value).__name__}, no number; 0 to 1 expected")
    if not 0 <= float(value) <= 1:
        raise SettingError(f"{where}{value} is out of range; 0 to 1 expected")
    return float(value)


def check_count(value: object, where: str) -> None:
    """Raise SettingError that begins with `where` for what is no whole number from 1 on."""
    if not isinstance(value, Integral) or value < 1:
        raise SettingError(f"{where}{value!r}; a whole number, at least 1 expected")


def key_of(question: object) -> Key:
    """The key of a question, given as "site/question_id" or (site, question_id); raises DupqError for anything else."""
    if isinstance(question, str):
        site, _, number = question.rpartition("/")
    elif isinstance(question, (tuple, list)) and len(question) == 2:
        site, number = question
    else:
        site, number = "", ""
    digits = _ID.fullmatch(str(number))
    if not isinstance(site, str) or not site or digits is None:
        raise DupqError(f"{question!r}: no question; site/question_id expected, such as cs.stackexchange.com/123")
    return text(site, f"{question!r}: the site"), int(digits[1])


def keys_in(table: object, end: str, call: str) -> list[Key | None]:
    """The keys of a table with the columns `site` and `question_id`, with `end` at their names; None for an empty row.

    Raises DupqError with the row of what is no question.
    """
    sites, numbers = (column_of(table, f"{name}{end}", call) for name in ("site", "question_id"))
    found: list[Key | None] = []
    for row, (site, number) in enumerate(zip(sites, numbers, strict=True)):
        try:
            is_missing = str(site) in _MISSING and str(number) in _MISSING
            found.append(None if is_missing else key_of((site, number)))
        except DupqError as error:
            raise DupqError(f"{call}: row {row}: {error}") from error
    return found


_TITLES = ("title", "question", "subject", "headline")  # columns, as in dump/files.py; the first that is there
_BODIES = ("body_html", "body", "text", "description", "content")
_IDS = ("id", "question_id")
_LOOKED_AT = 20  # values of a column that may be text


class Given(NamedTuple):
    """What was given to be compared."""

    titles: list[str]
    bodies: list[str] | None  # HTML
    ids: pa.Array
    read: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


def given_texts(texts_given: object, markup: Markup, call: str) -> Given:
    """What was given, its bodies as HTML."""
    table = as_columns(collected(texts_given))
    names = names_of(table)
    if names is None:
        titles = texts(values_of(table, call, "texts"), call, "texts")
        return Given(titles, None, _ids(table, None, len(titles), call))
    own, below, named = (next((name for name in kind if name in names), None) for kind in (_TITLES, _BODIES, _IDS))
    if own is None:
        raise DupqError(f"{call}: the table has no column 'title'; it has {', '.join(names)}")
    titles = texts(column_of(table, own, call), call, own)
    bodies = None if below is None else texts(column_of(table, below, call), call, below)
    if bodies is not None and len(bodies) != len(titles):
        raise DupqError(f"{call}: {len(titles)} titles, but {len(bodies)} bodies")
    if bodies is not None and not is_html(str(below), bodies, markup):
        bodies = list(map(as_html, bodies))
    read = tuple(name for name in (own, below) if name is not None)
    left = [name for name in names if name not in (*read, named)]
    others = tuple(
        name
        for name in left
        if any(isinstance(value, str) for value in values_of(table[name][:_LOOKED_AT], call, name))  # type: ignore[index]
    )
    return Given(titles, bodies, _ids(table, named, len(titles), call), read, others)


def _ids(table: object, named: str | None, count: int, call: str) -> pa.Array:
    """The ids of texts: of the column `named`, or the index of pandas; their rows where there is neither."""
    index = getattr(table, "index", None)
    values: list[Any] = []
    if named == "question_id" and "site" in (names_of(table) or ()):
        columns = (column_of(table, name, call) for name in ("site", named))
        values = [f"{site}/{number}" for site, number in zip(*columns, strict=True)]
    elif named is not None:
        values = column_of(table, named, call)
    elif index is not None and hasattr(index, "tolist") and type(index).__name__ != "RangeIndex":
        values = index.tolist()
    if not count or len(values) != count:
        return pa.array(np.arange(count))
    if len(set(values)) != count or None in values:
        twice = next((value for value, often in Counter(values).items() if often > 1), None)
        raise DupqError(f"{call}: the id {twice!r} names more than one text; ids must be there, and distinct")
    is_whole = all(isinstance(value, int) for value in values)
    return pa.array(values) if is_whole else pa.array(map(str, values), pa.string())
