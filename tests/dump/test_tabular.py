"""Question tables that are no XML: CSV, TSV and Parquet."""

import csv
import datetime
import decimal
import io
import itertools
import lzma
import pickle
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import py7zr
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from dupq.dump.archives.streams import UnpackLimits
from dupq.dump.fields import BadField
from dupq.dump.tabular import delimited
from dupq.dump.tabular.columns import DUMP_COLUMNS, Columns, locate, paragraphs, parse_columns, spelt_tags
from dupq.dump.tabular.delimited import read_delimited
from dupq.dump.tabular.parquet import read_row_group, row_groups
from dupq.dump.xml.links import link
from dupq.dump.xml.posts import FABRICATED_IDS, PostChoice, post
from dupq.dump.xml.rows import BrokenRow, Row
from dupq.errors import DupqError, SettingError

TITLES = parse_columns("id=id,title=title")
BAD_QUOTES = "quotes that do not match"
TIME = datetime.datetime(2012, 3, 6, 19, 6, 5, 667_000)
MILLISECONDS = 1_331_060_765_667

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=30)
ids_of_posts = st.integers(0, 2**40).filter(lambda number: number not in FABRICATED_IDS)
texts_of_lines = st.lists(texts, max_size=4).map("\n".join) | st.text('",\t\r\n ab', max_size=12)


class Pieces(io.RawIOBase):
    """A stream that gives `size` bytes at a time, like a slow pipe."""

    def __init__(self, content: bytes, size: int) -> None:
        self._rest = io.BytesIO(content)
        self._size = size

    def read(self, size: int = -1) -> bytes:
        return self._rest.read(min(size, self._size) if size >= 0 else self._size)


def read(content: bytes | str, columns: Columns | None = TITLES, separator: str = ",", **options: Any) -> list:
    raw = content.encode() if isinstance(content, str) else content
    return list(read_delimited(io.BytesIO(raw), "table", columns, separator, **options))


def titles(rows: list) -> list[tuple[str | None, str | None]]:
    return [(row.attributes.get("Id"), row.attributes.get("Title")) for row in rows if isinstance(row, Row)]


def rejects(rows: list) -> list[tuple[int, str]]:
    return [(row.position, row.reason) for row in rows if isinstance(row, BrokenRow)]


def error(content: bytes | str, columns: Columns | None = TITLES, separator: str = ",", **options: Any) -> str:
    with pytest.raises(DupqError) as caught:
        read(content, columns, separator, **options)
    return str(caught.value)


def question(attributes: dict[str, str]) -> dict[str, Any]:
    parsed = post(attributes, PostChoice())
    assert isinstance(parsed, tuple)
    return parsed[1]


@pytest.fixture
def parquet(tmp_path: Path) -> Iterator[Any]:
    """Writes columns to a Parquet file and reads its only row group."""

    def written(columns: dict[str, Any], wanted: str | None = None, table: Any = "posts", **options: Any) -> list:
        path = str(tmp_path / "table.parquet")
        pq.write_table(pa.table(columns), path, **options)
        named = None if wanted is None else parse_columns(wanted)
        return list(itertools.chain(*(read_row_group(path, n, named, table) for n in range(row_groups(path)))))

    return written


# --columns


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("id=id,heading=x", "there is no field 'heading'; there are id, title, body"),
        ("title=x", "no id"),
        ("id=x", "neither title nor body nor text"),
        ("id=x,score=y", "neither title nor body nor text"),
        ("id=x,title=y,id=z", "'id' is given twice"),
        ("id,title=y", "'id' names no column"),
        ("id=x,title=", "'title=' names no column"),
        ("", "'' names no column"),
        ("id=x,title=y,", "'' names no column"),
        ("id=x,body=y,text=z", "both body (HTML) and text (plain)"),
    ],
)
def test_wrong_columns_are_a_setting_error(text: str, named: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_columns(text)

    assert named in str(caught.value)
    assert caught.value.exit_code == 2


def test_columns_are_values() -> None:
    columns = parse_columns(" title = q=1 , id=key")

    assert columns == parse_columns("id=key,title=q=1")
    assert hash(columns) == hash(parse_columns("id=key,title=q=1"))
    assert pickle.loads(pickle.dumps(columns)) == columns
    assert columns.pairs == (("Id", "key"), ("Title", "q=1"))


def test_all_fields_become_attributes_of_the_dump() -> None:
    header = ["i", "t", "b", "g", "c", "s", "v", "n", "a", "d", "o", "l"]
    named = (
        "id=i,title=t,body=b,tags=g,creation_date=c,score=s,view_count=v,answer_count=n,accepted_answer_id=a,"
        "closed_date=d,owner=o,content_license=l"
    )
    values = ["7", "Why?", "<p>x</p>", "c++ graph-theory", "2012-03-06T19:06:05.667", "-3", "319", "2", "9.0"]
    line = ",".join([*values, "2012-03-07", "ann", "CC BY-SA"])

    (row,) = read(f"{','.join(header)}\n{line}\n", parse_columns(named))

    assert question(row.attributes) == {
        "question_id": 7,
        "title": "Why?",
        "body_html": "<p>x</p>",
        "tags": ["c++", "graph-theory"],
        "creation_date": MILLISECONDS,
        "score": -3,
        "view_count": 319,
        "answer_count": 2,
        "accepted_answer_id": 9,
        "closed_date": 1_331_078_400_000,
        "owner": "ann",
        "content_license": "CC BY-SA",
    }


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("<a><b>", "<a><b>"),
        ("|a|b|", "|a|b|"),
        ("a b\tc", "<a><b><c>"),
        ("machine learning, c++,,", "<machine learning><c++>"),
        ("one", "<one>"),
        (",", ""),
        ("operator<,a|b", "<operator><a b>"),
        ("c++|graph-theory", "<c++><graph-theory>"),
        ("['c++', 'graph-theory', \"it's\"]", "<c++><graph-theory><it's>"),
        ('["c++","a,b"]', "<c++><a,b>"),
        ("['c++' 'graph-theory']", "<c++><graph-theory>"),
        ("[c++, b]", "<c++><b>"),
        ("[]", ""),
    ],
)
def test_tags_of_foreign_tables_may_be_spelt_in_several_ways(text: str, spelt: str) -> None:
    assert spelt_tags(text) == spelt


