"""The compiled reading of rows against what was written, and against the slow way."""

import datetime
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_rows import MAXIMUM_BODY, NAMES, ODD_PIECES, ODD_TEXTS, Mangler
from xml_contents import document, outcome, read, read_slowly

from dupq.dump.parsing import Format, links_format, posts_format
from dupq.dump.xml.plain_rows import parse_plain_rows
from dupq.dump.xml.posts import FABRICATED_IDS, MAXIMUM_TEXT, PostChoice, post_layout

FORMATS = {
    "questions": posts_format(PostChoice(maximum_body=MAXIMUM_BODY)),
    "questions and answers": posts_format(PostChoice(answers=True, maximum_body=MAXIMUM_BODY)),
    "links": links_format(),
}


def assert_fast_is_slow(rows: bytes, file_format: Format) -> None:
    content = document(rows, file_format.root)
    assert outcome(lambda: read(content, file_format)) == outcome(lambda: read_slowly(content, file_format))


# Whatever a question holds, and however it is spelled, it is read back

XML_CHARACTER = st.one_of(
    st.sampled_from("\t\n\r <>&'\"|/=;#x10"),
    st.characters(exclude_categories=["Cs"], exclude_characters="".join(map(chr, range(0x20))) + "\ufffe\uffff"),
)
XML_TEXT = st.text(XML_CHARACTER)
TAG = st.text(XML_CHARACTER.filter(lambda character: character not in "<>|"), min_size=1)
WIDE = st.integers(-(2**63), 2**63 - 1)
NARROW = st.integers(-(2**31), 2**31 - 1)
MOMENT = st.datetimes().map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=datetime.UTC)
)
QUESTION = st.fixed_dictionaries(
    {
        "question_id": st.integers(0, 2**48 - 1).filter(lambda number: number not in FABRICATED_IDS),
        "title": XML_TEXT,
        "body_html": XML_TEXT,
        "tags": st.lists(TAG, max_size=5),
        "creation_date": st.none() | MOMENT,
        "score": st.none() | NARROW,
        "view_count": st.none() | WIDE,
        "answer_count": st.none() | NARROW,
        "accepted_answer_id": st.none() | WIDE,
        "closed_date": st.none() | MOMENT,
        "owner": st.none() | XML_TEXT.filter(bool),
        "content_license": st.none() | st.sampled_from(["CC BY-SA 2.5", "CC BY-SA 4.0"]) | XML_TEXT.filter(bool),
    }
)
ATTRIBUTES = {
    "Id": "question_id",
    "CreationDate": "creation_date",
    "Score": "score",
    "ViewCount": "view_count",
    "Body": "body_html",
    "Title": "title",
    "AnswerCount": "answer_count",
    "AcceptedAnswerId": "accepted_answer_id",
    "ClosedDate": "closed_date",
    "ContentLicense": "content_license",
}
NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;", "'": "&apos;"}


