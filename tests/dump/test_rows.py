"""Rows read one by one, the slow way, which decides on all that is odd; and how files must open and close."""

import pytest
from xml_contents import parsed_slowly

from dupq.dump import xml_files
from dupq.dump.files import _ROOT
from dupq.dump.xml_files import BrokenRow, Row, _names_of, parse_row
from dupq.errors import DupqError

FORBIDDEN = "a character that XML forbids"


def document(*lines: bytes, root: bytes = b"posts") -> bytes:
    opening = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\n<' + root + b">\n"
    return opening + b"\n".join(lines) + b"\n</" + root + b">"


def read(content: bytes, root: str = "posts") -> list[Row | BrokenRow]:
    return list(parsed_slowly(content, root, "Posts.xml"))


def attributes(content: bytes) -> list[dict[str, str]]:
    found = read(content)
    assert all(isinstance(row, Row) for row in found), found
    return [row.attributes for row in found]


def error(content: bytes, root: str = "posts") -> str:
    with pytest.raises(DupqError) as caught:
        read(content, root)
    return str(caught.value)


# What is read


def test_what_is_outside_values_is_remembered_for_plain_rows_only() -> None:
    """Else a dump with single quotes would fill the memory with its bodies."""
    before = _names_of.cache_info().currsize
    rows = [b"  <row Id=\"%d\" Body='%s'/>" % (number, b"x" * 2_000) for number in range(50)]
    assert len(attributes(document(*rows))) == 50
    assert _names_of.cache_info().currsize <= before + 1


def test_a_dump_as_stack_exchange_writes_it_is_read() -> None:
    content = document(b'  <row Id="1" Title="A &amp; B" />', b'  <row Id="2" />').replace(b"\n", b"\r\n")

    assert attributes(content) == [{"Id": "1", "Title": "A & B"}, {"Id": "2"}]


@pytest.mark.parametrize(
    "opening",
    [
        b"<posts>",
        b"\xef\xbb\xbf<posts>",
        b'<?xml version="1.0"?><posts>',
        b'<?xml version="1.0" encoding="UTF-8" ?>\r\n<posts xmlns:x="y">',
        b"<?xml version='1.0' encoding='utf-8'?>\n\n<posts >",
    ],
)
def test_the_declaration_and_the_byte_order_mark_are_optional(opening: bytes) -> None:
    assert attributes(opening + b'<row Id="1"/></posts>') == [{"Id": "1"}]


def test_both_quote_styles_are_read() -> None:
    content = document(b"""<row Id='1' Body='say "hi"'/>""", b"""<row Id="2" Body="it's"/>""")

    assert attributes(content) == [{"Id": "1", "Body": 'say "hi"'}, {"Id": "2", "Body": "it's"}]


def test_several_rows_may_stand_on_one_line_and_one_row_on_several() -> None:
    content = document(b'<row Id="1"/><row Id="2"/> <row\n\tId="3"\r\n  Title="x"\n/>')

    assert attributes(content) == [{"Id": "1"}, {"Id": "2"}, {"Id": "3", "Title": "x"}]


def test_a_literal_line_break_in_an_attribute_is_a_space_as_xml_says() -> None:
    assert attributes(document(b'<row Body="a\nb\r\nc\td"/>')) == [{"Body": "a b c d"}]


def test_numeric_entities_of_both_forms_are_decoded() -> None:
    content = document(b'<row Body="a&#10;b&#xA;c&#xD;d&#233;&#x1F600;&lt;&quot;&apos;"/>')

    assert attributes(content) == [{"Body": "a\nb\nc\rdé😀<\"'"}]


def test_a_row_may_have_an_end_tag_and_be_followed_by_a_comment() -> None:
    assert attributes(document(b'<row Id="1"></row> <!-- <rows> -->', b'<row Id="2"/>')) == [
        {"Id": "1"},
        {"Id": "2"},
    ]


def test_a_greater_than_sign_or_an_escaped_row_in_an_attribute_ends_nothing() -> None:
    assert attributes(document(b'<row Body="a /> b &lt;row Id=&quot;9&quot;/> <"/>'.replace(b" <", b""))) == [
        {"Body": 'a /> b <row Id="9"/>'}
    ]


def test_an_element_that_only_begins_like_a_row_is_none() -> None:
    found = read(document(b'<rows Id="1"/>', b'<row Id="2"/>'))

    assert [type(row) for row in found] == [BrokenRow, Row]


def test_positions_are_byte_offsets_in_the_file() -> None:
    content = document('<row Title="é"/>'.encode(), b"<row Title='x'/><row Broken/>")

    for row in read(content):
        assert content[row.position :].startswith(b"<row ")
        assert content[row.position :].decode().startswith(row.excerpt.rstrip().removesuffix("</posts>"))


