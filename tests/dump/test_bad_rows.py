"""Bad input of every kind: what becomes of it, and that the good rows around it arrive.

Each case is read as ingest does, in one segment and in many, and the slow way.
"""

import datetime
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xml_contents import DECLARATION, answer, comparable, document, link, question, read, read_slowly, row

from dupq.dump import posts, xml_files
from dupq.dump.parsing import Format, ParsedRows
from dupq.dump.xml_files import _names_of
from dupq.errors import DupqError

QUESTIONS = Format("posts")
WITH_ANSWERS = Format("posts", answers=True)
LINKS = Format("links")

BEFORE = question(
    1, Title="Tom & <Ann>", Body="<p>é😀</p>\n", Tags="<a><b>", Score=-3, CreationDate="2012-03-06T19:06:05.667"
)
AFTER = question(3, Title="after", Body="it", Tags="|c|", OwnerUserId=5, AcceptedAnswerId=4, ViewCount=6)
LINKS_BEFORE, LINKS_AFTER = link(1, 3, CreationDate="2012-03-06T19:06:05"), link(3, 1, 1)

FORBIDDEN = "a character that XML forbids"
BROKEN = "not well-formed"
NO_UTF8 = "not UTF-8"
OUTSIDE = "text outside rows"


@pytest.fixture(autouse=True)
def _small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "MAXIMUM_BODY", 2_000)


def body(content: bytes) -> bytes:
    return b'<row Id="2" PostTypeId="1" Body="' + content + b'" />\n'


