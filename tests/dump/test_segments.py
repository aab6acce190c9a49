"""Segments of an XML file: the same rows whatever their size, and wherever reading begins."""

import io
import random

import pytest
from odd_rows import Mangler
from xml_contents import comparable, document, outcome, question, read, read_slowly

from dupq.dump import posts, xml_files
from dupq.dump.parsing import Format
from dupq.dump.xml_files import ROW_START, Segment, segments
from dupq.errors import DupqError

FORMATS = {
    "posts": Format("posts", answers=True),
    "questions": Format("posts"),
    "postlinks": Format("links"),
}


@pytest.fixture(autouse=True)
def _small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "MAXIMUM_BODY", 100)


def all_segments(content: bytes, size: int, first: int = 0, stop: int | None = None) -> list[Segment]:
    stream = io.BytesIO(content)
    stream.seek(first * size)
    return list(segments(stream, first, stop, size))


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


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(40))
def test_odd_rows_are_read_the_same_together_alone_and_in_any_segments(name: str, seed: int) -> None:
    form: Format = FORMATS[name]
    content = document(Mangler(seed, form.root).rows(), form.root)
    expected = outcome(lambda: read_slowly(content, form))
    assert outcome(lambda: read(content, form)) == expected
    if not isinstance(expected, str):
        assert comparable(read(content, form, 200)) == expected


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("length", [900, 1_100, 1_300, 5_000])
def test_a_row_that_reaches_far_into_further_segments_is_one_reject(
    length: int, is_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml_files, "MAXIMUM_ROW", 1_000)
    monkeypatch.setattr(posts, "MAXIMUM_BODY", 10_000)
    others = [question(number, Title="t") for number in (1, 2, 4, 5)]
    rows = [*others[:2], question(3, Body="x" * length), *([] if is_last else others[2:])]
    content = document(b"".join(rows))

    contents = read(content, Format("posts"), 100)

    is_rejected = length > 1_000
    kept = [1, 2, *([] if is_rejected else [3]), *([] if is_last else [4, 5])]
    assert contents.tables["questions"].column("question_id").to_pylist() == kept
    assert [reject["position"] for reject in contents.rejects.to_pylist()] == [content.index(rows[2].strip())][
        :is_rejected
    ]
    assert all(reason.startswith("longer than") for reason in contents.rejects.column("reason").to_pylist())
    segments = all_segments(content, 100)
    assert len({segment.number for segment in segments}) == len(segments)
    assert max(len(segment.data) for segment in segments) < 1_400
    assert [
        segment
        for first in range(0, len(content) // 100 + 1, 3)
        for segment in all_segments(content, 100, first, first + 3)
    ] == segments


def test_a_file_that_is_cut_short_in_a_long_row_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_files, "MAXIMUM_ROW", 1_000)
    with pytest.raises(DupqError, match=r"cut short: it does not end with </posts>$"):
        read(document(question(1) + question(2, Body="x" * 9_000))[:-2_000], FORMATS["posts"], 100)


def test_an_empty_file_is_one_empty_segment() -> None:
    assert all_segments(b"", 10) == [Segment(0, 0, b"", True)]
    assert all_segments(b"x" * 25, 10, 1) == []