def test_plain_text_becomes_paragraphs() -> None:
    assert paragraphs('a < b & c\nd\n \n\n"e"\r\n\r\nf\n') == '<p>a &lt; b &amp; c\nd</p>\n<p>"e"</p>\n<p>f</p>'
    (row,) = read('id,q\n1,"<b>\n\nx"\n', parse_columns("id=id,text=q"))
    assert row.attributes == {"Id": "1", "PostTypeId": "1", "Body": "<p>&lt;b&gt;</p>\n<p>x</p>"}


@pytest.mark.parametrize("header", ["id,question", "Id,title", "id,title ", "1,Why?"])
def test_a_header_without_a_named_column_is_refused(header: str) -> None:
    message = error(f"{header}\n1,Why?\n")

    assert message.startswith("table: column '")
    assert repr(header.split(",")[1]) in message


def test_the_columns_there_are_are_listed_printable_and_not_without_end() -> None:
    message = error(",".join(f"c{number}\x1b" for number in range(1000)))

    assert message.isprintable()
    assert message.endswith("'c19\\x1b' and 980 more")


def test_a_column_that_is_there_twice_is_refused_if_it_is_wanted() -> None:
    assert "column 'title' is there 2 times" in error("id,title,title\n")
    assert titles(read("id,title,x,x\n1,a,b,c\n")) == [("1", "a")]


def test_the_columns_of_a_dump_are_found_in_any_case_and_an_exact_match_comes_first() -> None:
    lower = locate(DUMP_COLUMNS["posts"], ["title", "POSTTYPEID", "id"], "table")
    exact = locate(DUMP_COLUMNS["posts"], ["id", "Id", "PostTypeId"], "table")

    assert dict(zip(lower.attributes, lower.places, strict=True)) == {"Id": 2, "PostTypeId": 1, "Title": 0}
    assert dict(zip(exact.attributes, exact.places, strict=True)) == {"Id": 1, "PostTypeId": 2}
    with pytest.raises(DupqError, match="column 'Id' is there 2 times"):
        locate(DUMP_COLUMNS["posts"], ["id", "ID", "PostTypeId"], "table")
    with pytest.raises(DupqError, match=r"'PostTypeId' is missing.*--columns"):
        locate(DUMP_COLUMNS["posts"], ["Id", "Title"], "table")


# CSV and TSV: what is read


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**12).map(str), texts_of_lines, texts_of_lines), max_size=8),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.booleans(),
    st.integers(1, 400),
)
def test_what_a_csv_writer_writes_is_read_back(
    rows: list[tuple[str, str, str]], separator: str, end: str, quoting: Any, has_mark: bool, piece: int
) -> None:
    if quoting == csv.QUOTE_MINIMAL and end == "\n":  # then Python's writer leaves a carriage return unquoted
        rows = [(number, title.replace("\r", ""), body.replace("\r", "")) for number, title, body in rows]
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([("id", "title", "body"), *rows])
    content = written.getvalue().encode("utf-8-sig" if has_mark else "utf-8")

    found = list(
        read_delimited(
            Pieces(content, piece), "table", parse_columns("id=id,title=title,body=body"), separator, maximum_row=2_000
        )
    )

    assert rejects(found) == []
    wanted = ("Id", "Title", "Body")
    assert [tuple(row.attributes.get(name, "") for name in wanted) for row in found] == rows
    assert all(row.content.startswith((row.attributes["Id"].encode(), b'"')) for row in found)


