"""Parsing a piece of a dump's file into rows of tables and rejects, and the account of them: every row of every file
of a site is counted exactly once, so that none is lost unnoticed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.dump.files import Member
from dupq.dump.posts import ANSWER, FABRICATED_IDS, QUESTION, UNJUDGED_ANSWERS, Written, read_columns, written
from dupq.dump.xml_files import (
    LIMIT,
    ROW_START,
    BrokenRow,
    PlainRow,
    Row,
    Segment,
    check_nothing_follows,
    excerpt,
    read_closing,
    read_opening,
    rows_in,
)
from dupq.errors import DupqError, RejectsError
from dupq.settings.sections import IngestSettings
from dupq.system import side_by_side
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


_FABRICATED = {str(number).encode() for number in FABRICATED_IDS}


@dataclass(frozen=True)
class Format:
    """Posts.xml or PostLinks.xml by its root element, or a table like it, and which of its posts are wanted."""

    root: str
    answers: bool = False
    keeps_fabricated: bool = False  # tables from elsewhere have no fabricated posts, whatever their ids

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its rows go to."""
        if self.root == "postlinks":
            return ("links",)
        return ("questions", "answers") if self.answers else ("questions",)

    def table_of(self, row: Written) -> str | None:
        """Return the table that a row belongs to, or what else it counts as; None for a post without a type."""
        post_type = row.get("PostTypeId", b"").decode()
        if self.root == "postlinks":
            return "links"
        if not post_type:
            return None
        if row.get("Id") in _FABRICATED and not self.keeps_fabricated:
            return "fabricated"
        if post_type == QUESTION:
            return "questions"
        return "answers" if post_type == ANSWER and self.answers else "other_posts"


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


def read_segment(segment: Segment, file_format: Format, source: str) -> Contents:
    """The contents of a segment of an XML file.

    Raises DupqError naming `source` if the file's first segment does not open as `file_format` says, or its
    last one does not close so.
    """
    data, start, end = segment.data, 0, len(segment.data)
    if segment.position == 0:
        opening = read_opening(data[:LIMIT], file_format.root, source)
        start = opening.length
        if opening.is_empty and segment.reaches_end and ROW_START.search(data, start) is None:
            check_nothing_follows(data[start:], f"{file_format.root}/", source, start)
            return read_rows([], file_format, source)
    if segment.reaches_end:
        end = read_closing(data, file_format.root, source, segment.position)
    return read_rows(rows_in(data, start, end, segment.position), file_format, source)


def read_rows(rows: Iterable[PlainRow | Row | BrokenRow], file_format: Format, source: str) -> Contents:
    """Return the contents of rows, which are in the order of the file."""
    counts = Counter(rows=0)
    chosen: dict[str, list[tuple[PlainRow | Row, Written]]] = {name: [] for name in file_format.tables}
    rejects: list[BrokenRow] = []
    for row in rows:
        counts["rows"] += 1
        if isinstance(row, BrokenRow):
            rejects.append(row)
            continue
        attributes = row.attributes if isinstance(row, PlainRow) else written(row.attributes)
        if isinstance(row, Row):
            counts[_FORBIDDEN] += row.forbidden
        table = file_format.table_of(attributes)
        if table is None:
            rejects.append(BrokenRow(row.position, "no PostTypeId", excerpt(row.content)))
        elif table in chosen:
            chosen[table].append((row, attributes))
        else:
            counts[table] += 1
    tables = {}
    for name, own in chosen.items():
        table, faults = read_columns([attributes for _, attributes in own], name)
        for index, reason in faults.items():
            row = own[index][0]
            rejects.append(BrokenRow(row.position, reason, excerpt(row.content)))
        tables[name], dropped = sort_rows(KINDS[name], table)
        counts["duplicate_ids"] += len(dropped)
        counts[name] = len(tables[name])
    rejects.sort(key=lambda reject: reject.position)
    counts["rejects"] = len(rejects)
    rejected = pa.Table.from_pylist([{"source": source, **reject._asdict()} for reject in rejects], REJECTS)
    return Contents(tables, rejected, counts)


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


_ENDS = ("questions", "answers", "links", "other_posts", "fabricated", "duplicate_ids", "rejects")  # of a row
_FORBIDDEN = "forbidden_characters"  # that XML forbids, which were left out of rows
_POSITIONS = {"xml": "byte", "csv": "line", "json": "row", "parquet": "row"}  # what the position of a reject counts
REJECTS_ALLOWED = 10  # of a site, whatever their share: small sites have few rows
_SHOWN = 100  # characters of a reject


