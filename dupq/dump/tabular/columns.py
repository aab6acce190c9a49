"""Mapping the columns of CSV, TSV and Parquet tables to the attributes of a dump's rows.

Whatever a table looks like, each of its rows becomes what an XML row is: the dump's attribute names and their
text. So `posts.post` and `links.link` judge all rows alike, with the same reasons for a reject.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dupq.dump.fields import TAG_SEPARATORS
from dupq.dump.xml.rows import EXCERPT, BrokenRow, Row, excerpt
from dupq.errors import DupqError, SettingError

Table = Literal["posts", "links"]

# Reasons of rejects.
NUL_BYTES = "NUL bytes"
NOT_UTF8 = "not UTF-8"

_QUESTION = "1"  # PostTypeId
_ATTRIBUTES = {  # by the names that --columns uses
    "id": "Id",
    "title": "Title",
    "body": "Body",
    "text": "Body",
    "tags": "Tags",
    "creation_date": "CreationDate",
    "score": "Score",
    "view_count": "ViewCount",
    "answer_count": "AnswerCount",
    "accepted_answer_id": "AcceptedAnswerId",
    "closed_date": "ClosedDate",
    "owner": "OwnerDisplayName",
    "content_license": "ContentLicense",
}
_NUMBERS = (
    "Id",
    "PostTypeId",
    "ParentId",
    "Score",
    "ViewCount",
    "AnswerCount",
    "AcceptedAnswerId",
    "OwnerUserId",
    "PostId",
    "RelatedPostId",
    "LinkTypeId",
)
DATES = ("CreationDate", "ClosedDate")

_CONTROL_CHARACTERS = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r")
_NONCHARACTER = re.compile(rb"\xef\xbf[\xbe\xbf]")
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # by XML
_QUOTED_TAG = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_WHOLE_FLOAT = re.compile(r"(-?[0-9]+)\.0+")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_SHOWN = 20  # column names in an error


@dataclass(frozen=True)
class Columns:
    """The columns of a table, as `--columns` names them or as the dump does."""

    pairs: tuple[tuple[str, str], ...]  # attribute, column; the key of a row first
    optional: frozenset[str] = frozenset()  # attributes that a table may be without
    is_dump: bool = False  # then case does not matter
    is_text: bool = False  # the body is plain text


@dataclass(frozen=True)
class Layout:
    """The columns of one table: their attributes, and their positions."""

    attributes: tuple[str, ...]
    places: tuple[int, ...]
    is_dump: bool
    is_text: bool

    def row(self, values: Sequence[str | None]) -> dict[str, str]:
        """The attributes of a row whose `values` are in the order of `attributes`; empty ones are left out."""
        row = {name: value for name, value in zip(self.attributes, values, strict=True) if value}
        for name in _NUMBERS:
            if "." in row.get(name, ""):
                row[name] = whole_number(row[name])
        if not self.is_dump:
            row["PostTypeId"] = _QUESTION
        _replace(row, "Tags", spelt_tags)
        if self.is_text:
            _replace(row, "Body", paragraphs)
        return row


def _dump(required: str, optional: str) -> Columns:
    names = (*required.split(), *optional.split())
    return Columns(tuple((name, name) for name in names), frozenset(optional.split()), is_dump=True)


DUMP_COLUMNS: dict[Table, Columns] = {
    "posts": _dump(
        "Id PostTypeId",
        "Title Body Tags CreationDate Score ViewCount AnswerCount AcceptedAnswerId ClosedDate OwnerUserId "
        "OwnerDisplayName ContentLicense ParentId",
    ),
    "links": _dump("PostId RelatedPostId LinkTypeId", "CreationDate"),
}


def parse_columns(text: str) -> Columns:
    """The value of `--columns`: `id=…,title=…,body=…`, where `text=…` in place of body says that it is no HTML.

    A name that holds a comma cannot be given. Raises SettingError for an unknown field, one without a column
    or given twice, and if there is no id, neither title nor body, or both body and text.
    """
    names: dict[str, str] = {}
    for part in text.split(","):
        field, separator, column = (piece.strip() for piece in part.partition("="))
        if not separator or not column:
            raise SettingError(f"--columns: '{part}' names no column; write it as field=column")
        if field not in _ATTRIBUTES:
            raise SettingError(f"--columns: there is no field '{field}'; there are {', '.join(_ATTRIBUTES)}")
        if field in names:
            raise SettingError(f"--columns: '{field}' is given twice")
        names[field] = column
    if "id" not in names:
        raise SettingError("--columns: no id; name the column that holds it, as id=column")
    if not names.keys() & {"title", "body", "text"}:
        raise SettingError("--columns: neither title nor body nor text; name the column that holds the question")
    if {"body", "text"} <= names.keys():
        raise SettingError("--columns: both body (HTML) and text (plain); give one of them")
    pairs = tuple((_ATTRIBUTES[field], names[field]) for field in _ATTRIBUTES if field in names)
    return Columns(pairs, is_text="text" in names)


def columns_of(columns: Columns | None, table: Table) -> Columns:
    """`columns`, or where none were named the dump's own for `table`."""
    return DUMP_COLUMNS[table] if columns is None else columns


