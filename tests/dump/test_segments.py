"""Segments of an XML file: the same rows whatever their size, and wherever reading begins."""

import io
import random
from pathlib import Path

import pytest
from dump_files import COMPRESS
from odd_rows import Mangler
from xml_contents import comparable, document, outcome, question, read, read_slowly

from dupq.dump import xml_files
from dupq.dump.files import Member
from dupq.dump.parsing import Format, links_format, posts_format
from dupq.dump.posts import PostChoice
from dupq.dump.streams import UnpackLimits, open_member
from dupq.dump.xml_files import ROW_START, Segment, cut
from dupq.errors import DupqError

FORMATS = {"posts": posts_format(PostChoice(answers=True, maximum_body=100)), "postlinks": links_format()}


def all_segments(content: bytes, size: int, first: int = 0, stop: int | None = None) -> list[Segment]:
    stream = io.BytesIO(content)
    stream.seek(first * size)
    return list(cut(stream, "Posts.xml", first, stop, size))


@pytest.mark.parametrize("size", [1, 7, 50, 1000, 1 << 20])
@pytest.mark.parametrize("at_once", [1, 3])
def test_ranges_are_the_segments_of_the_stream(size: int, at_once: int) -> None:
    generator = random.Random(size)
    rows = [
        generator.choice([b"<row />", b"<row\n/>", b"<row x='%b'/>" % (b"y" * generator.randrange(90))])
        for _ in range(60)
    ]
    content = b"<posts>" + b"".join(rows) + b"</posts>"

    found = all_segments(content, size)

    assert b"".join(segment.data for segment in found) == content
    assert [segment.reaches_end for segment in found] == [False] * (len(found) - 1) + [True]
    for segment in found[1:]:
        assert ROW_START.match(segment.data)
        assert segment.number * size <= segment.position < (segment.number + 1) * size
    ranges = [
        all_segments(content, size, first, first + at_once) for first in range(0, len(content) // size + 1, at_once)
    ]
    assert [segment for some in ranges for segment in some] == found


@pytest.mark.parametrize("root", FORMATS)
@pytest.mark.parametrize("seed", range(60))
def test_odd_rows_are_read_the_same_together_alone_and_in_any_segments(root: str, seed: int) -> None:
    form: Format = FORMATS[root]
    content = document(Mangler(seed, root).rows(), root)

    expected = outcome(lambda: read_slowly(content, form))

    assert outcome(lambda: read(content, form)) == expected
    if not isinstance(expected, str):
        assert comparable(read(content, form, 200)) == expected


def test_a_row_that_never_ends_stops_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_files, "MAXIMUM_ROW", 1_000)

    with pytest.raises(DupqError, match=r"^Posts\.xml: no row begins in 0 MiB from byte 100 on$"):
        all_segments(b"<posts><row Body='" + b"x" * 5_000 + b"'/><row/></posts>", 100)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_segments_of_a_packed_file_are_those_of_the_plain_one(suffix: str, tmp_path: Path) -> None:
    content = document(b"".join(question(number, Body="é" * number) for number in range(200)))
    path = tmp_path / f"Posts.xml{suffix}"
    path.write_bytes(COMPRESS[suffix](content))

    with open_member(Member(str(path)), UnpackLimits(ratio=200.0, total_bytes=1 << 40)) as stream:
        assert list(cut(stream, "Posts.xml", size=1_000)) == all_segments(content, 1_000)


def test_an_empty_file_is_one_empty_segment() -> None:
    assert all_segments(b"", 10) == [Segment(0, 0, b"", True)]
    assert all_segments(b"x" * 25, 10, 1) == []
