"""The fields of questions, answers and links, and what makes a row unusable.

An empty attribute counts as an absent one. Rows are read a column at a time: where all values of a column are in the
form that dumps write, Arrow reads them at once; else each is read alone, which tells the broken ones.
"""

import contextlib
import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.tables import LINKS, QUESTIONS
from dupq.text.keys import MAXIMUM_ID

QUESTION, ANSWER = "1", "2"  # PostTypeId
MAXIMUM_TEXT = 1 << 16  # bytes of UTF-8 that an attribute other than Body may have; a row with more is rejected
MAXIMUM_BODY = 1_000_000  # bytes of UTF-8; a row with more is rejected
FABRICATED_IDS = (1_000_000_001, 1_000_000_010)  # an invented question and answer, in every dump since June 2025

# The schema of answers while a site is being read: which are accepted is known at its end.
UNJUDGED_ANSWERS = pa.schema(
    [
        pa.field("answer_id", pa.int64(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("body_html", pa.string(), nullable=False),
        pa.field("score", pa.int32()),
    ]
)
SCHEMAS = {"questions": QUESTIONS, "answers": UNJUDGED_ANSWERS, "links": LINKS}

# The attribute that fills a column, of several the first that is there. The column's type says how it is read.
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
    },
    "answers": {"answer_id": ("Id",), "question_id": ("ParentId",), "body_html": ("Body",), "score": ("Score",)},
    "links": {
        "question_id": ("PostId",),
        "related_id": ("RelatedPostId",),
        "link_type": ("LinkTypeId",),
        "creation_date": ("CreationDate",),
    },
}
REFERENCES = {  # that dumps have, the commonest first
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
Written = Mapping[str, bytes]  # a row's attributes in UTF-8, with none but these references

_LINK_TYPES = {1: "linked", 3: "duplicate"}
_USUAL_ID = r"^[0-9]{1,14}$"
_USUAL = {
    pa.int32(): r"^-?[0-9]{1,9}$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.timestamp("ms", tz="UTC"): r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$",
}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_LONGEST_DATE = 40  # characters; of one that is longer `fromisoformat` may leave out what it does not understand
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_TAG_SEPARATORS = re.compile(r"[<>|]+")  # of both spellings of the dumps, `<a><b>` and, in newer ones, `|a|b|`
_QUOTED_TAG = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def written(attributes: Mapping[str, str]) -> Written:
    """Return attributes as a dump may write them, so without zero bytes."""
    return {name: value.replace("\0", "\ufffd").replace("&", "&amp;").encode() for name, value in attributes.items()}


def read_columns(rows: Sequence[Written], table: str) -> tuple[pa.Table, dict[int, str]]:
    """Return rows of one of ATTRIBUTES as a table of its schema, and which of them are left out of it, and why."""
    faults: dict[int, str] = {}
    columns = {}
    for name, attributes in ATTRIBUTES[table].items():
        read = [_column(rows, attribute, SCHEMAS[table].field(name), faults) for attribute in attributes]
        columns[name] = pc.coalesce(*read)
    found = pa.table(columns, SCHEMAS[table])
    if faults:
        found = found.filter(pa.array([index not in faults for index in range(len(rows))]))
    return found, faults


def _column(rows: Sequence[Written], attribute: str, field: pa.Field, faults: dict[int, str]) -> pa.Array:
    """Return an attribute of all rows as `field` says, whose broken values, which are anything, go to `faults`."""
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
        return pa.array([tags(text or "") for text in texts.to_pylist()], field.type)
    return texts if field.nullable else texts.fill_null("")


def _parsed(values: Sequence[bytes | None], attribute: str, field: pa.Field, faults: dict[int, str]) -> pa.Array:
    """Return numbers, or times; an id is a number that must be there, and that fits into a key."""
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
            except (ValueError, OverflowError):  # the latter for a time before the year 1 in UTC, or after 9999
                faults.setdefault(index, f"{attribute} not a {'date' if is_time else 'number'}")
        elif is_id:
            faults.setdefault(index, f"no {attribute}")
        parsed.append(number)
    return pa.array(parsed, field.type)


def _integer(text: str, least: int, most: int) -> int:
    if _INTEGER.fullmatch(text) is None or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


def _milliseconds(text: str) -> int:
    """Return a time in milliseconds since 1970. Dumps write UTC, and BigQuery says so: `2012-03-06 19:06:05.6 UTC`."""
    if len(text) > _LONGEST_DATE:
        raise ValueError(text)
    time = datetime.datetime.fromisoformat(f"{text.removesuffix(' UTC')}Z" if text.endswith(" UTC") else text)
    time = time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    return (time - _EPOCH) // _MILLISECOND


def _unescaped(values: Sequence[bytes | None]) -> pa.Array:
    """Return texts, with characters for references: all at once, joined by zero bytes, which no value has."""
    joined = b"\0".join([value or b"" for value in values])
    characters = np.frombuffer(joined + bytes(5), np.uint8).copy()
    left = np.flatnonzero(characters == ord("&"))
    stays = np.ones(len(characters), np.bool_)
    for reference, character in REFERENCES.items():
        is_it = are_at(characters, left, reference)
        begins, left = left[is_it], left[~is_it]
        for offset in range(1, len(reference)):
            stays[begins + offset] = False
        characters[begins] = ord(character)
    texts = characters[: len(joined)][stays[: len(joined)]].tobytes().split(b"\0")
    return pa.array([text or None for text in texts[: len(values)]], pa.binary()).cast(pa.string())


def are_at(characters: np.ndarray, begins: np.ndarray, reference: bytes) -> np.ndarray:
    """Tell at which of `begins`, where each has its first byte, `reference` is in `characters`."""
    is_it = np.ones(len(begins), np.bool_)
    for offset in range(1, len(reference)):
        is_it &= characters[begins + offset] == reference[offset]
    return is_it


def tags(text: str) -> list[str]:
    """Return the tags in either spelling of the dumps: `<a><b>` or, in newer ones, `|a|b|`."""
    return [tag for tag in _TAG_SEPARATORS.split(text) if tag]


def spelt_tags(text: str) -> str:
    """Return tags in the spelling of the dumps: of a list as Python or JSON writes it, or between commas or spaces."""
    if text.startswith(("<", "|")):
        return text
    if text.startswith("[") and text.endswith("]"):
        quoted = [single or double for single, double in _QUOTED_TAG.findall(text)]
        if quoted:
            return tags_of(quoted)
        text = text[1:-1]
    separator = next((mark for mark in ",;|" if mark in text), None)
    return tags_of(text.split(separator))


def tags_of(names: Iterable[str]) -> str:
    """Return tags in the spelling of the dumps; in a tag, the signs of that spelling become spaces."""
    cleaned = (_TAG_SEPARATORS.sub(" ", name).strip() for name in names)
    return "".join([f"<{name}>" for name in cleaned if name])