def test_positions_are_lines_and_blank_lines_are_no_rows() -> None:
    content = '\n\r\nid,title\n\n1,"a\n\nb"\n  \n2,c\r\n\r\n\n3,d'

    assert [row.position for row in read(content)] == [5, 9, 12]
    assert titles(read(content)) == [("1", "a\n\nb"), ("2", "c"), ("3", "d")]


def test_empty_fields_are_absent() -> None:
    (row,) = read('Id,PostTypeId,Title,Body,Score\n1,1,,"",\n', columns=None)

    assert row.attributes == {"Id": "1", "PostTypeId": "1"}


def test_links_and_posts_in_the_columns_of_a_dump_are_read() -> None:
    (row,) = read("Id,postid,relatedpostid,linktypeid,creationdate\n1,2,3.0,3,2012-03-06\n", None, table="links")
    (answer,) = read("ID,PostTypeId,ParentId,Body\n5,2,1.0,x\n", columns=None)

    assert link(row.attributes)["link_type"] == "duplicate"
    assert link(row.attributes)["related_id"] == 3
    (tagged,) = read('ID,PostTypeId,Tags\n6,1,"c++,a-b"\n', columns=None)

    assert question(tagged.attributes)["tags"] == ["c++", "a-b"]
    assert answer.attributes == {"Id": "5", "PostTypeId": "2", "ParentId": "1", "Body": "x"}


def test_a_table_of_nothing_but_a_header_has_no_rows() -> None:
    assert read("id,title") == read("id,title\n\n") == []


def test_quotes_inside_a_field_are_text() -> None:
    content = 'id\ttitle\n1\tWhat\'s the meaning of "Om"?\n2\t5" disk\n3\tsay "hi"\n'

    assert [title for _, title in titles(read(content, separator="\t"))] == [
        'What\'s the meaning of "Om"?',
        '5" disk',
        'say "hi"',
    ]


# CSV and TSV: what is broken


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"2", "1 fields where the header has 2"),
        (b"2,b,c", "3 fields where the header has 2"),
        (b'2,"b,c",d', "3 fields where the header has 2"),
        (b"2,b\xff", "not UTF-8"),
        (b'2,"b\xff\nc"', "not UTF-8"),
        (b"2,\xed\xa0\x80", "not UTF-8"),
        (b"2,b\0\0c", "NUL bytes"),
        (b'2,"open, with a comma', BAD_QUOTES),
        (b'2,"a "quoted, word" in it"', BAD_QUOTES),
        (b"2," + b"x" * 2_000, "longer than 1,000 bytes"),
        (b"x" * 1_000_000, "longer than 1,000 bytes"),
        (b'2,"' + b"x" * 2_000, "longer than 1,000 bytes"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_broken_row_costs_no_other(line: bytes, reason: str, end: bytes) -> None:
    lines = [b"id,title", b"1,a", line, b"3,c", b'4,"d"', b"5,e", b""]

    found = read(end.join(lines), maximum_row=1_000)

    assert titles(found) == [("1", "a"), ("3", "c"), ("4", "d"), ("5", "e")]
    assert rejects(found) == [(3, reason)]


def test_characters_that_xml_forbids_are_left_out_and_counted() -> None:
    found = read(b'id,title\n1,"a\0\xef\xbf\xbf"\n2,\x1b[31mb\t\n3,c\n')

    assert titles(found) == [("1", "a"), ("2", "[31mb\t"), ("3", "c")]
    assert [row.forbidden for row in found] == [2, 1, 0]


@pytest.mark.parametrize("header", ["id,title", '"id","title"', "\ufeff\n\nid,title"])
def test_lines_may_end_as_on_old_macs(header: str) -> None:
    rows = f'{header}\n1,"a\n\nb ""c"""\n\n2,d\n'

    assert read(rows.replace("\n", "\r")) == read(rows)
    assert titles(read(rows.replace("\n", "\r"))) == [("1", 'a\n\nb "c"'), ("2", "d")]
    assert titles(read('id,title\r1,"a\nb"\r2,d')) == [("1", "a\nb"), ("2", "d")]
    assert titles(read("id,title\r\n1,a\rb\r\n2,d")) == [("1", "a\rb"), ("2", "d")]


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text('",\t 1a', max_size=20).map(str.encode))
def test_no_line_whatever_costs_another_row(line: bytes) -> None:
    content = b"\n".join([b"id,title", b"1,a", line.replace(b"\n", b""), b"3,c", b"4,d", b""])

    found = titles(read(content, maximum_row=200))

    assert found[0] == ("1", "a")
    assert found[-2:] == [("3", "c"), ("4", "d")]
    assert len(found) <= 4


