"""Parsing a piece of a dump's file into rows of tables, rejects, and counts of all rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.dump.fields import BadField
from dupq.dump.xml.document import LIMIT, check_nothing_follows, read_closing, read_opening
from dupq.dump.xml.links import LINK_LAYOUT, link, link_columns
from dupq.dump.xml.plain_rows import PlainRows, parse_plain_rows
from dupq.dump.xml.posts import (
    ANSWER,
    QUESTION,
    UNJUDGED_ANSWERS,
    PostChoice,
    answer_columns,
    post,
    post_layout,
    post_types,
    question_columns,
)
from dupq.dump.xml.row_layout import Layout
from dupq.dump.xml.rows import BrokenRow, Hiding, RawRow, Row, parse_row, unclosed
from dupq.dump.xml.segments import MAXIMUM_ROW, ROW_START, Segment
from dupq.errors import DupqError
from dupq.tables import IDS, LINKS, QUESTIONS, REJECTS


class Kind(NamedTuple):
    """A table that ingest makes."""

    schema: pa.Schema
    key: str
    order: tuple[str, ...]  # columns that its rows are sorted by
    is_unique: bool  # whether of rows with the same key the last one counts, or all do


KINDS = {
    "questions": Kind(QUESTIONS, "question_id", ("question_id",), True),
    "answers": Kind(UNJUDGED_ANSWERS, "answer_id", ("answer_id",), True),
    "links": Kind(LINKS, "question_id", tuple(LINKS.names), False),
    "ids": Kind(IDS, "question_id", tuple(IDS.names), False),
}


@dataclass(frozen=True)
class Format:
    """A kind of XML file: its root element, its tables, and what becomes of a row's attributes."""

    root: str
    tables: tuple[str, ...]
    layout: Layout
    columns: Callable[[PlainRows], list[tuple[str, pa.Table, np.ndarray]]]  # tables, and where their rows begin
    parse: Callable[[Mapping[str, str]], tuple[str, dict[str, object]] | str]  # a table's row, or what to count it as
    others: str | None  # what rows that the layout leaves out count as


@dataclass(frozen=True)
class Contents:
    """The rows of a piece of a file, sorted as KINDS says; `rejects` in the order of the file.

    `counts`: `rows` = those of each table + `rejects` + those by the names of what else they were, of which
    `duplicate_ids` are rows whose key a later row of the same piece has. `forbidden_characters`, if there are any, are
    no rows.
    """

    tables: dict[str, pa.Table]
    rejects: pa.Table
    counts: dict[str, int]


def posts_format(choice: PostChoice) -> Format:
    """Posts.xml."""
    tables = ("questions", "answers") if choice.answers else ("questions",)
    return Format("posts", tables, post_layout(choice), _posts, partial(post, choice=choice), "other_posts")


def links_format() -> Format:
    """PostLinks.xml."""
    return Format("postlinks", ("links",), LINK_LAYOUT, _links, lambda row: ("links", link(row)), None)


def read_segment(segment: Segment, file_format: Format, source: str) -> Contents:
    """The contents of a segment of an XML file.

    Raises DupqError naming `source` if the file's first segment does not open as `file_format` says, or its
    last one does not close so.
    """
    data, start, end = segment.data, 0, len(segment.data)
    if segment.position == 0:
        opening = read_opening(bytes(data[:LIMIT]), file_format.root, source)
        start = opening.length
        if opening.is_empty and segment.reaches_end and ROW_START.search(data.data, start) is None:
            check_nothing_follows(bytes(data[start:]), file_format.root, source, start)
            return read_rows([], file_format, source)
    if segment.reaches_end:
        end = read_closing(data, file_format.root, source, segment.place)
    match = ROW_START.search(data[:end].data, start)
    first = end if match is None else match.start()
    plain = parse_plain_rows(data[first:end], file_format.layout)
    stretches = [(start, first), *((plain.odd + first).tolist())]
    stretches, hidden = _without_hidden(data[:end], stretches, segment.position, source)
    odd = (
        row
        for begin, stop in stretches
        for row in parse_row(RawRow(segment.position + begin, bytes(data[begin : min(stop, begin + MAXIMUM_ROW + 1)])))
    )
    others = int(_is_seen(plain.others + first, hidden).sum())
    tables = _plain_tables(plain, first, hidden, file_format)
    return _contents(
        [(name, table, places + segment.position) for name, table, places in tables], others, odd, file_format, source
    )


