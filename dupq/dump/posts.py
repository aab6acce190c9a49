"""Converts rows' attributes to the columns of questions, answers and links, and says why a row is unusable.

An empty attribute counts as missing. If all values of a column are in the form that dumps write, Arrow parses the
column at once; otherwise each value is parsed alone, which finds the broken ones.
"""

import contextlib
import csv
import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS
from dupq.text.keys import MAXIMUM_ID

QUESTION, ANSWER = b"1", b"2"  # PostTypeId
MAXIMUM_BODY = 1_000_000  # bytes of UTF-8; a row with a longer body is rejected
MAXIMUM_TEXT = 1 << 16  # likewise, of any other attribute
FABRICATED_IDS = (b"1000000001", b"1000000010")  # an invented question and answer, in every dump since June 2025

# The tables while a site is being read; the first column is the key. Which answers are accepted is known at its end,
# and so is which row with an id counts: the ids that a row links to are in the same row.
UNJUDGED_ANSWERS = ANSWERS.remove(ANSWERS.get_field_index("is_accepted"))
IDS_AND_LINKS = IDS.append(pa.field("duplicate_of", pa.list_(pa.int64()), nullable=False))
SCHEMAS = {"questions": QUESTIONS, "answers": UNJUDGED_ANSWERS, "links": LINKS, "ids": IDS_AND_LINKS}

OWN_ID, URL, SCOPE = "OwnId", "Url", "Scope"  # attributes that only rows of tables from elsewhere have

# The attributes that may fill a column; the first that is present does. The column's type says how it is parsed.
ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "questions": {
        "question_id": ("Id",),
        "title": ("Title",),
        "body_html": ("Body",),
        "tags": ("Tags",),
        "creation_date": ("CreationDate",),
        "score": ("Score",),
        "view_count": ("ViewCount",),
        "answer_count": ("AnswerCount",),
        "accepted_answer_id": ("AcceptedAnswerId",),
        "closed_date": ("ClosedDate",),
        "owner": ("OwnerUserId", "OwnerDisplayName"),
        "content_license": ("ContentLicense",),
        "own_id": (OWN_ID,),
        "url": (URL,),
        "scope": (SCOPE,),
    },
    "answers": {"answer_id": ("Id",), "question_id": ("ParentId",), "body_html": ("Body",), "score": ("Score",)},
    "links": {
        "question_id": ("PostId",),
        "related_id": ("RelatedPostId",),
        "link_type": ("LinkTypeId",),
        "creation_date": ("CreationDate",),
    },
}
REFERENCES = {  # those of dumps, in the order in which they are replaced: the one that makes a `&` is last
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&apos;": "'",
    "&#xA;": "\n",
    "&#10;": "\n",
    "&#xD;": "\r",
    "&#13;": "\r",
    "&#x9;": "\t",
    "&#9;": "\t",
    "&amp;": "&",
}
RawAttributes = Mapping[str, bytes]  # a row's attributes in UTF-8, with no other references than these

_LINK_TYPES = {1: "linked", 3: "duplicate"}
_USUAL_ID = r"^[0-9]{1,14}$"
_USUAL = {
    pa.int32(): r"^-?[0-9]{1,9}$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.timestamp("ms", tz="UTC"): r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$",
}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_LONGEST_DATE = 40  # characters; `fromisoformat` may ignore the rest of a longer one
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_TAG_SEPARATORS = re.compile(r"[<>|]+")  # in both spellings of the dumps, `<a><b>` and, in newer ones, `|a|b|`
_QUOTED_TAG = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def read_columns(rows: Sequence[RawAttributes], table: str) -> tuple[pa.Table, dict[int, str]]:
    """Convert rows to a table of ATTRIBUTES. Return it without its broken rows, and their indices with the reasons."""
    faults: dict[int, str] = {}
    columns = {}
    for name, attributes in ATTRIBUTES[table].items():
        field = SCHEMAS[table].field(name)
        columns[name] = pc.coalesce(*(_column(rows, attribute, field, faults) for attribute in attributes))
    rows_read = pa.table(columns, SCHEMAS[table])
    if faults:
        rows_read = rows_read.filter(pa.array([index not in faults for index in range(len(rows))]))
    return rows_read, faults