def test_a_quote_that_quotes_nothing_is_text_if_a_row_follows() -> None:
    content = 'id\ttitle\n1\t"All lives" or not?\n2\t"How do I\n3\t"start " it?\n\n4\t"say ""hi"""\n5\t"Last" one'

    found = read(content, separator="\t")

    assert titles(found) == [
        ("1", '"All lives" or not?'),
        ("2", '"How do I'),
        ("3", '"start " it?'),
        ("4", 'say "hi"'),
        ("5", '"Last" one'),
    ]


def test_a_field_of_several_lines_whose_end_cannot_be_known_is_not_taken_for_its_first_line() -> None:
    found = read('id,title,body\n1,a,"first\nsecond "bad" line\nthird"\n2,b,"x\ny"\n')

    assert titles(found) == [("2", "b")]
    assert rejects(found) == [
        (2, BAD_QUOTES),
        (3, "1 fields where the header has 3"),
        (4, "1 fields where the header has 3"),
    ]


def test_a_file_that_ends_within_quotes_loses_its_last_row_only() -> None:
    found = read('id,title\n1,a\n2,"cut o')

    assert (titles(found), rejects(found)) == ([("1", "a")], [(3, BAD_QUOTES)])


def test_quotes_that_swallow_rows_are_undone() -> None:
    found = read('id,title,body\n1,a,b\n2,"open,b\n3,c,b\n4,d,b"\n5,e,f\n')

    assert titles(found) == [("1", "a"), ("2", '"open'), ("3", "c"), ("4", "d"), ("5", "e")]


def test_a_row_of_several_lines_with_a_field_too_many_is_one_reject() -> None:
    found = read('id,title\n1,"a\nb\nc",d\n2,e\n')

    assert (titles(found), rejects(found)) == ([("2", "e")], [(2, "3 fields where the header has 2")])


def test_a_quote_that_is_never_closed_does_not_swallow_a_big_file() -> None:
    rows = [f"{number},question number {number}" for number in range(2, 50_000)]

    found = read("\n".join(["id,title", '1,"open, and on', *rows]), maximum_row=10_000)

    assert len(titles(found)) == len(rows)
    assert rejects(found) == [(2, BAD_QUOTES)]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(['1,"a', '"', "2,b", "", 'x"', '3,"c"', '"",', '4,"d ""e"', '"\r', "5,é"]), max_size=12),
    st.integers(1, 50),
)
def test_rows_do_not_depend_on_how_the_stream_is_cut_and_all_text_is_accounted_for(
    lines: list[str], piece: int
) -> None:
    content = "\n".join(["id,title", *lines]).encode()

    whole = read(content, maximum_row=30)

    cut = list(read_delimited(Pieces(content, piece), "table", TITLES, ",", maximum_row=30))
    assert cut == whole
    positions = [row.position for row in whole]
    assert positions == sorted(set(positions))
    text = "".join(row.content.decode() if isinstance(row, Row) else row.excerpt for row in whole)
    assert [c for c in text if not c.isspace()] == [c for c in "".join(lines) if not c.isspace()]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "an empty file"),
        (b"\xef\xbb\xbf", "an empty file"),
        (b"\n\r\n \n", "an empty file"),
        ("id,title\n".encode("utf-16"), "UTF-16 or UTF-32"),
        ("id,title\n".encode("utf-16-le"), "UTF-16 or UTF-32"),
        ("id,title\n".encode("utf-16-be"), "UTF-16 or UTF-32"),
        ("id,title\n".encode("utf-32"), "UTF-16 or UTF-32"),
        ("id,títle\n".encode("latin-1"), "names the columns is not UTF-8"),
        (b"x" * 2_000, "the first is longer than 1,000 bytes"),
        (b"id\ttitle\n1\ta\n", "'id\\ttitle'"),
    ],
)
def test_what_is_no_table_is_refused_by_name(content: bytes, named: str) -> None:
    message = error(content, maximum_row=1_000)

    assert message.startswith("table: ")
    assert named in message


