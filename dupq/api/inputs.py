"""Read the arguments of the Python API: tables, columns, texts, numbers and questions of any of the usual kinds.

Errors name the call, and the row of a column.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import pyarrow as pa

from dupq.errors import DupqError, SettingError
from dupq.runs.reader import Key
from dupq.runs.views import TableView
from dupq.text.tokens import Markup, as_html, is_html

_MISSING = ("None", "nan", "NaT", "<NA>")  # how Arrow, Polars and pandas mark a missing value
_ID = re.compile(r"([0-9]{1,15})(?:\.0)?")  # pandas turns a column of ids into floats if one is missing
_TITLES = ("title", "question", "subject", "headline")  # columns, as in dump/files.py; the first one present is read
_BODIES = ("body_html", "body", "text", "description", "content")
_IDS = ("id", "question_id")
_VALUES_CHECKED = 20  # of a column that is not read, to see if it holds text


def collected(table: object) -> object:
    """Return a lazy table (a LazyFrame of Polars, a TableView) in memory, and a list of records as columns by name.

    Anything else is returned unchanged.
    """
    if isinstance(table, TableView):
        return table.arrow()
    if isinstance(table, list) and table and all(isinstance(row, Mapping) for row in table):
        names = dict.fromkeys(name for row in table for name in row)
        return {name: [row.get(name) for row in table] for name in names}
    collect = getattr(table, "collect", None)
    return collect() if callable(collect) else table


def names_of(table: object) -> list[str] | None:
    """Return the column names of a table (pandas, Polars, Arrow, a dictionary of columns); None if it is no table."""
    if isinstance(table, Mapping):
        return list(map(str, table))
    names = getattr(table, "column_names", getattr(table, "columns", None))
    return None if names is None else list(map(str, names))


def column_of(table: object, name: str, call: str) -> list[object]:
    """Return the values of a table's column. Raises DupqError if several columns have that name."""
    try:
        return values_of(table[name], call, name)  # type: ignore[index]
    except KeyError as error:
        raise DupqError(f"{call}: no single column '{name}' ({error.args[0]})") from error


def values_of(column: object, call: str, name: str) -> list[object]:
    """Return the values of a list or a column. Raises DupqError for anything else, such as a single text."""
    if isinstance(column, (str, bytes)):
        raise DupqError(f"{call}: {name} is one text; a list or a column of texts expected")
    if not isinstance(column, Iterable) or hasattr(column, "columns"):
        raise DupqError(f"{call}: {name} is {type(column).__name__}, no list or column")
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def texts(column: object, call: str, name: str) -> list[str]:
    """Return the texts of a column, "" for a missing one. Raises DupqError with the row of a value that is no text."""
    return [text(value, f"{call}: row {row} of {name}") for row, value in enumerate(values_of(column, call, name))]


def text(value: object, where: str) -> str:
    """Return `value` as a text that UTF-8 can hold, "" if it is missing. Raises DupqError, beginning with `where`."""
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
    raise DupqError(f"{where} is {type(value).__name__}, no text{remedy}")


def share(value: object, where: str) -> float:
    """Return a number from 0 to 1. Raises SettingError, beginning with `where`, for anything else."""
    if not isinstance(value, Real):
        raise SettingError(f"{where}{value!r} is {type(value).__name__}, no number; 0 to 1 expected")
    if not 0 <= float(value) <= 1:
        raise SettingError(f"{where}{value} is out of range; 0 to 1 expected")
    return float(value)


def whole(value: object, where: str) -> int:
    """Return a whole number. Raises SettingError, beginning with `where`, for anything else."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise SettingError(f"{where}{value!r} is {type(value).__name__}, no whole number")
    return int(value)


def key_of(question: object) -> Key:
    """Return the key of a question: "site/question_id" or (site, question_id). Raises DupqError for anything else."""
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
    """Return the keys in the columns `site` and `question_id`, with the ending `end`; None for an empty row.

    Raises DupqError with the row of a value that is not a question.
    """
    sites, numbers = (column_of(table, f"{name}{end}", call) for name in ("site", "question_id"))
    keys: list[Key | None] = []
    for row, (site, number) in enumerate(zip(sites, numbers, strict=True)):
        try:
            is_missing = str(site) in _MISSING and str(number) in _MISSING
            keys.append(None if is_missing else key_of((site, number)))
        except DupqError as error:
            raise DupqError(f"{call}: row {row}: {error}") from error
    return keys


class Texts(NamedTuple):
    """Texts to compare."""

    titles: list[str]
    bodies: list[str] | None  # HTML
    ids: pa.Array
    read: tuple[str, ...] = ()  # columns of the table
    not_read: tuple[str, ...] = ()  # other columns that hold text


def read_texts(given: object, markup: Markup, call: str) -> Texts:
    """Return the texts of a table or column, bodies as HTML. Raises DupqError with the row of a value that is none."""
    table = collected(given)
    names = names_of(table)
    if names is None:
        titles = texts(table, call, "texts")
        return Texts(titles, None, _ids(table, None, len(titles), call))
    title, body, id_ = (next((name for name in kind if name in names), None) for kind in (_TITLES, _BODIES, _IDS))
    if title is None:
        raise DupqError(f"{call}: the table has no column 'title'; it has {', '.join(names)}")
    titles = texts(column_of(table, title, call), call, title)
    bodies, read = None, [title]
    if body is not None:
        read.append(body)
        bodies = texts(column_of(table, body, call), call, body)
        if len(bodies) != len(titles):
            raise DupqError(f"{call}: {len(titles)} titles, but {len(bodies)} bodies")
        if not is_html(body, bodies, markup):
            bodies = list(map(as_html, bodies))
    not_read = tuple(name for name in names if name not in (*read, id_) and _holds_text(table, name))
    return Texts(titles, bodies, _ids(table, id_, len(titles), call), tuple(read), not_read)


def _holds_text(table: object, name: str) -> bool:
    """Return whether a column begins with a text; False for one that cannot be looked at, as it is not read."""
    try:
        return any(isinstance(value, str) for value in values_of(table[name][:_VALUES_CHECKED], "", name))  # type: ignore[index]
    except (KeyError, TypeError, DupqError):  # its name is no text, or names several columns; or it is no column
        return False


def _ids(table: object, column: str | None, count: int, call: str) -> pa.Array:
    """Return the ids of texts, from the column `column` or a pandas index; without either, the numbers of the rows."""
    index = getattr(table, "index", None)
    values: list[Any] = list(range(count))
    if column == "question_id" and "site" in (names_of(table) or ()):
        columns = (column_of(table, name, call) for name in ("site", column))
        values = [f"{site}/{number}" for site, number in zip(*columns, strict=True)]
    elif column is not None:
        values = column_of(table, column, call)
    elif index is not None and hasattr(index, "tolist") and type(index).__name__ != "RangeIndex":
        values = index.tolist()
    if len(values) != count:
        raise DupqError(f"{call}: {count} titles, but {len(values)} values of {column}")
    missing = [value for value in values if not isinstance(value, str) and str(value) in _MISSING]
    are_whole = all(isinstance(value, Integral) and -(2**63) <= int(value) < 2**63 for value in values)
    where = f"{call}: row {{}} of {column or 'the index'}"
    ids = [int(value) if are_whole else text(str(value), where.format(row)) for row, value in enumerate(values)]
    wrong = missing or [id_ for id_, often in Counter(ids).items() if often > 1]
    if wrong:
        raise DupqError(f"{call}: the id {wrong[0]!r} names more than one text; ids must be there, and distinct")
    return pa.array(ids, pa.int64() if are_whole else pa.string())