def check_rejects(rows: int, rejects: int, settings: IngestSettings, folder: str) -> None:
    """Raise RejectsError naming `folder`, where the rejects are, if too many of a site's rows are."""
    if rejects > max(REJECTS_ALLOWED, settings.maximum_reject_share * rows):
        raise RejectsError(
            f"{rejects:,} of {rows:,} rows are broken, more than the share of "
            f"{settings.maximum_reject_share:g} that --max-reject-share allows{_commonest(folder)}; "
            f"see {folder} for their reasons"
        )


def _commonest(folder: str) -> str:
    """What most rejects in `folder` are rejected for, how many those are, and the first of them; "" without any."""
    files = [file.uri for file in storage.list_files(folder, ".parquet")]
    counts = Counter[str]()
    for reasons in side_by_side(lambda uri: pc.value_counts(storage.read_table(uri, REJECTS, ["reason"])[0]), files):
        counts.update({counted["values"]: counted["counts"] for counted in reasons.to_pylist()})
    if not counts:
        return ""
    (reason, count), *_ = counts.most_common(1)
    first = next(
        row for uri in files for row in storage.read_table(uri, REJECTS).to_pylist() if row["reason"] == reason
    )
    source, position = first["source"], first["position"]
    shown = " ".join(first["excerpt"].split())[:_SHOWN]
    where = f"{_POSITIONS[Member(source).form]} {position:,} of {source}"
    return f", most often: {reason} ({count:,} rows), first at {where}: {shown!r}"


class Account:
    """What the rows of a site's files became, file by file. Each has `rows`, the sum of all the others.

    Apart from those is how many characters that XML forbids were left out, if any were.
    """

    def __init__(self, sources: Sequence[str], links: int) -> None:
        """`sources` are the names of the files, of which the last `links` hold links."""
        self._sources = sources
        self._files = [Counter[str]() for _ in sources]
        self._posts = len(sources) - links

    def add(self, file: int, counts: Mapping[str, int]) -> None:
        """Count rows of a file in."""
        self._files[file].update(counts)

    def leave_out(self, file: int, table: str, rows: int) -> None:
        """Some rows counted for a table have the id of a later row."""
        self._files[file][table] -= rows
        self._files[file]["duplicate_ids"] += rows

    def reject_doubled(self) -> None:
        """Count rows with the id of a later row as rejects: in a table from elsewhere they are no older versions."""
        for counts in self._files:
            counts["rejects"] += counts.pop("duplicate_ids", 0)

    def check_rejects(self, settings: IngestSettings, folder: str, doubled: int = 0) -> None:
        """Raise RejectsError naming `folder`, where the rejects are, if there are too many, `doubled` ids included."""
        rows, rejects = (sum(counts[name] for counts in self._files) for name in ("rows", "rejects"))
        check_rejects(rows, rejects + doubled, settings, folder)

    def check_questions(self, folder: str) -> None:
        """Raise DupqError if there is not one question; rejects in `folder` may say why."""
        posts = self._sum(0, self._posts)
        if not posts["questions"]:
            others = posts["other_posts"] + posts["fabricated"] + posts["answers"]
            raise DupqError(
                f"{self._sources[0]}: no questions in it, only {others:,} other posts and "
                f"{posts['rejects']:,} unusable rows{_commonest(folder)}"
            )

    def closed(self) -> dict[str, object]:
        """The sums of the site, and `files`, the counts of each. Raises DupqError if they do not add up."""
        for source, counts in zip(self._sources, self._files, strict=True):
            if counts["rows"] != sum(counts[end] for end in _ENDS):
                shown = ", ".join(f"{end} {counts[end]:,}" for end in _ENDS if counts[end])
                raise DupqError(f"{source}: {counts['rows']:,} rows are not the sum of {shown}: a bug in dupq")
        posts, links = self._sum(0, self._posts), self._sum(self._posts, len(self._files))
        sums = {name: posts[name] for name in ("rows", *_ENDS) if name != "links"}
        sums |= {"link_rows": links["rows"], "links": links["links"], "link_rejects": links["rejects"]}
        if forbidden := posts[_FORBIDDEN] + links[_FORBIDDEN]:
            sums[_FORBIDDEN] = forbidden
        return {**sums, "files": dict(zip(self._sources, map(_filled, self._files), strict=True))}

    def _sum(self, start: int, stop: int) -> Counter[str]:
        total = Counter[str]()
        for counts in self._files[start:stop]:
            total.update(counts)
        return total


def _filled(counts: Mapping[str, int]) -> dict[str, int]:
    names = ("rows", *_ENDS, _FORBIDDEN)
    return {name: counts.get(name, 0) for name in names if name in ("rows", "rejects") or counts.get(name)}