def locate(columns: Columns, names: Sequence[str], source: str) -> Layout:
    """The positions of `columns` in the table `source`, whose columns are called `names`.

    Raises DupqError naming both if one is missing, or there are several of its name.
    """
    found = {}
    for attribute, column in columns.pairs:
        places = [place for place, name in enumerate(names) if name == column]
        if not places and columns.is_dump:
            places = [place for place, name in enumerate(names) if name.lower() == column.lower()]
        if len(places) > 1:
            raise DupqError(f"{source}: column '{column}' is there {len(places)} times; its columns are {_list(names)}")
        if not places and attribute not in columns.optional:
            remedy = "; name those of a question table with dupq ingest --columns" if columns.is_dump else ""
            raise DupqError(f"{source}: column '{column}' is missing; its columns are {_list(names)}{remedy}")
        if places:
            found[attribute] = places[0]
    return Layout(tuple(found), tuple(found.values()), columns.is_dump, columns.is_text)


def whole_number(text: str) -> str:
    """`text` without the `.0` that numbers get where one of their column is missing."""
    match = _WHOLE_FLOAT.fullmatch(text)
    return text if match is None else match[1]


def tags_of(tags: Sequence[str | None]) -> str:
    """A list of tags in the spelling of the dumps. In a tag, the signs of that spelling become spaces."""
    cleaned = (tag if tag.isalnum() else TAG_SEPARATORS.sub(" ", tag).strip() for tag in tags if tag)
    return "".join([f"<{tag}>" for tag in cleaned if tag])


def spelt_tags(text: str) -> str:
    """`text` if it is in a spelling of the dumps; else a list of quoted tags, as Python and JSON write it.

    Or what its commas part, or without any its bars, as BigQuery has them, or without those either its white space.
    """
    if text.startswith(("<", "|")):
        return text
    if text.startswith("[") and text.endswith("]"):
        quoted = [single or double for single, double in _QUOTED_TAG.findall(text)]
        if quoted:
            return tags_of(quoted)
        text = text[1:-1]
    separator = next((mark for mark in ",|" if mark in text), None)
    return tags_of(text.split(separator))


def paragraphs(text: str) -> str:
    """Plain text as HTML: blank lines separate paragraphs."""
    lines = html.escape(text.replace("\r\n", "\n"), quote=False)
    parts = (part.strip("\n") for part in _BLANK_LINES.split(lines))
    return "\n".join(f"<p>{part}</p>" for part in parts if part.strip())


def read_row(position: int, values: Sequence[str | None], content: bytes, layout: Layout) -> Row | BrokenRow:
    """The row of `values`, which are in the order of the layout's attributes, without the characters that XML forbids.

    `content` is all of the row. It is broken where NUL bytes follow one another: there a text is lost.
    """
    forbidden = 0
    if _has_forbidden(content):
        if b"\0\0" in content:
            return BrokenRow(position, NUL_BYTES, excerpt(content))
        cleaned = [_FORBIDDEN.subn("", value or "") for value in values]
        values, forbidden = [value for value, _ in cleaned], sum(count for _, count in cleaned)
    return Row(position, layout.row(values), content[: 4 * EXCERPT], forbidden)


def _has_forbidden(content: bytes) -> bool:
    """Whether `content`, which is UTF-8, holds a character that XML forbids."""
    if len(content.translate(None, _CONTROL_CHARACTERS)) < len(content):
        return True
    return b"\xef\xbf" in content and _NONCHARACTER.search(content) is not None


def _replace(row: dict[str, str], name: str, change: Callable[[str], str]) -> None:
    if name in row:
        row[name] = change(row[name])


def _list(names: Sequence[str]) -> str:
    """`names` for an error: printable and not without end, for they may be anything."""
    shown = ", ".join(repr(name[:40]) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown or "none"