@pytest.mark.parametrize("unit", [b"x", b'"', b'1,"a', b"\n", b'1,"a\n', b'""', b",", b'1,"\n\n\n', b"1,a\n"])
def test_memory_does_not_grow_with_the_file(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_PIECE", 1 << 12)
    content = b"id,title\n" + unit * (300_000 // len(unit))
    stream = io.BytesIO(content)

    tracemalloc.start()
    try:
        for _ in read_delimited(stream, "table", TITLES, ",", maximum_row=5_000):
            pass
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


# Parquet: what is read


def as_strings(ids: list[int], optional: list[int | None]) -> dict[str, Any]:
    return {
        "Id": pa.array([str(number) for number in ids], pa.string()),
        "AcceptedAnswerId": pa.array([None if n is None else str(n) for n in optional], pa.string()),
    }


def as_floats(ids: list[int], optional: list[int | None]) -> dict[str, Any]:
    return {
        "ID": pa.array(map(float, ids), pa.float64()),
        "acceptedanswerid": pa.array([float("nan") if n is None else float(n) for n in optional], pa.float64()),
    }


def as_float_strings(ids: list[int], optional: list[int | None]) -> dict[str, Any]:
    return {
        "Id": pa.array([f"{number}.0" for number in ids], pa.large_string()),
        "AcceptedAnswerId": pa.array(["" if n is None else f"{n}.0" for n in optional], pa.string()),
    }


def as_integers(ids: list[int], optional: list[int | None]) -> dict[str, Any]:
    return {
        "id": pa.array(ids, pa.uint64()),
        "acceptedAnswerId": pa.array(optional, pa.int64()).dictionary_encode(),
    }


def as_decimals(ids: list[int], optional: list[int | None]) -> dict[str, Any]:
    return {
        "Id": pa.array(map(decimal.Decimal, ids), pa.decimal128(38, 0)),
        "AcceptedAnswerId": pa.array(
            [None if n is None else decimal.Decimal(n) for n in optional], pa.decimal128(20, 2)
        ),
    }


NUMBERS = [as_strings, as_floats, as_float_strings, as_integers, as_decimals]
TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.string_view(),
    pa.binary_view(),
]


def text_column(values: list[str | None], data_type: pa.DataType) -> pa.Array:
    strings = pa.array(values, pa.string())
    return strings.dictionary_encode() if pa.types.is_dictionary(data_type) else strings.cast(data_type)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.lists(
        st.tuples(ids_of_posts, st.none() | st.integers(1, 2**40), st.none() | texts_of_lines, texts_of_lines),
        max_size=8,
    ),
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXT_TYPES),
    st.sampled_from(["zstd", "snappy", "none"]),
    st.booleans(),
)
def test_what_is_written_as_parquet_is_read_back(
    parquet: Any, rows: list[tuple], numbers: Any, text_type: pa.DataType, compression: str, is_dictionary: bool
) -> None:
    ids, accepted, names, bodies = ([*column] for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    columns = {
        **numbers(ids, accepted),
        "PostTypeId": pa.array([1] * len(rows), pa.int8()),
        "title": text_column(names, text_type),
        "BODY": text_column(bodies, text_type),
        "Unwanted": pa.array([{"a": 1}] * len(rows), pa.struct({"a": pa.int32()})),
    }

    found = parquet(columns, compression=compression, use_dictionary=is_dictionary, row_group_size=3)

    assert [row.position for row in found] == list(range(len(rows)))
    keys = ("question_id", "accepted_answer_id", "title", "body_html")
    questions = [question(row.attributes) for row in found]
    assert [tuple(values[key] for key in keys) for values in questions] == [
        (number, answer, name or "", body) for number, answer, name, body in rows
    ]


@pytest.mark.parametrize(
    "dates",
    [
        pa.array([TIME, None], pa.timestamp("ms")),
        pa.array([TIME, None], pa.timestamp("ns")),
        pa.array([TIME, None], pa.timestamp("us", tz="UTC")),
        pa.array([MILLISECONDS, None], pa.timestamp("ms", tz="America/New_York")),
        pa.array(["2012-03-06T19:06:05.667", ""]),
        pa.array(["2012-03-06 20:06:05.667000+01:00", None]),
        pa.array(["2012-03-06 19:06:05.667 UTC", None]),
    ],
    ids=lambda dates: str(dates.type),
)
def test_dates_of_all_types_are_the_same(parquet: Any, dates: pa.Array) -> None:
    found = parquet({"Id": [1, 2], "PostTypeId": ["1", "1"], "CreationDate": dates})

    assert [question(row.attributes)["creation_date"] for row in found] == [MILLISECONDS, None]


def test_whole_seconds_and_days_are_dates(parquet: Any) -> None:
    dates = {
        "CreationDate": pa.array([TIME.replace(microsecond=0)], pa.timestamp("s")),
        "ClosedDate": pa.array([TIME.date()], pa.date32()),
    }

    (row,) = parquet({"Id": [1], "PostTypeId": [1.0], **dates})

    assert question(row.attributes)["creation_date"] == 1_331_060_765_000
    assert question(row.attributes)["closed_date"] == 1_330_992_000_000


@pytest.mark.parametrize(
    "tags",
    [
        pa.array(["<c++><a-b>", None]),
        pa.array(["|c++|a-b|", ""]),
        pa.array(["c++,a-b", ""]),
        pa.array(["c++ a-b", None]).dictionary_encode(),
        pa.array([["c++", "a-b"], []]),
        pa.array([["c++", None, "a-b"], None], pa.large_list(pa.large_string())),
        pa.array([["c++", "a-b"], [None, None]], pa.list_(pa.string(), 2)),
        pa.array([[b"c++", b"a-b"], None]),
        pa.array([["c++", "a-b"], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ],
    ids=lambda tags: str(tags.type),
)
def test_tags_of_all_types_are_the_same(parquet: Any, tags: pa.Array) -> None:
    for found in (
        parquet({"Id": [1, 2], "PostTypeId": [1, 1], "Tags": tags}),
        parquet({"key": [1, 2], "q": ["", "x"], "labels": tags}, "id=key,title=q,tags=labels"),
    ):
        assert [question(row.attributes)["tags"] for row in found] == [["c++", "a-b"], []]


def test_a_foreign_parquet_table_is_read_by_its_columns(parquet: Any) -> None:
    found = parquet({"n": [3, 4], "a.b": ["x", None], "t": ["<", "y"]}, "id=n,title=a.b,text=t,owner=n")

    assert [row.attributes for row in found] == [
        {"Id": "3", "PostTypeId": "1", "Title": "x", "Body": "<p>&lt;</p>", "OwnerDisplayName": "3"},
        {"Id": "4", "PostTypeId": "1", "Body": "<p>y</p>", "OwnerDisplayName": "4"},
    ]


def test_one_column_may_serve_twice(parquet: Any) -> None:
    (row,) = parquet({"n": [3], "q": ["x"]}, "id=n,title=q,body=q")

    assert row.attributes == {"Id": "3", "PostTypeId": "1", "Title": "x", "Body": "x"}


def test_links_in_parquet_are_read(parquet: Any) -> None:
    (row,) = parquet({"Id": [9], "PostId": [1], "RelatedPostId": ["2"], "LinkTypeId": [3.0]}, table="links")

    assert link(row.attributes) == {
        "question_id": 1,
        "related_id": 2,
        "link_type": "duplicate",
        "creation_date": None,
    }


def test_positions_go_on_through_row_groups_and_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": range(5_000), "title": ["x"] * 5_000}), path, row_group_size=2_100)

    assert row_groups(path) == 3
    for group, positions in enumerate([range(2_100), range(2_100, 4_200), range(4_200, 5_000)]):
        rows = list(read_row_group(path, group, TITLES))
        assert [row.position for row in rows] == list(positions)
        assert [row.attributes["Id"] for row in rows if isinstance(row, Row)] == list(map(str, positions))


def test_a_parquet_table_without_rows_has_none(parquet: Any) -> None:
    assert parquet({"id": pa.array([], pa.int64()), "title": pa.array([], pa.null())}, "id=id,title=title") == []


# Parquet: what is broken


@pytest.mark.parametrize("value", [1.5, float("inf"), -1.0, 1e30])
def test_a_float_that_is_no_id_is_judged_like_any_other_text(parquet: Any, value: float) -> None:
    good, bad = parquet({"id": [1.0, value], "title": ["a", "b"]}, "id=id,title=title")

    assert question(good.attributes)["question_id"] == 1
    with pytest.raises(BadField, match="Id not a number"):
        question(bad.attributes)


def test_a_time_that_no_calendar_has_is_no_date(parquet: Any) -> None:
    far = pa.array([2**62], pa.int64()).cast(pa.timestamp("ms"))

    (row,) = parquet({"Id": [1], "PostTypeId": [1], "CreationDate": far})

    with pytest.raises(BadField, match="CreationDate not a date"):
        question(row.attributes)


@pytest.mark.parametrize(
    "text_type", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()]
)
@pytest.mark.parametrize("is_dictionary", [True, False])
def test_a_text_that_is_no_utf8_costs_its_row_only(parquet: Any, text_type: pa.DataType, is_dictionary: bool) -> None:
    raw = pa.array([b"a", b"\xff\xfe", b"c"], pa.large_binary() if "large" in str(text_type) else pa.binary())

    values = raw.cast(pa.binary_view()).view(text_type) if "view" in str(text_type) else raw.view(text_type)

    found = parquet({"id": [1, 2, 3], "title": values}, "id=id,title=title", use_dictionary=is_dictionary)

    assert titles(found) == [("1", "a"), ("3", "c")]
    assert rejects(found) == [(1, "not UTF-8")]


def test_a_tag_that_is_no_utf8_costs_its_row_only(parquet: Any) -> None:
    raw = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    tags = pa.ListArray.from_arrays([0, 1, 3], raw)

    found = parquet({"id": [1, 2], "title": ["a", "b"], "tags": tags}, "id=id,title=title,tags=tags")

    assert (titles(found), rejects(found)) == ([("1", "a")], [(1, "not UTF-8")])


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ufffe", "\uffff"])
def test_a_character_that_xml_forbids_costs_itself_only(parquet: Any, character: str) -> None:
    titled = ["a", f"b{character}b{character}", "c\t\r\n", "\0\0"]
    found = parquet({"id": [1, 2, 3, 4], "title": titled}, "id=id,title=title")

    assert (titles(found), rejects(found)) == ([("1", "a"), ("2", "bb"), ("3", "c\t\r\n")], [(3, "NUL bytes")])
    assert [row.forbidden for row in found[:3]] == [0, 2, 0]


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        ("Title", pa.array([{"a": 1}])),
        ("Title", pa.array([["a"]])),
        ("Title", pa.array([True])),
        ("Body", pa.array([b"ab"], pa.binary(2))),
        ("Score", pa.array([TIME])),
        ("CreationDate", pa.array([1_331_060_765])),
        ("ClosedDate", pa.array([1.5])),
        ("Tags", pa.array([[1, 2]])),
        ("Tags", pa.array([7])),
    ],
)
def test_a_column_of_an_impossible_type_is_refused_by_name(parquet: Any, attribute: str, values: pa.Array) -> None:
    with pytest.raises(DupqError) as caught:
        parquet({"Id": [1], "PostTypeId": [1], attribute.lower(): values})

    message = str(caught.value)
    assert "table.parquet: column" in message
    assert f"'{attribute.lower()}' is " in message
    assert message.endswith(f"which cannot be read as {attribute}")