@pytest.mark.parametrize("content", [b"<posts></posts>", b"<posts/>", b"<posts />\n", document()])
def test_a_dump_without_rows_is_a_dump(content: bytes) -> None:
    assert read(content) == []


def test_white_space_is_no_row() -> None:
    assert parse_row(b" \r\n\t", 0) == parse_row(b"", 0) == []


def test_a_row_keeps_its_bytes_for_a_report_on_it() -> None:
    (row,) = parse_row(b'<row Id="x" Title="\xc3\xa9"/>\n', 7)

    assert row == Row(7, {"Id": "x", "Title": "é"}, b'<row Id="x" Title="\xc3\xa9"/>\n')
    assert row.excerpt == '<row Id="x" Title="é"/>\n'


def test_characters_that_xml_forbids_are_left_out_and_counted() -> None:
    (row,) = parse_row(b'<row Id="2" Body="a\x08b&#x1F;&amp;#1;&#99999999;" />\n', 7)

    assert row == Row(7, {"Id": "2", "Body": "ab&#1;"}, b'<row Id="2" Body="a\x08b&#x1F;&amp;#1;&#99999999;" />\n', 3)


# What is broken


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'<row Id="2" Body=unquoted />', "not well-formed"),
        (b'<row Id="2" Body="never closed />', "not well-formed"),
        (b'<row Id="2" Body="raw <b>tag</b>" />', "not well-formed"),
        (b'<row Id="2" Body="&unknown;" />', "not well-formed"),
        (b'<row Id="2" Body="&amp" />', "not well-formed"),
        (b'<row Id="2" Id="3" />', "not well-formed"),
        (b'<row Id="2" Body="x">', "not well-formed"),
        (b'<row Id="2" Body="\xff\xfe" />', "not UTF-8"),
        (b'<row Id="2" Body="\xed\xa0\x80" />', "not UTF-8"),
        (b'<row Id="2" Body="a\x00\x00b" />', FORBIDDEN),
        (b'<row Id="2" Body="&#0;&nbsp;" />', FORBIDDEN),
        (b'<row Id="2" x="&#' + b"9" * 5000 + b';" />', "not well-formed"),
    ],
)
def test_a_broken_row_does_not_lose_its_neighbours(broken: bytes, reason: str) -> None:
    first, middle, last = read(document(b'<row Id="1"/>', broken, b'<row Id="4"/>'))

    assert (first.attributes, last.attributes) == ({"Id": "1"}, {"Id": "4"})
    assert isinstance(middle, BrokenRow)
    assert middle.reason == reason
    assert middle.excerpt.strip() == broken.decode("utf-8", "replace")[:200]


def test_a_row_whose_start_is_damaged_does_not_lose_the_row_before_it() -> None:
    content = document(b'<row Id="1"/>', b'<roow Id="2"/>', b'<row Id="3"/>')

    first, stray, last = read(content)

    assert (first.attributes, last.attributes) == ({"Id": "1"}, {"Id": "3"})
    assert stray == BrokenRow(content.index(b"\n<roow"), "text outside rows", '\n<roow Id="2"/>\n')


def test_a_damaged_first_row_is_told() -> None:
    first, last = read(document(b'<rw Id="1"/>', b'<row Id="2"/>'))

    assert isinstance(first, BrokenRow)
    assert '<rw Id="1"/>' in first.excerpt
    assert last.attributes == {"Id": "2"}


def test_two_dumps_in_one_file_lose_no_row() -> None:
    found = read(document(b'<row Id="1"/>') + b"\n" + document(b'<row Id="2"/>'))

    assert [row.attributes for row in found if isinstance(row, Row)] == [{"Id": "1"}, {"Id": "2"}]
    assert [row.reason for row in found if isinstance(row, BrokenRow)] == ["text outside rows"]


def test_entities_cannot_be_declared_between_rows() -> None:
    stray = b'<!DOCTYPE row [<!ENTITY a SYSTEM "file:///etc/hostname">]><x y="1"/>'

    found = read(document(stray, b'<row Id="&a;"/>'))

    assert [type(row) for row in found] == [BrokenRow, BrokenRow]


def test_an_excerpt_has_at_most_200_characters() -> None:
    (row,) = read(document("<row Body='{}' broken/>".format("é😀" * 500).encode()))

    assert len(row.excerpt) == 200
    assert row.excerpt.startswith("<row Body='é😀é😀")


def test_a_row_longer_than_the_limit_is_broken_and_its_neighbours_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_files, "MAXIMUM_ROW", 5000)
    long = b'<row Id="2" Body="' + b"x" * 20_000 + b'"/>'

    found = read(document(b'<row Id="1"/>', long, b'<row Id="3"/>', long))

    assert [type(row) for row in found] == [Row, BrokenRow, Row, BrokenRow]
    assert found[1].reason.startswith("longer than")
    assert found[1].excerpt == long[:200].decode()
    assert found[2].attributes == {"Id": "3"}


