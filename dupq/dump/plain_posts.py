"""Rows of Posts.xml in the form that dumps write, as columns.

Dumps write double quotes around values, and few kinds of references. So the quotes of a row part names from values, and
Arrow turns values into columns. Rows in any other form are parsed one by one (dupq/dump/parsing.py), which gives the
same at half the speed, and says what is broken.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.dump.posts import ANSWER, FABRICATED, MAXIMUM_TEXT, QUESTION, UNJUDGED_ANSWERS, PostChoice, tags
from dupq.tables import QUESTIONS

_ID, _TYPE = b"<row Id=", b" PostTypeId="
_FABRICATED = {written.encode() for written in FABRICATED}
_NAMES = {
    b" %b=" % name
    for name in b"PostTypeId ParentId AcceptedAnswerId CreationDate DeletionDate Score ViewCount Body OwnerUserId "
    b"OwnerDisplayName LastEditorUserId LastEditorDisplayName LastEditDate LastActivityDate Title Tags AnswerCount "
    b"CommentCount FavoriteCount ClosedDate CommunityOwnedDate ContentLicense".split()
} | {_ID}
_ENDS = {b" />\n  ": 1, b" />\r\n  ": 2, b" />\n": 1, b" />\r\n": 2}  # of rows, with how many control characters
_REFERENCES = {  # the commonest first
    b"&lt;": "<",
    b"&gt;": ">",
    b"&quot;": '"',
    b"&#xA;": "\n",
    b"&amp;": "&",
    b"&#10;": "\n",
    b"&#xD;": "\r",
    b"&#13;": "\r",
    b"&apos;": "'",
    b"&#x9;": "\t",
    b"&#9;": "\t",
}
_IDENTIFIER = r"^[0-9]{1,14}$"
_NUMBERS = {pa.int32(): r"^-?[0-9]{1,9}$", pa.int64(): r"^-?[0-9]{1,18}$"}
_TIME = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$"


class Plain(NamedTuple):
    """Posts that were read as columns. `indices`: which of the rows became each table's."""

    tables: dict[str, pa.Table]
    indices: dict[str, list[int]]
    others: dict[str, int]  # how many posts of which kind are in no table
    odd: list[int]  # the rows that are in another form


def read_posts(data: bytes, begins: Sequence[int], end: int, choice: PostChoice) -> Plain | None:
    """Return what is in the rows that begin at `begins` in `data`; None if a value is in another form."""
    wanted = {QUESTION.encode(): "questions"} | ({ANSWER.encode(): "answers"} if choice.answers else {})
    rows: dict[str, list[dict[bytes, bytes]]] = {name: [] for name in wanted.values()}
    indices: dict[str, list[int]] = {name: [] for name in rows}
    others = Counter[str]()
    odd = list[int]()
    borders = [*begins, end]
    characters = np.frombuffer(data, np.uint8)[:end]
    controls = _per_row(np.flatnonzero(characters < ord(" ")), borders)
    openings = _per_row(np.flatnonzero(characters == ord("<")), borders)
    forbidden = _per_row(_non_characters(characters), borders) + _per_row(_other_references(characters), borders)
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    for index in range(len(begins)):
        *parts, tail = data[borders[index] : borders[index + 1]].split(b'"')
        row = dict(zip(parts[::2], parts[1::2], strict=False))
        if (
            _ENDS.get(tail) != controls[index]
            or openings[index] + forbidden[index] > 1
            or 2 * len(row) != len(parts)
            or not row.keys() <= _NAMES
            or not row.get(_TYPE)
        ):
            odd.append(index)
        elif row.get(_ID) in _FABRICATED and not choice.keeps_fabricated:
            others["fabricated"] += 1
        elif (name := wanted.get(row[_TYPE])) is None:
            others["other_posts"] += 1
        else:
            rows[name].append(row)
            indices[name].append(index)
    try:
        tables = {"questions": _questions(_Columns(rows["questions"]), choice.maximum_body)}
        if choice.answers:
            tables["answers"] = _answers(_Columns(rows["answers"]), choice.maximum_body)
    except ValueError:  # Arrow's errors are such, too
        return None
    return Plain(tables, indices, others, odd)


def _per_row(places: np.ndarray, borders: Sequence[int]) -> np.ndarray:
    """Return how many of the ascending `places` are between each two borders."""
    return np.diff(np.searchsorted(places, borders))