def test_a_missing_column_is_refused_by_name(parquet: Any) -> None:
    with pytest.raises(DupqError, match=r"table\.parquet: column 'title' is missing; its columns are 'id', 'q'"):
        parquet({"id": [1], "q": ["x"]}, "id=id,title=title")


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], ["id", "title", "title"]), path
    )

    with pytest.raises(DupqError, match="column 'title' is there 2 times"):
        list(read_row_group(path, 0, TITLES))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)

    for attempt in (lambda: row_groups(str(path)), lambda: list(read_row_group(str(path), 0, TITLES))):
        with pytest.raises(DupqError, match=r"t\.parquet: no Parquet file, or damaged"):
            attempt()
    with pytest.raises(DupqError, match="no such file"):
        row_groups(str(tmp_path / "none.parquet"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_parquet_file_that_was_cut_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": range(5_000), "title": [str(n) * 9 for n in range(5_000)]}), path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    with pytest.raises(DupqError, match="no Parquet file, or damaged"):
        list(read_row_group(str(path), 0, TITLES))


def test_damage_within_a_column_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"id": range(5_000), "title": [str(n) * 9 for n in range(5_000)]}), path, compression="zstd"
    )
    content = bytearray(path.read_bytes())
    content[5_000:5_400] = bytes(400)
    path.write_bytes(content)

    with pytest.raises(DupqError, match=r"t\.parquet: no Parquet file, or damaged"):
        list(read_row_group(str(path), 0, TITLES))


