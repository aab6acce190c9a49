"""Cutting files into segments: as a stream, in ranges and of any size, the rows are the same."""

import gzip
import io
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_rows import Mangler
from xml_contents import check_counts, document, joined, outcome, question, read, read_slowly

from dupq import storage
from dupq.dump import parsing as contents_module
from dupq.dump.archives.streams import UnpackLimits, open_member
from dupq.dump.files import Member
from dupq.dump.parsing import links_format, posts_format, read_segment
from dupq.dump.xml import plain_rows, rows, segments
from dupq.dump.xml.posts import PostChoice
from dupq.dump.xml.segments import ROW_START, Segment, cut, cut_mapped
from dupq.errors import DupqError

FORMAT = posts_format(PostChoice())
FORMATS = {"posts": FORMAT, "answers too": posts_format(PostChoice(answers=True)), "links": links_format()}
PLENTY = UnpackLimits(ratio=1e6, total_bytes=1 << 40)
SIZES = st.sampled_from([1, 2, 7, 16, 64, 300, 5000])

# Files in which rows begin, or nearly begin, all the time.
NEARLY = st.sampled_from(
    [b"<row", b"<row ", b"<row\t", b"<rows ", b"<", b"r", b"o", b"w", b" ", b"\n", b"x", b"x" * 60]
)
FILES = st.lists(NEARLY, max_size=40).map(lambda pieces: b"<posts>" + b"".join(pieces) + b"</posts>")


class Range(NamedTuple):
    number: int
    start: int
    stop: int
    reaches_end: bool


def expected(content: bytes, size: int) -> list[Range]:
    """Row by row: each is of the segment in which it begins; what precedes all rows is of the first."""
    starts = [0, *(match.start() for match in ROW_START.finditer(content) if match.start())]
    ranges: dict[int, Range] = {}
    for start, stop in zip(starts, [*starts[1:], len(content)], strict=True):
        number = start // size
        begin = ranges[number].start if number in ranges else start
        ranges[number] = Range(number, begin, stop, stop == len(content))
    return list(ranges.values())


