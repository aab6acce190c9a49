"""XML files written for tests, and what is read of them: as ingest reads them, and the slow and obvious way."""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from dupq.dump.parsing import Format, ParsedRows, read_rows, sort_rows
from dupq.dump.xml_files import (
    ROW_START,
    SEGMENT_SIZE,
    BrokenRow,
    Row,
    check_nothing_follows,
    parse_row,
    read_closing,
    read_opening,
    segment_rows,
    segments,
)
from dupq.errors import DupqError

SOURCE = "a.com/Posts.xml"
DECLARATION = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\r\n'


def quoted(text: str) -> str:
    return quoteattr(text, {"\n": "&#xA;", "\r": "&#xD;", "\t": "&#x9;"})


def row(**attributes: object) -> bytes:
    values = "".join(f" {name}={quoted(str(value))}" for name, value in attributes.items())
    return f"  <row{values} />\r\n".encode()


def question(question_id: object, **attributes: object) -> bytes:
    return row(Id=question_id, PostTypeId=1, **attributes)


def answer(answer_id: object, question_id: object, **attributes: object) -> bytes:
    return row(Id=answer_id, PostTypeId=2, ParentId=question_id, **attributes)


def link(question_id: object, related_id: object, link_type: object = 3, **attributes: object) -> bytes:
    return row(Id=1, PostId=question_id, RelatedPostId=related_id, LinkTypeId=link_type, **attributes)


def document(rows: bytes, root: str = "posts") -> bytes:
    return DECLARATION + b"<%b>\r\n%b</%b>" % (root.encode(), rows, root.encode())


def read(content: bytes, file_format: Format, size: int = SEGMENT_SIZE, source: str = SOURCE) -> ParsedRows:
    """What ingest reads of an XML file in segments of `size` bytes."""
    parsed = [
        read_rows(segment_rows(segment, file_format.root, source), file_format, source)
        for segment in segments(io.BytesIO(content), size=size)
    ]
    contents = joined(parsed, file_format)
    check_counts(contents)
    return contents


def read_slowly(content: bytes, file_format: Format, source: str = SOURCE) -> ParsedRows:
    """The same, without segments: every row alone through the XML parser."""
    contents = read_rows(parsed_slowly(content, file_format.root, source), file_format, source)
    check_counts(contents)
    return contents


def parsed_slowly(content: bytes, root: str = "posts", source: str = SOURCE) -> Iterator[Row | BrokenRow]:
    """The rows of a file, each parsed alone."""
    begin, is_empty = read_opening(content, root, source)
    if is_empty and ROW_START.search(content, begin) is None:
        check_nothing_follows(content[begin:], f"{root}/", source, begin)
        return
    end = read_closing(content, root, source, 0)
    while begin < end:
        match = ROW_START.search(content, begin + 1, end)
        stop = end if match is None else match.start()
        yield from parse_row(content[begin:stop], begin)
        begin = stop


def joined(pieces: Iterable[ParsedRows], file_format: Format) -> ParsedRows:
    """The contents of all pieces of a file as those of one."""
    parts = list(pieces)
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    tables = {}
    for name in file_format.tables:
        tables[name], dropped = sort_rows(name, pa.concat_tables([part.tables[name] for part in parts]))
        counts[name] -= dropped
        counts["duplicate_ids"] += dropped
    return ParsedRows(tables, pa.concat_tables([part.rejects for part in parts]), counts)


def check_counts(contents: ParsedRows) -> None:
    """Every row is counted once, and the tables have as many rows as was counted."""
    counts = Counter(contents.counts)
    rows = counts.pop("rows")
    counts.pop("forbidden_characters", None)
    assert rows == sum(counts.values()), contents.counts
    assert counts["rejects"] == contents.rejects.num_rows
    assert all(counts[name] == table.num_rows for name, table in contents.tables.items())


def outcome(read: Callable[[], ParsedRows]) -> dict[str, Any] | str:
    """All there is in what `read` gives, or what it says is wrong with the file."""
    try:
        return comparable(read())
    except DupqError as error:
        return str(error)


def comparable(contents: ParsedRows) -> dict[str, Any]:
    """All there is in contents, whatever the chunks of its tables; a count of nothing is no count."""
    tables = {name: (table.schema, table.to_pylist()) for name, table in contents.tables.items()}
    counts = {name: count for name, count in contents.counts.items() if count}
    return {"tables": tables, "rejects": contents.rejects.to_pylist(), "counts": counts}