def _column(rows: Sequence[RawAttributes], attribute: str, field: pa.Field, faults: dict[int, str]) -> pa.Array:
    """Return an attribute of all rows as a column. Record broken values, which may become anything, in `faults`."""
    values = [row.get(attribute) or None for row in rows]
    if attribute == "LinkTypeId":
        types = _parsed(values, attribute, pa.field("", pa.int64(), nullable=False), faults)
        return pa.array([_LINK_TYPES.get(number, f"type-{number}") for number in types.to_pylist()], pa.string())
    if field.type in _USUAL:
        return _parsed(values, attribute, field, faults)
    texts, maximum = _unescaped(values), MAXIMUM_BODY if attribute == "Body" else MAXIMUM_TEXT
    is_long = pc.greater(pc.binary_length(texts), maximum).fill_null(False)
    for index in pc.indices_nonzero(is_long).to_pylist():
        faults.setdefault(index, f"{attribute} of more than {maximum:,} bytes")
    if pa.types.is_list(field.type):
        tags = ([tag for tag in _TAG_SEPARATORS.split(text or "") if tag] for text in texts.to_pylist())
        return pa.array(list(tags), field.type)
    return texts if field.nullable else texts.fill_null("")


def _parsed(values: Sequence[bytes | None], attribute: str, field: pa.Field, faults: dict[int, str]) -> pa.Array:
    """Parse numbers or times. A field that is not nullable is an id: required, and small enough for a key."""
    is_id, is_time = not field.nullable, pa.types.is_timestamp(field.type)
    column = pa.array(values, pa.binary()).cast(pa.string())
    usual = pc.match_substring_regex(column, _USUAL_ID if is_id else _USUAL[field.type])
    if pc.all(usual, min_count=0).as_py() and not (is_id and column.null_count):
        with contextlib.suppress(pa.ArrowInvalid):  # the 30th of February
            return column.cast(pa.timestamp("ms")).cast(field.type) if is_time else column.cast(field.type)
    largest = MAXIMUM_ID if is_id else (1 << field.type.bit_width - 1) - 1
    numbers = partial(_integer, least=0 if is_id else ~largest, most=largest)
    parse: Callable[[str], int] = _milliseconds if is_time else numbers
    parsed: list[int | None] = []
    for index, text in enumerate(_unescaped(values).to_pylist()):
        number = None
        if text is not None:
            try:
                number = parse(text)
            except (ValueError, OverflowError):  # OverflowError: a time before the year 1 in UTC, or after 9999
                faults.setdefault(index, f"{attribute} not a {'date' if is_time else 'number'}")
        elif is_id:
            faults.setdefault(index, f"no {attribute}")
        parsed.append(number)
    return pa.array(parsed, field.type)


def _integer(text: str, least: int, most: int) -> int:
    if _INTEGER.fullmatch(text) is None or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


def reads_as_time(text: str) -> bool:
    """Tell whether a text is a time in a form that is read."""
    try:
        _milliseconds(text)
    except (ValueError, OverflowError):
        return False
    return True


def _milliseconds(text: str) -> int:
    """Return a time in milliseconds since 1970. Dumps omit the zone; BigQuery writes `2012-03-06 19:06:05.6 UTC`."""
    if len(text) > _LONGEST_DATE:
        raise ValueError(text)
    time = datetime.datetime.fromisoformat(f"{text.removesuffix(' UTC')}Z" if text.endswith(" UTC") else text)
    time = time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    return (time - _EPOCH) // _MILLISECOND


def _unescaped(values: Sequence[bytes | None]) -> pa.Array:
    texts = pa.array(values, pa.binary()).cast(pa.string())
    for reference, character in REFERENCES.items():
        texts = pc.replace_substring(texts, reference, character)
    return texts


def dump_tags(text: str) -> str:
    """Return tags in the spelling of the dumps. `text` is a list in Python or JSON, or has commas or spaces between."""
    if text.startswith(("<", "|")):
        return text
    if text.startswith("[") and text.endswith("]"):
        with contextlib.suppress(ValueError, RecursionError):
            tags = [tag.get("name") if isinstance(tag, dict) else tag for tag in json.loads(text)]
            return join_tags(str(tag) for tag in tags if tag is not None)
        quoted = [single or double for single, double in _QUOTED_TAG.findall(text)]
        if quoted:
            return join_tags(quoted)
        text = text[1:-1]
    if text.startswith("{") and text.endswith("}"):  # an array of PostgreSQL
        return join_tags(next(csv.reader([text[1:-1]]), []))
    separator = next((mark for mark in ",;|" if mark in text), None)
    return join_tags(text.split(separator))


def join_tags(names: Iterable[str]) -> str:
    """Return tags in the spelling of the dumps. Its separators within a tag become spaces."""
    cleaned = (_TAG_SEPARATORS.sub(" ", name).strip() for name in names)
    return "".join([f"<{name}>" for name in cleaned if name])