def in_ranges(content: bytes, size: int, at_once: int) -> Iterator[Segment]:
    """The segments as tasks read them, `at_once` of them each."""
    for first in range(0, max(1, -(-len(content) // size)), at_once):
        stream = io.BytesIO(content)
        stream.seek(first * size)
        yield from cut(stream, first, first + at_once, size)


def plain(found: Iterator[Segment]) -> list[tuple[int, int, bytes, bool]]:
    return [(segment.number, segment.position, bytes(segment.data), segment.reaches_end) for segment in found]


@settings(max_examples=300, deadline=None)
@given(content=FILES, size=SIZES, look_ahead=st.sampled_from([1, 7, 1 << 16]))
def test_a_stream_is_cut_where_the_first_row_of_each_segment_begins(content: bytes, size: int, look_ahead: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_LOOK_AHEAD", look_ahead)
        found = plain(cut(io.BytesIO(content), size=size))

    assert found == [
        (number, start, content[start:stop], reaches_end)
        for number, start, stop, reaches_end in expected(content, size)
    ]


@settings(max_examples=300, deadline=None)
@given(content=FILES, size=SIZES, at_once=st.integers(1, 5), look_ahead=st.sampled_from([1, 7, 1 << 16]))
def test_ranges_are_the_segments_of_the_stream(content: bytes, size: int, at_once: int, look_ahead: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_LOOK_AHEAD", look_ahead)
        found = plain(in_ranges(content, size, at_once))

    assert found == plain(cut(io.BytesIO(content), size=size))


@settings(max_examples=300, deadline=None)
@given(content=FILES, size=SIZES, at_once=st.integers(1, 5), look_ahead=st.sampled_from([1, 7, 1 << 16]))
def test_of_a_row_too_long_the_beginning_is_kept_and_the_others_whole(
    content: bytes, size: int, at_once: int, look_ahead: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MAXIMUM_ROW", 50)
        patch.setattr(segments, "_LOOK_AHEAD", look_ahead)
        found = plain(cut(io.BytesIO(content), size=size))
        by_ranges = plain(in_ranges(content, size, at_once))

    assert found == by_ranges
    wanted = expected(content, size)
    assert [(number, position, ends) for number, position, _, ends in found] == [
        (number, start, ends) for number, start, _, ends in wanted
    ]
    for (_, _, data, _), (_, start, stop, reaches_end) in zip(found, wanted, strict=True):
        assert_shortened(data, content[start:stop], size, reaches_end)


def assert_shortened(data: bytes, whole: bytes, size: int, reaches_end: bool) -> None:
    """`data` is `whole`, or lacks some of the middle of its last row, and that row is still seen to be too long."""
    if data == whole:
        return
    last_row = max((match.start() for match in ROW_START.finditer(whole)), default=0)
    assert len(whole) - last_row > 50
    assert data[: last_row + 51] == whole[: last_row + 51]
    assert not reaches_end or data.endswith(whole[-20:])


@settings(max_examples=500, deadline=None)
@given(
    content=FILES,
    outside=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    size=SIZES,
    at_once=st.integers(1, 5),
    maximum_row=st.sampled_from([1, 5, 50, 1 << 23]),
    tail=st.sampled_from([1, 7, 30, 1 << 16]),
    look_ahead=st.sampled_from([1, 7, 1 << 16]),
)
def test_what_is_at_hand_is_cut_as_a_stream_is(
    content: bytes,
    outside: tuple[int, int],
    size: int,
    at_once: int,
    maximum_row: int,
    tail: int,
    look_ahead: int,
) -> None:
    content = b" " * outside[0] + content + b"\0" * outside[1]
    mapped = np.frombuffer(content, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MAXIMUM_ROW", maximum_row)
        patch.setattr(segments, "_TAIL", tail)
        patch.setattr(segments, "_LOOK_AHEAD", look_ahead)
        found = list(cut_mapped(mapped, size=size))
        places = [[content[segment.place(at)] for at in range(len(segment.data))] for segment in found]
        starts = range(0, max(1, -(-len(content) // size)), at_once)
        by_ranges = [each for first in starts for each in cut_mapped(mapped, first, first + at_once, size)]
        streamed = list(cut(io.BytesIO(content), size=size))
        streamed_by_ranges = list(in_ranges(content, size, at_once))

    assert plain(iter(found)) == plain(iter(streamed)) == plain(iter(by_ranges)) == plain(iter(streamed_by_ranges))
    assert [segment.left_out for segment in found] == [segment.left_out for segment in streamed]
    assert places == [segment.data.tolist() for segment in found]
    assert all(len(segment.data) <= size + maximum_row + tail for segment in found)
    assert sum(len(segment.data) for segment in found) <= len(content)


def test_of_a_mapped_row_that_never_ends_as_little_is_taken_as_of_a_streamed_one() -> None:
    endless = np.full(60 << 20, ord("x"), np.uint8)
    beginning = document(question(1)).removesuffix(b"</posts>") + b'<row Id="2" PostTypeId="1" Body="'
    endless[: len(beginning)] = np.frombuffer(beginning, np.uint8)

    (found,) = cut_mapped(endless, size=1 << 20)

    assert len(found.data) == (1 << 20) + segments.MAXIMUM_ROW + (1 << 16)
    assert plain(iter([found])) == plain(cut(io.BytesIO(endless.tobytes()), size=1 << 20))
    with pytest.raises(DupqError, match=r"cut short: it does not end with </posts>$"):
        read_segment(found, FORMAT, "Posts.xml")


def test_who_reads_the_middle_of_a_row_that_never_ends_reads_no_further_than_asked() -> None:
    stream = io.BytesIO(b"<posts><row " + b"x" * (8 << 20))
    stream.seek(3 << 20)

    assert list(cut(stream, 3, 4, 1 << 20)) == []
    assert stream.tell() < (4 << 20) + (1 << 18)


# What is read of the segments


def assert_same(found: dict[str, Any] | str, whole: dict[str, Any] | str, content: bytes) -> None:
    """`found` is `whole`, or says where a comment with rows in it begins, whose end may be in another segment."""
    if found == whole:
        return
    assert isinstance(found, str), found
    told = re.search(r"a comment or instruction at byte ([0-9,]+) has no end near; rows may be in it$", found)
    assert told is not None, found
    hiding = content[int(told[1].replace(",", "")) :]
    mark = b"-->" if hiding.startswith(b"<!--") else b"?>"
    assert hiding.startswith((b"<!--", b"<?"))
    assert ROW_START.search(hiding.split(mark)[0] + mark) is not None


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**64), name=st.sampled_from(list(FORMATS)), size=st.integers(1, 600))
def test_segments_of_any_size_give_the_same_contents(seed: int, name: str, size: int) -> None:
    content = document(Mangler(seed, FORMATS[name].root).rows(), FORMATS[name].root)

    whole = outcome(lambda: read(content, FORMATS[name]))
    assert_same(outcome(lambda: read(content, FORMATS[name], size)), whole, content)


@settings(max_examples=200, deadline=None)
@given(lengths=st.lists(st.integers(0, 1500), max_size=12), size=st.integers(1, 3000), seed=st.integers(0, 2**32))
def test_rows_too_long_are_rejected_whatever_the_segments(lengths: list[int], size: int, seed: int) -> None:
    written = [question(number, Body="x" * length).strip() + b"\n" for number, length in enumerate(lengths)]
    too_long = [number for number, text in enumerate(written) if len(text) > 400]
    fits = [number for number in range(len(written)) if number not in too_long]
    with pytest.MonkeyPatch.context() as patch:
        for module in (segments, rows, plain_rows, contents_module):
            patch.setattr(module, "MAXIMUM_ROW", 400)
        content = document(b"".join(written) + Mangler(seed, "posts").rows())
        alone = read(document(b"".join(written)), FORMAT, size)
        mixed, slowly = outcome(lambda: read(content, FORMAT, size)), outcome(lambda: read_slowly(content, FORMAT))

    assert alone.tables["questions"].column("question_id").to_pylist() == fits
    assert [int(reject["excerpt"].split('"')[1]) for reject in alone.rejects.to_pylist()] == too_long
    assert set(alone.rejects.column("reason").to_pylist()) <= {"longer than 0 MiB"}
    assert_same(mixed, slowly, content)


@pytest.mark.parametrize("attribute", ["Body", "Other"])
def test_a_row_of_more_than_8_mib_is_rejected_whatever_makes_it_long(attribute: str) -> None:
    row = b'<row Id="2" PostTypeId="1" %s="%s" />\n'
    longest = segments.MAXIMUM_ROW - len(row % (attribute.encode(), b""))
    choice = posts_format(PostChoice(maximum_body=1 << 30))
    good = [b'<row Id="%d" PostTypeId="1" />\n' % number for number in (1, 3)]

    for excess, ids in ((0, [1, 2, 3]), (1, [1, 3])):
        long = row % (attribute.encode(), b"x" * (longest + excess))
        content = document(good[0] + long + good[1])
        for size in (1 << 20, 16 << 20):
            contents = read(content, choice, size)
            assert contents.tables["questions"].column("question_id").to_pylist() == ids
            assert contents.rejects.column("reason").to_pylist() == ["longer than 8 MiB"] * excess


def test_a_row_of_40_mib_takes_no_more_memory_than_one_of_8() -> None:
    long = b'<row Id="2" PostTypeId="1" Body="' + b"x" * (40 << 20) + b'" />'

    found = list(cut(io.BytesIO(document(question(1) + long + question(3))), size=1 << 20))

    assert len(found[0].data) < (1 << 20) + segments.MAXIMUM_ROW + 1000
    contents = joined([read_segment(segment, FORMAT, "Posts.xml") for segment in found], FORMAT)
    check_counts(contents)
    assert contents.tables["questions"].column("question_id").to_pylist() == [1, 3]
    assert contents.rejects.column("reason").to_pylist() == ["longer than 8 MiB"]


def test_a_file_may_end_with_a_row_too_long() -> None:
    long = b'<row Id="2" PostTypeId="1" Body="' + b"x" * (20 << 20) + b'" />\r\n'

    contents = read(document(question(1) + long), FORMAT, 1 << 20)

    assert contents.counts["questions"] == contents.counts["rejects"] == 1


def test_what_follows_the_end_of_a_file_is_told_with_its_place_behind_a_row_of_20_mib_too() -> None:
    long = b'<row Id="2" PostTypeId="1" Body="' + b"x" * (20 << 20) + b'" />\r\n'
    content = document(question(1) + long)

    for size in (1 << 20, 16 << 20):
        assert outcome(partial(read, content + b"\n<!-- all -->\0\0", FORMAT, size)) == (
            f"a.com/Posts.xml: NUL bytes behind </posts>, at byte {len(content) + 13:,}"
        )
        assert not isinstance(outcome(partial(read, content + b"<!-- all -->", FORMAT, size)), str)


# Where bytes come from

BIG = document(b"".join(question(number, Title="title", Body=f"body {number} " * 9) for number in range(1000)))


def test_ranges_of_a_file_are_the_segments_of_its_packed_stream(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_bytes(BIG)
    (tmp_path / "Posts.xml.gz").write_bytes(gzip.compress(BIG))
    size = 4096
    whole = plain(cut(io.BytesIO(BIG), size=size))

    with open_member(Member(str(tmp_path / "Posts.xml.gz")), PLENTY) as stream:
        assert plain(cut(stream, size=size)) == whole
    with open_member(Member(str(tmp_path / "Posts.xml")), PLENTY) as stream:
        assert plain(cut(stream, size=size)) == whole
    by_ranges = []
    for first in range(0, -(-len(BIG) // size), 4):
        with storage.open_input(str(tmp_path / "Posts.xml")) as file:
            file.seek(first * size)
            by_ranges += plain(cut(file, first, first + 4, size))
    assert by_ranges == whole
    assert len(whole) > 20


def test_a_segment_stays_as_it_is_while_the_next_ones_are_cut() -> None:
    found = list(cut(io.BytesIO(BIG), size=4096))

    assert b"".join(bytes(segment.data) for segment in found) == BIG
    assert not any(np.shares_memory(a.data, b.data) for a, b in pairwise(found))


@pytest.mark.parametrize("first", [1, 2, 100])
def test_a_range_without_rows_has_no_segment(first: int) -> None:
    content = b"<posts>" + b" " * 50 + b"</posts>"
    stream = io.BytesIO(content)
    stream.seek(first * 20)

    assert plain(cut(stream, first, first + 1, 20)) == []
    assert [segment.number for segment in cut(io.BytesIO(content), size=20)] == [0]


def test_an_empty_file_is_one_empty_segment() -> None:
    assert plain(cut(io.BytesIO(b""))) == [(0, 0, b"", True)]