def _non_characters(characters: np.ndarray) -> np.ndarray:
    """Return where U+FFFE and U+FFFF, which XML forbids, begin in UTF-8."""
    first = np.flatnonzero(characters[:-2] == 0xEF)
    return first[(characters[first + 1] == 0xBF) & (characters[first + 2] >= 0xBE)]


def _other_references(characters: np.ndarray) -> np.ndarray:
    """Return where references begin that dumps do not have, or that reach over the end."""
    left = np.flatnonzero(characters == ord("&"))
    others = left[left > len(characters) - 6]
    left = left[left <= len(characters) - 6]
    for reference in _REFERENCES:
        is_it = np.ones(len(left), np.bool_)
        for offset in range(1, len(reference)):
            is_it &= characters[left + offset] == reference[offset]
        left = left[~is_it]
    return np.append(left, others)


def _unescaped(content: bytes) -> bytes:
    """Return `content` with characters for references. Raises ValueError for another reference than dumps have."""
    characters = np.frombuffer(content + bytes(5), np.uint8).copy()
    left = np.flatnonzero(characters == ord("&"))
    stays = np.ones(len(characters), np.bool_)
    stays[len(content) :] = False
    for reference, character in _REFERENCES.items():
        is_it = np.ones(len(left), np.bool_)
        for offset in range(1, len(reference)):
            is_it &= characters[left + offset] == reference[offset]
        places, left = left[is_it], left[~is_it]
        for offset in range(1, len(reference)):
            stays[places + offset] = False
        characters[places] = ord(character)
    if len(left):
        raise ValueError("another reference")
    return characters[stays].tobytes()


class _Columns:
    """The attributes of some rows as columns, null where one is absent or empty. ValueError for unusual values."""

    def __init__(self, rows: Sequence[dict[bytes, bytes]]) -> None:
        self._rows = rows

    def text(self, name: bytes, maximum: int = MAXIMUM_TEXT) -> pa.Array:
        """Return texts of at most `maximum` bytes."""
        values = _unescaped(b"\0".join([row.get(name, b"") for row in self._rows])).split(b"\0")
        column = pa.array([value or None for value in values[: len(self._rows)]], pa.binary()).cast(pa.string())
        _check(pc.less_equal(pc.binary_length(column), maximum))
        return column

    def number(self, name: bytes, kind: pa.DataType, pattern: str | None = None) -> pa.Array:
        """Return integers of the type `kind`."""
        return self._values(name, pattern or _NUMBERS[kind]).cast(kind)

    def identifier(self, name: bytes) -> pa.Array:
        """Return ids, of which none is absent."""
        ids = self.number(name, pa.int64(), _IDENTIFIER)
        _check(ids.is_valid())
        return ids

    def time(self, name: bytes) -> pa.Array:
        """Return times."""
        return self._values(name, _TIME).cast(pa.timestamp("ms")).cast(pa.timestamp("ms", tz="UTC"))

    def _values(self, name: bytes, pattern: str) -> pa.Array:
        column = pa.array([row.get(name) or None for row in self._rows], pa.binary()).cast(pa.string())
        _check(pc.match_substring_regex(column, pattern))
        return column


def _check(holds: pa.Array) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise ValueError("an unusual value")


def _questions(columns: _Columns, maximum_body: int) -> pa.Table:
    written = columns.text(b" Tags=").fill_null("").to_pylist()
    found = {
        "question_id": columns.identifier(_ID),
        "title": columns.text(b" Title=").fill_null(""),
        "body_html": columns.text(b" Body=", maximum_body).fill_null(""),
        "tags": pa.array(map(tags, written), QUESTIONS.field("tags").type),
        "creation_date": columns.time(b" CreationDate="),
        "score": columns.number(b" Score=", pa.int32()),
        "view_count": columns.number(b" ViewCount=", pa.int64()),
        "answer_count": columns.number(b" AnswerCount=", pa.int32()),
        "accepted_answer_id": columns.number(b" AcceptedAnswerId=", pa.int64()),
        "closed_date": columns.time(b" ClosedDate="),
        "owner": pc.coalesce(columns.text(b" OwnerUserId="), columns.text(b" OwnerDisplayName=")),
        "content_license": columns.text(b" ContentLicense="),
    }
    return pa.table(found, QUESTIONS)


def _answers(columns: _Columns, maximum_body: int) -> pa.Table:
    found = {
        "answer_id": columns.identifier(_ID),
        "question_id": columns.identifier(b" ParentId="),
        "body_html": columns.text(b" Body=", maximum_body).fill_null(""),
        "score": columns.number(b" Score=", pa.int32()),
    }
    return pa.table(found, UNJUDGED_ANSWERS)