def read_rows(rows: Iterable[Row | BrokenRow], file_format: Format, source: str) -> Contents:
    """The contents of rows that some other reader has split into attributes."""
    return _contents([], None, rows, file_format, source)


def hidden_end(data: np.ndarray, hiding: Hiding, begin: int, position: int, source: str) -> int:
    """Where in `data`, byte `position` of the file, the markup ends that hides rows in the stretch from `begin` on.

    Raises DupqError naming `source` if it has no end in MAXIMUM_ROW bytes of that stretch, or none in `data`: the
    next segment is read by someone who does not know of it.
    """
    end = hiding.end_mark.search(data.data, begin + hiding.inside, begin + MAXIMUM_ROW + 1)
    if end is None:
        place = position + begin + hiding.start
        raise DupqError(f"{source}: a comment or instruction at byte {place:,} has no end near; rows may be in it")
    return end.end()


def _without_hidden(
    data: np.ndarray, stretches: list[tuple[int, int]], position: int, source: str
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The `stretches` of odd rows as they are without rows in comments, and from where to where those are hidden."""
    found, hidden = [], []
    seen_from = 0
    for stretch in stretches:
        begin, stop = stretch
        if begin < seen_from:
            continue
        while (hiding := unclosed(bytes(data[begin : min(stop, begin + MAXIMUM_ROW + 1)]))) is not None:
            found.append((begin, begin + hiding.start))
            begin = hidden_end(data, hiding, begin, position, source)
            match = ROW_START.search(data.data, begin)
            seen_from = len(data) if match is None else match.start()
            hidden.append((stop, seen_from))
            stop = seen_from
        found.append((begin, stop))
    return found, hidden


def _is_seen(places: np.ndarray, hidden: list[tuple[int, int]]) -> np.ndarray:
    """Which of `places` are in none of the ranges `hidden`, which are in their order."""
    if not hidden:
        return np.ones(len(places), np.bool_)
    begins, ends = np.array(hidden).T
    before = np.searchsorted(begins, places, side="right") - 1
    return (before < 0) | (places >= ends[before])


def _plain_tables(
    plain: PlainRows, base: int, hidden: list[tuple[int, int]], file_format: Format
) -> list[tuple[str, pa.Table, np.ndarray]]:
    """The tables of `plain`, which begins at byte `base` of a segment, and where there their rows begin.

    Without those that are `hidden`.
    """
    tables = [(name, table, starts + base) for name, table, starts in file_format.columns(plain)]
    if not hidden:
        return tables
    seen = [(*named, _is_seen(named[2], hidden)) for named in tables]
    return [(name, table.filter(pa.array(is_seen)), places[is_seen]) for name, table, places, is_seen in seen]


def _contents(
    plain: list[tuple[str, pa.Table, np.ndarray]],
    others: int | None,
    odd: Iterable[Row | BrokenRow],
    file_format: Format,
    source: str,
) -> Contents:
    """`plain` are tables and where in the file their rows begin, `others` the plain rows in none of them, if any."""
    found = _Found(file_format)
    for row in odd:
        found.add(row, source)
    counts = found.counts
    tables = {name: [(KINDS[name].schema.empty_table(), np.empty(0, np.int64))] for name in file_format.tables}
    counts["rows"] += (others or 0) + sum(table.num_rows for _, table, _ in plain)
    if file_format.others is not None and others is not None:
        counts[file_format.others] += others
    for name, table, places in plain:
        tables[name].append((table, places))
    for name in file_format.tables:
        tables[name].append(found.table(name))
    sorted_tables = {name: _sorted(KINDS[name], pieces) for name, pieces in tables.items()}
    kept = {name: table.num_rows for name, (table, _) in sorted_tables.items()}
    counts["duplicate_ids"] += sum(dropped for _, dropped in sorted_tables.values())
    rejects = pa.Table.from_pylist(found.rejects, REJECTS)
    return Contents(
        {name: table for name, (table, _) in sorted_tables.items()},
        rejects,
        {**counts, **kept, "rejects": len(rejects)},
    )


class _Found:
    """Rows that came one by one, as Python objects."""

    def __init__(self, file_format: Format) -> None:
        self._format = file_format
        self._rows: dict[str, list[dict[str, object]]] = {name: [] for name in file_format.tables}
        self._positions: dict[str, list[int]] = {name: [] for name in file_format.tables}
        self.rejects: list[dict[str, object]] = []
        self.counts = Counter({"rows": 0})

    def add(self, row: Row | BrokenRow, source: str) -> None:
        """Judge one row."""
        self.counts["rows"] += 1
        if isinstance(row, Row) and row.forbidden:
            self.counts["forbidden_characters"] += row.forbidden
        parsed = self._parsed(row)
        if isinstance(parsed, BrokenRow):
            self.rejects.append({"source": source, **parsed._asdict()})
        elif isinstance(parsed, str):
            self.counts[parsed] += 1
        else:
            self._rows[parsed[0]].append(parsed[1])
            self._positions[parsed[0]].append(row.position)

    def table(self, name: str) -> tuple[pa.Table, np.ndarray]:
        """The rows of one table, and their positions."""
        return pa.Table.from_pylist(self._rows[name], KINDS[name].schema), np.array(self._positions[name], np.int64)

    def _parsed(self, row: Row | BrokenRow) -> tuple[str, dict[str, object]] | str | BrokenRow:
        if isinstance(row, BrokenRow):
            return row
        try:
            return self._format.parse(row.attributes)
        except BadField as bad:
            return BrokenRow(row.position, str(bad), row.excerpt)


def sort_rows(kind: Kind, table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """`table`, in the order of the file, sorted as `kind` says, and the rows that this left out.

    Of rows with the same key the last stays, if `kind` is unique; else all do.
    """
    if not kind.is_unique:
        return table.sort_by([(name, "ascending") for name in kind.order]), np.empty(0, np.int64)
    keys = table.column(kind.key).to_numpy()
    if (keys[1:] > keys[:-1]).all():
        return table, np.empty(0, np.int64)
    order = np.argsort(keys, kind="stable")
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)
    return table.take(order[is_last]), order[~is_last]


def _sorted(kind: Kind, pieces: list[tuple[pa.Table, np.ndarray]]) -> tuple[pa.Table, int]:
    """The rows of `pieces`, each given with its rows' positions, sorted, and how many had a later one's key."""
    filled = [piece for piece in pieces if piece[0].num_rows]
    if not filled:
        return kind.schema.empty_table(), 0
    table = pa.concat_tables([table for table, _ in filled])
    positions = np.concatenate([positions for _, positions in filled])
    if (positions[1:] < positions[:-1]).any():
        table = table.take(np.argsort(positions, kind="stable"))
    table, dropped = sort_rows(kind, table)
    return table, len(dropped)


def _posts(rows: PlainRows) -> list[tuple[str, pa.Table, np.ndarray]]:
    types = post_types(rows)
    if (types == QUESTION).all():
        return [("questions", question_columns(rows), rows.starts)]
    found = []
    for name, post_type, columns in (("questions", QUESTION, question_columns), ("answers", ANSWER, answer_columns)):
        places = np.flatnonzero(types == post_type)
        found.append((name, columns(rows).take(places), rows.starts[places]))
    return found


def _links(rows: PlainRows) -> list[tuple[str, pa.Table, np.ndarray]]:
    return [("links", link_columns(rows), rows.starts)]