def test_a_huge_text_that_is_stored_once_and_used_often_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    places = pa.array([0] * 500 + [1] * 5, pa.int32())
    huge = pa.DictionaryArray.from_arrays(places, pa.array(["x" * (9 << 20), "y" * (1 << 20)]))
    pq.write_table(pa.table({"id": range(505), "title": ["a"] * 505, "body": huge}), path)
    columns = parse_columns("id=id,title=title,body=body")
    before = pa.total_allocated_bytes()

    kinds = []
    for row in read_row_group(path, 0, columns):
        kinds.append(type(row))
        assert pa.total_allocated_bytes() - before < 100 << 20

    assert kinds == [BrokenRow] * 500 + [Row] * 5
    assert rejects(list(itertools.islice(read_row_group(path, 0, columns), 1))) == [(0, "longer than 8 MiB")]


def test_texts_that_share_prefixes_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    bodies = ["x" * (4 << 20) + str(number) for number in range(100)]
    pq.write_table(
        pa.table({"id": range(100), "title": bodies}),
        path,
        use_dictionary=False,
        column_encoding={"title": "DELTA_BYTE_ARRAY", "id": "PLAIN"},
        compression="none",
        write_statistics=False,
    )
    before = pa.total_allocated_bytes()

    for row in read_row_group(path, 0, TITLES):
        assert isinstance(row, Row)
        assert pa.total_allocated_bytes() - before < 300 << 20


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_of_all_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = str(tmp_path / "t.parquet")
    names = [None if number % 7 == 0 else f"title {number}" for number in range(3_000)]
    table = pa.table({"id": range(3_000), "title": names})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"title": encoding})

    assert titles(list(read_row_group(path, 0, TITLES))) == [(str(n), name) for n, name in enumerate(names)]