class Spelling:
    """One of the ways to write a row."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def row(self, values: Mapping[str, Any]) -> bytes:
        attributes = self._attributes(values)
        self._random.shuffle(attributes)
        spaces = self._random.choice([" ", " ", "\t", "\r\n  ", "  "])
        end = self._random.choice(["/>", " />", "\n/>"]) + self._random.choice(["", "\n", "\r\n  ", "\t"])
        return ("<row" + "".join(spaces + attribute for attribute in attributes) + end).encode()

    def _attributes(self, values: Mapping[str, Any]) -> list[str]:
        texts = {name: self._text(values[column]) for name, column in ATTRIBUTES.items()}
        texts["Tags"] = self._tags(values["tags"])
        owner = self._random.choice(["OwnerUserId", "OwnerDisplayName"])
        texts[owner] = values["owner"] or ""
        if owner == "OwnerUserId":
            texts["OwnerDisplayName"] = "someone"
        is_told = {name: bool(text) or self._random.random() < 0.5 for name, text in texts.items()}
        texts = {name: text for name, text in texts.items() if is_told[name]} | {"PostTypeId": "1", "Other": "1<2"}
        if values["owner"] is None:
            texts.pop("OwnerDisplayName", None)
        plain = ("Id", "PostTypeId", *(name for name in ATTRIBUTES if name.endswith(("Date", "Count", "Score", "Id"))))
        return [f"{name}={self._quoted(text, name in plain)}" for name, text in texts.items()]

    def _text(self, value: Any) -> str:
        if isinstance(value, datetime.datetime):
            written = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return written.removesuffix(".000") if self._random.random() < 0.5 else written
        return "" if value is None else str(value)

    def _tags(self, tags: list[str]) -> str:
        if self._random.random() < 0.5:
            return "".join(f"<{tag}>" for tag in tags)
        return "|" + "".join(f"{tag}|" for tag in tags) if tags else ""

    def _quoted(self, text: str, is_plain: bool) -> str:
        quote = self._random.choice("\"'")
        return quote + "".join(c if is_plain else self._character(c, quote) for c in text) + quote

    def _character(self, character: str, quote: str) -> str:
        number = ord(character)
        decimal, lower, upper = f"&#{number};", f"&#x{number:x};", f"&#x{number:04X};"
        if character in "\t\n\r":
            return self._random.choice([decimal, lower, upper])
        ways = [decimal, lower, upper, NAMED.get(character, character)]
        if character not in "<&" + quote:
            ways += [character] * 4
        return self._random.choice(ways)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(QUESTION, min_size=1, max_size=4, unique_by=lambda question: question["question_id"]),
    seed=st.integers(0, 2**32),
)
def test_any_question_is_read_back_as_it_was_written(values: list[dict[str, Any]], seed: int) -> None:
    spelling = Spelling(seed)
    written = b"".join(map(spelling.row, values))

    contents = read(document(written), posts_format(PostChoice()))

    assert contents.tables["questions"].to_pylist() == sorted(values, key=lambda question: question["question_id"])
    assert contents.counts["rejects"] == 0


@settings(max_examples=100, deadline=None)
@given(values=QUESTION, seed=st.integers(0, 2**32))
def test_the_spellings_of_dumps_are_all_read_the_fast_way(values: dict[str, Any], seed: int) -> None:
    narrow = {"view_count": 5, "accepted_answer_id": None}  # numbers of 19 digits are left to the slow way
    written = np.frombuffer(Spelling(seed).row({**values, **narrow}), np.uint8)

    parsed = parse_plain_rows(written, post_layout(PostChoice()))

    assert (len(parsed.starts), len(parsed.odd)) == (1, 0)


@pytest.mark.parametrize("name", ["Title", "Tags", "OwnerUserId", "OwnerDisplayName", "ContentLicense"])
def test_texts_are_read_the_fast_way_up_to_their_limit(name: str) -> None:
    def parsed(length: int) -> tuple[int, int]:
        written = b'<row Id="1" PostTypeId="1" %b="%b" />' % (name.encode(), b"x" * length)
        rows = parse_plain_rows(np.frombuffer(written, np.uint8), post_layout(PostChoice()))
        return len(rows.starts), len(rows.odd)

    assert parsed(MAXIMUM_TEXT) == (1, 0)
    assert parsed(MAXIMUM_TEXT + 1) == (0, 1)


# Whatever the bytes are, the fast way and the slow way say the same


NEEDED = {
    "posts": [(b"Id", b"%d"), (b"PostTypeId", b"1"), (b"ParentId", b"3")],
    "postlinks": [(b"PostId", b"%d"), (b"RelatedPostId", b"1"), (b"LinkTypeId", b"3")],
}
LATER_NEEDED = [(name, b"2" if name == b"PostTypeId" else value) for name, value in reversed(NEEDED["posts"])]
WRITTEN = {
    "posts": b"""<row PostTypeId="2" Id="%d" ParentId='3' Body="&#xE9;&lt;" Score="1"/>\n"""
    b"""<row CreationDate="2012-03-06T19:06:05.667" Tags='|a|' Id="1%d" PostTypeId="1" />\n""",
    "postlinks": b"""<row Id="1" PostId='%d' CreationDate="2012-03-06T19:06:05" RelatedPostId="2" LinkTypeId="3"/>\n""",
}


@pytest.mark.parametrize(
    ("name", "attribute"), [(name, attribute) for name in FORMATS for attribute in NAMES[FORMATS[name].root]]
)
def test_fast_and_slow_read_the_same_in_every_odd_value(name: str, attribute: bytes) -> None:
    root = FORMATS[name].root
    rows = [
        b"<row" + b"".join(b' %b="%b"' % other for other in needed if other[0] != attribute) + end
        for needed in (NEEDED[root], LATER_NEEDED if root == "posts" else NEEDED[root][::-1])
        for value in NAMES[root][attribute]
        for end in (b' %b="%b"/>\n' % (attribute, value), b" %b='%b' />" % (attribute, value))
    ]

    assert_fast_is_slow(b"".join(row.replace(b"%d", b"%d" % number) for number, row in enumerate(rows)), FORMATS[name])


@pytest.mark.parametrize("name", FORMATS)
def test_fast_and_slow_read_the_same_with_every_odd_piece_at_every_place(name: str) -> None:
    written = WRITTEN[FORMATS[name].root]
    places = [place for place in range(len(written)) if written[place - 1 : place] != b"%"]
    rows = (written[:place] + piece + written[place:] for place in places for piece in ODD_PIECES)

    numbered = b"".join(row.replace(b"%d", b"%d" % number) for number, row in enumerate(rows))

    assert_fast_is_slow(numbered, FORMATS[name])


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**64), name=st.sampled_from(list(FORMATS)))
def test_fast_and_slow_read_the_same_in_any_bytes(seed: int, name: str) -> None:
    assert_fast_is_slow(Mangler(seed, FORMATS[name].root).rows(), FORMATS[name])


@settings(max_examples=100, deadline=None)
@given(content=st.lists(st.sampled_from([*ODD_PIECES, *ODD_TEXTS]) | st.binary(max_size=5), max_size=30).map(b"".join))
def test_fast_and_slow_read_the_same_in_mere_noise(content: bytes) -> None:
    assert_fast_is_slow(b"<row " + content, FORMATS["questions and answers"])


# Comments and instructions may hide rows, and so may what only looks like them
HIDING = [b"<!--", b"-->", b"<!-- a -->", b"<?a", b"?>", b"<?a b?>", b"--", b"/>", b"</row>", b"<!---->", b"<!-->"]
HIDDEN = [*HIDING, b" ", b"\n", b"x", b'<row Id="1" PostTypeId="1" />', b'<row Id="2" PostTypeId="2" ParentId="1"/>']
HIDDEN += [
    b'<row Id="3" PostTypeId="1">',
    b'<row Id="4" Title="--> ?>" PostTypeId="1"/>',
    b"<row Id='5' Body='",
    b"'/>",
]


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(st.sampled_from(HIDDEN), max_size=25), name=st.sampled_from(list(FORMATS)))
def test_fast_and_slow_read_the_same_where_comments_hide_rows(pieces: list[bytes], name: str) -> None:
    assert_fast_is_slow(b"".join(pieces), FORMATS[name])