def test_every_row_below_the_limit_is_short_enough_for_the_parser() -> None:
    body = b"x" * (xml_files.MAXIMUM_ROW - len(b'<row Body=""/>\n'))

    longest, _ = read(document(b'<row Body="' + body + b'"/>', b'<row Id="2"/>'))

    assert isinstance(longest, Row)
    assert len(longest.attributes["Body"]) == len(body)


# What is no dump


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b"\xef\xbb\xbf", "an empty file"),
        (document(root=b"postlinks"), "<postlinks>"),
        (document(root=b"Posts"), "<Posts>"),
        (b"<!-- no end <posts>", "'<!-- no end <posts>'"),
        (b"<!-- a comment --><postlinks>", "<postlinks>"),
        (b"PK\x03\x04\xff\x1b[31m", r"'PK\x03\x04\ufffd\x1b[31m'"),
        (b"Id,Title\n1,x", r"'Id,Title\n1,x'"),
        (b"<posts", "'<posts'"),
    ],
)
def test_another_file_is_refused_with_what_it_is(content: bytes, found: str) -> None:
    assert error(content) == f"Posts.xml: no Stack Exchange dump: expected <posts>, found {found}"


def test_the_root_that_is_expected_is_named() -> None:
    assert error(document(), root="postlinks").endswith("expected <postlinks>, found <posts>")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_unicode_encoding_is_refused(encoding: str) -> None:
    assert error("<posts></posts>".encode(encoding)) == "Posts.xml: encoded in UTF-16 or UTF-32; dumps are UTF-8"


def test_a_declared_encoding_other_than_utf_8_is_refused() -> None:
    content = b'<?xml version="1.0" encoding="windows-1252"?><posts></posts>'

    assert error(content) == "Posts.xml: declares the encoding 'windows-1252'; dumps are UTF-8"


@pytest.mark.parametrize(
    "declaration",
    [
        b'<!DOCTYPE posts [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        b'<!DOCTYPE posts SYSTEM "http://127.0.0.1/x.dtd">',
        b'<!ENTITY a "b">',
    ],
)
def test_declarations_of_entities_are_refused(declaration: bytes) -> None:
    content = b'<?xml version="1.0"?>\n' + declaration + b'\n<posts><row Body="&b;"/></posts>'

    assert error(content) == "Posts.xml: refused, for dumps have no DOCTYPE or ENTITY declaration"


@pytest.mark.parametrize("declaration", [b"", b"\xef\xbb\xbf", b'<?xml version="1.0"?>'])
def test_comments_may_stand_around_the_rows(declaration: bytes) -> None:
    comment = b"\n<!-- CC BY-SA > 4.0\n--> <!---->\n"
    content = declaration + comment + b'<posts><row Id="1"/></posts>' + comment

    assert attributes(content) == [{"Id": "1"}]
    assert _ROOT.match(declaration + comment + b"<posts>")


# What is cut short


@pytest.mark.parametrize(
    "end",
    [
        b"",
        b'<row Id="1"/>',
        b'<row Id="1"/><row Id="2"/>\n</pos',
        b'<row Id="1"/><row Id="2"/><row Id="3" Ti',
    ],
)
def test_a_file_that_ends_early_is_told(end: bytes) -> None:
    assert error(b"<posts>" + end) == "Posts.xml: cut short: it does not end with </posts>"


def test_a_file_that_ends_with_nuls_and_is_not_closed_is_told_so() -> None:
    assert error(b'<posts><row Id="1"/>\n<row Id="2" Bo' + b"\0" * 5000) == (
        "Posts.xml: cut short: it does not end with </posts>, but with NUL bytes"
    )


@pytest.mark.parametrize(
    ("behind", "found", "place"),
    [
        (b"\0", "NUL bytes", 0),
        (b"\n" + b"\0" * 100_000, "NUL bytes", 1),
        (b"\0\n", r"'\x00\n'", 0),
        (b"\n \ntext\xff", r"'text\ufffd'", 3),
        (b"<x/>" + b"<!-- a -->" * 10_000, "'<x/><!-- a --><!-- a --><!-- a --><!-- a'", 0),
    ],
)
def test_what_follows_the_end_is_told_with_its_place(behind: bytes, found: str, place: int) -> None:
    content = b'<posts><row Id="1"/></posts>'

    assert error(content + behind) == f"Posts.xml: {found} after </posts>, at byte {len(content) + place:,}"


def test_what_follows_an_empty_root_is_told_with_its_place() -> None:
    assert read(b"<posts/>\n\r\n") == []
    assert error(b"<posts/> \0\0") == "Posts.xml: NUL bytes after <posts/>, at byte 9"