def every_way(content: bytes, file_format: Format) -> ParsedRows:
    """Return what is read, after checking that segments and the slow reader give the same."""
    contents = read(content, file_format)
    smallest = max(1, len(content) // 10_000)  # of a long row a byte at a time would take seconds
    others = (read(content, file_format, smallest), read(content, file_format, 64), read_slowly(content, file_format))
    for other in others:
        assert comparable(other) == comparable(contents)
    return contents


def between_good_rows(bad: bytes, file_format: Format = QUESTIONS) -> ParsedRows:
    """Return what is read of `bad` between good rows, after checking that these are unchanged."""
    good = (LINKS_BEFORE, LINKS_AFTER) if file_format is LINKS else (BEFORE, AFTER)
    contents = every_way(document(good[0] + bad + good[1], file_format.root), file_format)
    alone = read(document(good[0] + good[1], file_format.root), file_format)
    table, expected = (found.tables[file_format.tables[0]].to_pylist() for found in (contents, alone))
    assert len(expected) == 2
    assert [values for values in table if values in expected] == expected
    return contents


def counts(contents: ParsedRows, good: int = 2) -> dict[str, int]:
    """Return the counts without those of the good rows."""
    table = "links" if "links" in contents.tables else "questions"
    found = dict(contents.counts)
    found[table] -= good
    return {name: count for name, count in found.items() if count and name != "rows"}


# Rows that are rejected

REJECTED: dict[str, tuple[bytes, list[str]]] = {
    # no XML
    "a row that is not closed": (b'<row Id="2" PostTypeId="1" Body="x">\n', [BROKEN]),
    "a quote missing at the end": (b'<row Id="2" PostTypeId="1" Body="x />\n', [BROKEN]),
    "quotes that do not match": (b'<row Id="2" PostTypeId="1" Body="x\' />\n', [BROKEN]),
    "a reference to nothing in a bad row": (b'<row Id="2" x="&#' + b"9" * 5_000 + b';" />\n', [BROKEN]),
    "an attribute twice": (b'<row Id="2" PostTypeId="1" Id="3" />\n', [BROKEN]),
    "a raw tag in a value": (body(b"a <b>c</b>"), [BROKEN]),
    "a raw quote in a value": (body(b'say "hi"'), [BROKEN]),
    "a raw ampersand": (body(b"a & b"), [BROKEN]),
    "a reference with a number that is none": (body(b"&#x4G;"), [BROKEN]),
    "an entity of HTML": (body(b"a&nbsp;b"), [BROKEN]),
    # characters
    "a lone continuation byte": (body(b"a\x80b"), [NO_UTF8]),
    "a surrogate": (body(b"\xed\xa0\x80\xed\xb0\x80"), [NO_UTF8]),
    "bytes that are no UTF-8 in a value that is not read": (b'<row Id="2" PostTypeId="1" X="\xff" />\n', [NO_UTF8]),
    "NULs of a disk": (body(b"a\x00\x00b"), [FORBIDDEN]),
    "a forbidden character in a row that is no XML besides": (body(b"a&#1;&nbsp;"), [FORBIDDEN]),
    "a forbidden character between attributes": (b'<row Id="2" \x01 PostTypeId="1" />\n', [FORBIDDEN]),
    "a forbidden character behind a row": (body(b"a&#1;").strip() + b"\x01\n", [OUTSIDE]),
    "a reference that is 65 in 32 bits": (body(b"&#4294967361;"), [BROKEN]),
    # values
    "no Id": (b'<row PostTypeId="1" Title="x" />\n', ["no Id"]),
    "an Id that is no number": (question("x7"), ["Id not a number"]),
    "an Id in Arabic digits": (question("٧"), ["Id not a number"]),
    "a negative Id": (question(-7), ["Id not a number"]),
    "an Id of 5,000 digits": (question("9" * 5_000), ["Id not a number"]),
    "an Id beyond 2**48": (question(2**48), ["Id not a number"]),
    "no PostTypeId": (row(Id=2, Title="x"), ["no PostTypeId"]),
    "a row without attributes": (b"<row />\n", ["no PostTypeId"]),
    "a body over the limit": (body(b"x" * 2_001), ["Body of more than 2,000 bytes"]),
    "a date that is no date": (question(2, CreationDate="yesterday"), ["CreationDate not a date"]),
    "the 30th of February": (question(2, CreationDate="2024-02-30T00:00:00"), ["CreationDate not a date"]),
    "the year 0 elsewhere": (question(2, CreationDate="0001-01-01T00:00:00+01:00"), ["CreationDate not a date"]),
    "its zone twice": (question(2, CreationDate="2012-03-06T21:06:05+02:00 UTC"), ["CreationDate not a date"]),
    "a date of 41 characters": (question(2, ClosedDate="1" * 41), ["ClosedDate not a date"]),
    "a score that is no number": (question(2, Score="many"), ["Score not a number"]),
    "a score beyond 32 bits": (question(2, Score=2**31), ["Score not a number"]),
    "views beyond 64 bits": (question(2, ViewCount=2**63), ["ViewCount not a number"]),
    # what is no row
    "text between rows": (b"some text\n", [OUTSIDE]),
    "bytes between rows": (b"\x00\xff\n", [OUTSIDE]),
    "CDATA between rows": (b"<![CDATA[ text ]]>\n", [OUTSIDE]),
    "declarations between rows": (b'<!DOCTYPE row [<!ENTITY a "b">]>\n', [OUTSIDE]),
    "a second dump": (b"</posts><?xml version='1.0'?><posts>\n", [OUTSIDE]),
    "a row in a row": (b'<row Id="2" PostTypeId="5"><row Id="4" PostTypeId="5" /></row>\n', [BROKEN, OUTSIDE]),
}


def test_a_bad_row_is_rejected_with_its_reason_and_costs_no_other() -> None:
    others = {"a row in a row": {"other_posts": 1}}
    others["a forbidden character behind a row"] = {"questions": 1, "forbidden_characters": 1}
    for name, (bad, reasons) in REJECTED.items():
        contents = between_good_rows(bad)
        assert contents.rejects.column("reason").to_pylist() == reasons, name
        assert counts(contents) == {"rejects": len(reasons)} | others.get(name, {}), name


def test_a_reject_says_where_the_bad_row_stands_and_how_it_begins() -> None:
    contents = [document(BEFORE + bad + AFTER) for bad, _ in REJECTED.values()]
    rejects = [(reject, content) for content in contents for reject in read(content, QUESTIONS).rejects.to_pylist()]
    for reject, content in rejects:
        there = content[reject["position"] :]
        assert reject["excerpt"] == there[:800].decode("utf-8", "replace")[: len(reject["excerpt"])]
        assert len(reject["excerpt"]) == 200 or AFTER[:20].strip() not in reject["excerpt"].encode()
        assert reject["source"] == "a.com/Posts.xml"


def test_a_row_of_more_than_8_mib_is_rejected_and_the_parser_takes_all_others() -> None:
    empty = b'<row Id = "2" PostTypeId="5" Body="" />'  # not plain: it is parsed
    longest = empty.replace(b'""', b'"%b"' % (b"x" * (xml_files.MAXIMUM_ROW - len(empty))))
    contents = read(document(BEFORE.strip() + longest + longest.replace(b" />", b"  />") + AFTER.strip()), QUESTIONS)
    assert contents.rejects.column("reason").to_pylist() == ["longer than 8 MiB"]
    assert counts(contents) == {"other_posts": 1, "rejects": 1}


def test_what_is_outside_values_is_remembered_for_plain_rows_only() -> None:
    """Else a dump with single quotes would fill the memory with its bodies."""
    before = _names_of.cache_info().currsize
    rows = [b"  <row Id=\"%d\" PostTypeId='1' Body='%s'/>" % (number, b"x" * 1_500) for number in range(50)]
    assert read(document(b"".join(rows)), QUESTIONS).counts["questions"] == 50
    assert _names_of.cache_info().currsize <= before + 1


@pytest.mark.parametrize("stray", [b"text\n", b'<rw Id="9"/>\n', b"<!-- -->x\n", b"\x00"])
def test_what_stands_before_the_first_row_is_rejected_too(stray: bytes) -> None:
    contents = every_way(document(stray + BEFORE), QUESTIONS)
    assert counts(contents, good=1) == {"rejects": 1}


FORBIDDEN_CHARACTERS = [
    *(b"\x00", b"\x08", b"\xef\xbf\xbe", b"\xef\xbf\xbf"),  # raw, with U+FFFE and U+FFFF
    *(b"&#0;", b"&#1;", b"&#x0E;", b"&#x000000000000B;", b"&#xFFFE;", b"&#xD83D;", b"&#x110000;"),
]


@pytest.mark.parametrize("character", FORBIDDEN_CHARACTERS)
def test_a_character_that_xml_forbids_costs_itself_and_not_the_question(character: bytes) -> None:
    clean = body(b"a&#233;\tb&#xD;") + question(4, Title="x", Tags="<a>", Score=7)
    odd = clean.replace(b"\tb", character + b"\tb" + character).replace(b'Score="7"', b'Score="7%b"' % character)
    odd += row(Id=5, PostTypeId=5, Body="x").replace(b"x", character)
    for change in ((b"", b""), (b" />", b"></row><!-- a -->"), (b'"', b"'")):
        contents = between_good_rows(odd.replace(*change) if change[0] else odd)
        assert contents.tables == between_good_rows(clean).tables
        assert counts(contents) == {"questions": 2, "other_posts": 1, "forbidden_characters": 4}


TEXTS = ["Title", "Tags", "OwnerUserId", "OwnerDisplayName", "ContentLicense"]
LONGEST = [*((name, b"x" * 65_536, "65,536") for name in TEXTS), ("Tags", b"&amp;" * 65_536, "65,536")]


@pytest.mark.parametrize(
    ("name", "content", "most"),
    [*LONGEST, ("Body", b"x" * 2_000, "2,000"), ("Body", "é".encode() * 1_000, "2,000")],
)
def test_a_text_may_have_so_many_bytes_and_no_more(name: str, content: bytes, most: str) -> None:
    written = b'<row Id="2" PostTypeId="1" %b="%b" />\n'
    rejected = between_good_rows(written % (name.encode(), content + b"x"))
    assert counts(between_good_rows(written % (name.encode(), content))) == {"questions": 1}
    assert counts(rejected) == {"rejects": 1}
    assert rejected.rejects.column("reason").to_pylist() == [f"{name} of more than {most} bytes"]
    assert len(rejected.rejects.column("excerpt")[0].as_py()) == 200


@pytest.mark.parametrize("name", ["Title", "CommentCount"])
def test_a_text_that_is_not_read_may_be_as_long_as_it_likes(name: str) -> None:
    of_answer = b'<row Id="2" PostTypeId="2" ParentId="1" %b="%b" />\n' % (name.encode(), b"x" * 70_000)
    assert counts(between_good_rows(of_answer, WITH_ANSWERS)) == {"answers": 1}


# Comments


@pytest.mark.parametrize("comment", [b"<!-- rows follow -->", b"<?rows follow?>\r\n", b" <!-- a --> <!-- b -->"])
def test_a_comment_before_the_first_row_is_no_row(comment: bytes) -> None:
    assert counts(every_way(document(comment + BEFORE), QUESTIONS), good=1) == {}


# Rows that are left out, and counted

COUNTED: dict[str, tuple[bytes, Format, dict[str, int]]] = {
    "an answer": (answer(2, 1), QUESTIONS, {"other_posts": 1}),
    "a wiki": (row(Id=2, PostTypeId=5), QUESTIONS, {"other_posts": 1}),
    "a post type that is no number": (row(Id=2, PostTypeId="question"), QUESTIONS, {"other_posts": 1}),
    "an answer with a body over the limit": (answer(2, 1, Body="x" * 3_000), QUESTIONS, {"other_posts": 1}),
    "fabricated posts": (question(1000000001) + answer(1000000010, 1), WITH_ANSWERS, {"fabricated": 2}),
    "a question before the fabricated one": (question(1000000000), QUESTIONS, {"questions": 1}),
    "an answer that is asked for": (answer(2, 1), WITH_ANSWERS, {"answers": 1}),
    "an answer without a question": (row(Id=2, PostTypeId=2), WITH_ANSWERS, {"rejects": 1}),
    "an answer with the id of a question": (answer(1, 3), WITH_ANSWERS, {"answers": 1}),
    "an id twice": (question(2) + question(2), QUESTIONS, {"questions": 1, "duplicate_ids": 1}),
    "an answer twice": (answer(2, 1) + answer(2, 3), WITH_ANSWERS, {"answers": 1, "duplicate_ids": 1}),
}


def test_a_row_that_is_left_out_is_counted_as_what_it_is() -> None:
    for name, (content, file_format, expected) in COUNTED.items():
        assert counts(between_good_rows(content, file_format)) == expected, name


def test_of_rows_with_one_id_the_last_counts() -> None:
    same = [question(2, Title=title) for title in ("first", "second", "last")]
    slow = b'<row Id = "2" PostTypeId="1" Title="slowly read" />\n'
    for rows, title in ((same, "last"), ([*same, slow], "slowly read"), ([slow, *same], "last")):
        contents = between_good_rows(b"".join(rows))
        assert contents.tables["questions"].column("title").to_pylist() == ["Tom & <Ann>", title, "after"]
        assert counts(contents) == {"questions": 1, "duplicate_ids": len(rows) - 1}


def test_a_broken_row_does_not_take_the_place_of_a_good_one_with_its_id() -> None:
    contents = between_good_rows(question(2, Title="good") + question(2, Score="x") + b'<row Id="2" broken />\n')
    assert contents.tables["questions"].column("title").to_pylist()[1] == "good"


# Links

BAD_LINKS = {
    "no PostId": (row(RelatedPostId=1, LinkTypeId=1), "no PostId"),
    "a negative RelatedPostId": (link(1, -1), "RelatedPostId not a number"),
    "a LinkTypeId that is no number": (link(1, 2, "duplicate"), "LinkTypeId not a number"),
    "a broken link": (b'<row PostId="1" RelatedPostId="2" LinkTypeId=3 />\n', BROKEN),
    "a post among links": (question(7), "no PostId"),
}


def test_a_bad_link_is_rejected_with_its_reason() -> None:
    for name, (bad, reason) in BAD_LINKS.items():
        contents = between_good_rows(bad, LINKS)
        assert contents.rejects.column("reason").to_pylist() == [reason], name
        assert counts(contents) == {"rejects": 1}


# Files that are refused

LAUGHS = b'<!DOCTYPE posts [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>\n'
OUTER = b'<!DOCTYPE posts [<!ENTITY e SYSTEM "file:///etc/hostname">]>\n'
NO_DUMP = "no Stack Exchange dump: expected <posts>, found "
REFUSED_DECLARATION = "refused, for dumps have no DOCTYPE or ENTITY declaration"
CUT_SHORT = "cut short: it does not end with </posts>"
WIDE = "encoded in UTF-16 or UTF-32; dumps are UTF-8"

UNDECLARED, END = document(body(b"&c;")).removeprefix(DECLARATION), len(document(BEFORE))

REFUSED: dict[str, tuple[bytes, str]] = {
    "a file cut in a row": (document(BEFORE + AFTER)[:-30], CUT_SHORT),
    "a file cut in its last tag": (document(BEFORE)[:-1], CUT_SHORT),
    "text after the end": (document(BEFORE) + b"x", f"'x' after </posts>, at byte {END:,}"),
    "rows behind an empty root": (DECLARATION + b"<posts />" + BEFORE, CUT_SHORT),
    "NULs behind the end": (document(BEFORE) + b"\0" * 9, f"NUL bytes after </posts>, at byte {END:,}"),
    "NULs of a full disk": (document(BEFORE + AFTER)[:-30] + b"\0" * 100, CUT_SHORT + ", but with NUL bytes"),
    "NULs after an empty root": (b"<posts />\0", "NUL bytes after <posts/>, at byte 9"),
    "entities that grow without bound": (LAUGHS + UNDECLARED, REFUSED_DECLARATION),
    "another file's": (b'<!DOCTYPE posts SYSTEM "http://127.0.0.1/x.dtd">' + UNDECLARED, REFUSED_DECLARATION),
    "UTF-16": (document(BEFORE).decode("utf-8-sig").encode("utf-16"), WIDE),
    "UTF-16 without a mark": (document(BEFORE).decode("utf-8-sig").encode("utf-16-be"), WIDE),
    "another encoding": (
        document(BEFORE).replace(b"utf-8", b"latin1"),
        "declares the encoding 'latin1'; dumps are UTF-8",
    ),
    "another root": (document(BEFORE, "comments"), NO_DUMP + "<comments>"),
    "links in the place of posts": (document(LINKS_BEFORE, "postlinks"), NO_DUMP + "<postlinks>"),
    "rows without a root": (BEFORE.strip() + AFTER, NO_DUMP + "<row>"),
    "an empty file": (b"", NO_DUMP + "an empty file"),
    "a table": (b"Id,Title\n1,x\n", NO_DUMP + r"'Id,Title\n1,x\n'"),
    "a comment that does not end": (b"<!-- no end <posts>", NO_DUMP + "'<!-- no end <posts>'"),
    "other bytes": (b"PK\x03\x04\xff\x1b[31m", NO_DUMP + r"'PK\x03\x04\ufffd\x1b[31m'"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_refused_by_name(content: bytes, message: str) -> None:
    for size in (1, 64, 1 << 24):
        with pytest.raises(DupqError, match=f"^{re.escape(f'a.com/Posts.xml: {message}')}$"):
            read(content, QUESTIONS, size)


@pytest.mark.parametrize("content", [b"<posts></posts>", b"<posts/>", b"<posts />\n", document(b"")])
def test_a_dump_without_rows_is_a_dump(content: bytes) -> None:
    contents = every_way(content, QUESTIONS)
    assert not any(contents.counts.values())
    assert contents.tables["questions"].num_rows == contents.rejects.num_rows == 0


@pytest.mark.parametrize("declared", [LAUGHS, OUTER])
def test_entities_declared_between_rows_are_never_replaced(declared: bytes) -> None:
    contents = between_good_rows(declared + body(b"&a;&c;&e;"))
    assert contents.rejects.column("reason").to_pylist() == [OUTSIDE, BROKEN]
    assert contents.counts["questions"] == 2


# Dialects that are all the same question

MOMENT = datetime.datetime(2012, 3, 6, 19, 6, 5, 667_000, tzinfo=datetime.UTC)
WHOLE = {
    "question_id": 2,
    "title": "A & B",
    "body_html": "<p>é</p>\nx",
    "tags": ["c++", "graph-theory"],
    "creation_date": MOMENT,
    "score": -3,
    "view_count": 7,
    "answer_count": 1,
    "accepted_answer_id": 9,
    "closed_date": MOMENT.replace(microsecond=0),
    "owner": "5",
    "content_license": "CC BY-SA 4.0",
    "own_id": None,  # only tables from elsewhere have these
    "url": None,
    "scope": [],
}
WRITTEN = (
    '  <row Id="2" PostTypeId="1" AcceptedAnswerId="9" CreationDate="2012-03-06T19:06:05.667" Score="-3" '
    'ViewCount="7" Body="&lt;p&gt;é&lt;/p&gt;&#xA;x" OwnerUserId="5" Title="A &amp; B" '
    'Tags="&lt;c++&gt;&lt;graph-theory&gt;" AnswerCount="1" CommentCount="0" ClosedDate="2012-03-06T19:06:05" '
    'ContentLicense="CC BY-SA 4.0" />\n'
).encode()


def replaced(*changes: tuple[bytes, bytes]) -> bytes:
    written = WRITTEN
    for old, new in changes:
        assert old in written
        written = written.replace(old, new)
    return written


def without(*names: bytes) -> bytes:
    written = WRITTEN
    for name in names:
        written, found = re.subn(rb' %b="[^"]*"' % name, b"", written)
        assert found == 1
    return written


MIGRATED = dict.fromkeys(["accepted_answer_id", "score", "owner"])
DIALECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "as dumps are": (WRITTEN, {}),
    "newer tags": (replaced((b"&lt;c++&gt;&lt;graph-theory&gt;", b"|c++|graph-theory|")), {}),
    "tags without outer bars": (replaced((b"&lt;c++&gt;&lt;graph-theory&gt;", b"c++|graph-theory")), {}),
    "raw greater-than signs": (replaced((b"&gt;", b">")), {}),
    "decimal line breaks": (replaced((b"&#xA;", b"&#10;")), {}),
    "letters as hexadecimal references": (replaced(("é".encode(), b"&#xE9;")), {}),
    "single quotes": (replaced((b'"', b"'")), {}),
    "rows over several lines": (replaced((b" Body", b"\n  Body"), (b" Title", b"\r\n\tTitle")), {}),
    "spaces about the equals signs": (replaced((b'="', b' = "')), {}),
    "an end tag": (replaced((b" />", b"></row>")), {}),
    "content in a row": (replaced((b" />", b">\n<x/> text</row>")), {}),
    "unknown attributes": (replaced((b" Id=", b' New="&lt;" x-y.z="1" Id=')), {}),
    "a namespace": (replaced((b" Id=", b' xmlns:x="urn:x" x:Id="3" Id=')), {}),
    "an Id with zeros": (replaced((b' Id="2"', b' Id="002"')), {}),
    "a raw tab, which XML reads as a space": (replaced((b"&#xA;x", b"\tx")), {"body_html": "<p>é</p> x"}),
    "a carriage return by reference": (replaced((b"&#xA;x", b"&#xD;x")), {"body_html": "<p>é</p>\rx"}),
    "DEL and C1": (replaced((b"&#xA;x", b"\x7f\xc2\x85&#x80;")), {"body_html": "<p>é</p>\x7f\x85\x80"}),
    "no texts": (re.sub(rb' (Title|Body|Tags)="[^"]*"', b"", WRITTEN), {"title": "", "body_html": "", "tags": []}),
    "a deleted owner": (replaced((b'OwnerUserId="5"', b'OwnerDisplayName="user5"')), {"owner": "user5"}),
    "a migrated question": (without(b"AcceptedAnswerId", b"Score", b"OwnerUserId"), MIGRATED),
    "a date with one digit": (replaced((b".667", b".6")), {"creation_date": MOMENT.replace(microsecond=600_000)}),
    "a date with seven digits": (replaced((b".667", b".6679999")), {}),
    "a date as BigQuery has it": (replaced((b"T19:06:05.667", b" 19:06:05.667000 UTC")), {}),
    "a date of another zone": (replaced((b"T19:06:05.667", b"T21:06:05.667+02:00")), {}),
    "the least score": (replaced((b'"-3"', b'"-2147483648"')), {"score": -(2**31)}),
    "the most views": (replaced((b'"7"', b'"9223372036854775807"')), {"view_count": 2**63 - 1}),
    "empty numbers": (replaced((b'"-3"', b'""'), (b'"7"', b'""')), {"score": None, "view_count": None}),
    "a comment behind it": (WRITTEN + b"<!-- all is well -->\n", {}),
    "a processing instruction behind it": (WRITTEN + b"<?php echo 1 ?>\n", {}),
    "empty lines": (b"\n\n" + WRITTEN + b"\r\n \t\n", {}),
}


@pytest.mark.parametrize(("written", "changes"), DIALECTS.values(), ids=DIALECTS)
def test_a_question_in_any_dialect_is_the_same_question(written: bytes, changes: dict[str, Any]) -> None:
    contents = between_good_rows(written)
    assert contents.tables["questions"].to_pylist()[1] == WHOLE | changes
    assert counts(contents) == {"questions": 1}


@given(st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29), timezones=st.timezones()))
def test_dates_of_any_time_zone_are_cut_to_milliseconds(moment: datetime.datetime) -> None:
    contents = read(document(question(2, CreationDate=moment.isoformat())), QUESTIONS)
    (since_1970,) = contents.tables["questions"]["creation_date"].cast("int64").to_pylist()
    cut_off = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) - datetime.timedelta(milliseconds=since_1970)
    assert datetime.timedelta(0) <= cut_off < datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\xef\xbb\xbf", b""),
        (DECLARATION, b""),
        (DECLARATION, b"\xef\xbb\xbf"),
        (DECLARATION, b"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"),
        (b"\r\n", b"\n"),
        (b"\r\n", b"\r"),
        (DECLARATION, DECLARATION + b"\n<!-- CC BY-SA > 4.0\n--> <!---->\n"),
        (b"<posts>", b'<posts xmlns:xsi="urn:x">'),
        (b"</posts>", b"</posts >\r\n\n"),
    ],
)
def test_files_may_open_and_close_in_any_of_the_usual_ways(old: bytes, new: bytes) -> None:
    content = document(BEFORE + WRITTEN + AFTER)
    changed = content.replace(old, new)
    assert old in content
    assert every_way(changed, QUESTIONS).tables == every_way(content, QUESTIONS).tables