def test_a_column_that_unpacks_to_far_more_than_it_takes_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    bodies = ["x" * (1 << 20)] * 100
    pq.write_table(pa.table({"id": range(100), "title": bodies}), path, use_dictionary=False, compression="zstd")

    with pytest.raises(DupqError, match=r"column 'title': stopped"):
        list(read_row_group(path, 0, TITLES, limits=UnpackLimits(200.0, 1 << 40)))
    assert len(list(read_row_group(path, 0, TITLES))) == 100


def test_lists_with_far_too_many_tags_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    tags = pa.ListArray.from_arrays([0, 1_000_000], pa.array(["a"] * 1_000_000))
    pq.write_table(pa.table({"id": [1], "title": ["x"], "tags": tags}), path)

    with pytest.raises(DupqError, match=r"refused: column 'tags.* has 1,000,000 values in 1 rows"):
        list(read_row_group(path, 0, parse_columns("id=id,title=title,tags=tags")))


# Real data


STRAY_QUOTES = {  # questions of the Quora file whose quotes quote nothing
    "77111": '"All Lives Have Equal Value" True or not?',
    "84564": '"How to start " preparing for GRE?',
    "84671": '"How do I get rid of acne and acne…?',
}


@pytest.mark.realdata
def test_the_quora_questions_are_read_as_a_csv_reader_reads_each_line(shared_data: Path) -> None:
    path = shared_data / "quora" / "questions.tsv.xz"
    with lzma.open(path) as stream:
        found = list(read_delimited(stream, "quora", parse_columns("id=id,title=question"), "\t"))

    assert rejects(found) == []
    assert len(found) == 103_765
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        # line by line, for one of the stray quotes would make Python's reader swallow 140 questions
        expected = [tuple(fields) for line in lines for fields in csv.reader([line], delimiter="\t")][1:]
    assert titles(found) == [(number, STRAY_QUOTES.get(number, title)) for number, title in expected]


@pytest.mark.realdata
@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("site", ["cs.stackexchange.com", "cardano.stackexchange.com"])
def test_a_dump_converted_to_parquet_gives_the_same_questions_and_links(
    site: str, is_typed: bool, shared_data: Path, tmp_path: Path
) -> None:
    with py7zr.SevenZipFile(shared_data / "dumps" / f"{site}.7z") as packed:
        packed.extractall(tmp_path)
    for name, table, parse in (
        ("Posts", "posts", lambda row: post(row, PostChoice(answers=True))),
        ("PostLinks", "links", link),
    ):
        rows = [dict(row.attrib) for _, row in etree.iterparse(str(tmp_path / f"{name}.xml"), tag="row")]
        path = str(tmp_path / f"{name}.parquet")
        pq.write_table(converted(rows, is_typed), path, row_group_size=1_500)

        found = [row for n in range(row_groups(path)) for row in read_row_group(path, n, None, table)]  # type: ignore[arg-type]

        assert rejects(found) == []
        assert [parse(row.attributes) for row in found] == [parse(row) for row in rows]


def converted(rows: list[dict[str, str]], is_typed: bool) -> pa.Table:
    """The rows of a dump as a table: all strings, or numbers, times and lists, with floats as pandas makes them."""
    names = sorted({name for row in rows for name in row})
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if not is_typed:
            columns[name] = pa.array(values, pa.string())
        elif name == "Tags":
            lists = [None if value is None else value.strip("<>|").replace("><", "|").split("|") for value in values]
            columns[name] = pa.array(lists, pa.list_(pa.string()))
        elif name.endswith("Date"):
            columns[name] = pa.array(values, pa.string()).cast(pa.timestamp("ns", tz=None))
        elif name.endswith(("Id", "Count")) or name == "Score":
            numbers = [None if value is None else int(value) for value in values]
            columns[name] = pa.array(numbers, pa.float64() if None in numbers else pa.int64())
        else:
            columns[name] = pa.array(values, pa.large_string())
    return pa.table(columns)


@pytest.mark.realdata
def test_a_dump_converted_to_csv_gives_the_same_questions(shared_data: Path, tmp_path: Path) -> None:
    with py7zr.SevenZipFile(shared_data / "dumps" / "cs.stackexchange.com.7z") as packed:
        packed.extract(tmp_path, ["Posts.xml"])
    rows = [dict(row.attrib) for _, row in etree.iterparse(str(tmp_path / "Posts.xml"), tag="row")]
    names = sorted({name for row in rows for name in row})
    with (tmp_path / "posts.csv").open("w", encoding="utf-8", newline="") as sink:
        writer = csv.DictWriter(sink, [name.lower() for name in names])
        writer.writeheader()
        writer.writerows({name.lower(): value for name, value in row.items()} for row in rows)

    with (tmp_path / "posts.csv").open("rb") as stream:
        found = list(read_delimited(stream, "posts.csv", None, ","))

    assert [question(row.attributes) for row in found if isinstance(row, Row)] == list(map(question, rows))
