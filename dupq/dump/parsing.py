"""Parses a batch of a dump's rows into tables and rejects, and keeps account of a site's rows: every row of every file
is counted exactly once, so that none is lost unnoticed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.dump.files import Member, Table
from dupq.dump.posts import ANSWER, FABRICATED_IDS, QUESTION, SCHEMAS, RawAttributes, read_columns
from dupq.dump.xml_files import BrokenRow, PlainRow, Row, excerpt
from dupq.errors import DupqError, RejectsError
from dupq.settings.sections import IngestSettings
from dupq.system import thread_map
from dupq.tables import REJECTS

UNIQUE = ("questions", "answers")  # tables in which only the last row of each key counts
_OUTCOMES = ("questions", "answers", "links", "other_posts", "fabricated", "duplicate_ids", "rejects")  # of a row
WITHOUT_ID = "rows_without_id"  # of a table from elsewhere: their row numbers are their ids
NOT_HTTPS = "addresses_not_https"  # of a table from elsewhere: they are left out
_FORBIDDEN = "forbidden_characters"  # which XML forbids, so that they were removed from rows
_POSITIONS = {"xml": "byte", "csv": "line", "json": "row", "parquet": "row"}  # the unit of a reject's position
REJECTS_ALLOWED = 10  # of a site, whatever their share, as small sites have few rows
_SHOWN = 100  # characters of a reject


@dataclass(frozen=True)
class Format:
    """The kind of a file, and whether its answers are read."""

    table: Table
    answers: bool = False

    @property
    def root(self) -> str:
        """The root element of an XML file."""
        return "postlinks" if self.table == "links" else "posts"

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its rows go to."""
        if self.table == "links":
            return ("links",)
        return ("questions", "answers") if self.answers and self.table == "posts" else ("questions",)

    def table_of(self, row: RawAttributes) -> str | None:
        """Return the table that a row goes to, or what else it counts as; None for a post without a type."""
        if self.table == "links":
            return "links"
        post_type = row.get("PostTypeId")
        if not post_type:
            return None
        if row.get("Id") in FABRICATED_IDS and self.table == "posts":
            return "fabricated"
        if post_type == QUESTION:
            return "questions"
        return "answers" if post_type == ANSWER and self.answers else "other_posts"


@dataclass(frozen=True)
class ParsedRows:
    """The tables of a batch of rows, sorted by `order_of`, and its rejects in the order of the file.

    `counts["rows"]` is the sum of all other counts but `forbidden_characters`: those of each table, `rejects`, and rows
    that are none of these. `duplicate_ids` counts rows whose key a later row of the batch has.
    """

    tables: dict[str, pa.Table]
    rejects: pa.Table
    counts: dict[str, int]


def read_rows(rows: Iterable[PlainRow | Row | BrokenRow], file_format: Format, source: str) -> ParsedRows:
    """Parse rows, which are in the order of the file."""
    counts = Counter(rows=0)
    by_table: dict[str, list[tuple[PlainRow | Row, RawAttributes]]] = {name: [] for name in file_format.tables}
    rejects: list[BrokenRow] = []
    for row in rows:
        counts["rows"] += 1
        if isinstance(row, BrokenRow):
            rejects.append(row)
            continue
        if isinstance(row, PlainRow):
            attributes = row.attributes
        else:
            attributes = {name: value.replace("&", "&amp;").encode() for name, value in row.attributes.items()}
            counts[_FORBIDDEN] += row.forbidden
        table = file_format.table_of(attributes)
        if table is None:
            rejects.append(BrokenRow(row.position, "no PostTypeId", excerpt(row.content)))
        elif table in by_table:
            by_table[table].append((row, attributes))
        else:
            counts[table] += 1
    tables = {}
    for name, table_rows in by_table.items():
        table, faults = read_columns([attributes for _, attributes in table_rows], name)
        for index, reason in faults.items():
            row = table_rows[index][0]
            rejects.append(BrokenRow(row.position, reason, excerpt(row.content)))
        tables[name], dropped = sort_rows(name, table)
        counts["duplicate_ids"] += dropped
        counts[name] = len(tables[name])
    rejects.sort(key=lambda reject: reject.position)
    counts["rejects"] = len(rejects)
    rejected = pa.Table.from_pylist([{"source": source, **reject._asdict()} for reject in rejects], REJECTS)
    return ParsedRows(tables, rejected, counts)


def order_of(table: str) -> list[str]:
    """Return the columns that a table's rows are sorted by: its key, or all if rows may share it."""
    names = SCHEMAS[table].names
    if table == "ids":
        return ["question_id", "position"]
    return names[:1] if table in UNIQUE else names


def sort_rows(table: str, rows: pa.Table) -> tuple[pa.Table, int]:
    """Sort rows, which are in the order of the file, and return them with the number of rows that were dropped.

    Of UNIQUE tables only the last row of each key stays.
    """
    kept = rows
    if table in UNIQUE:
        keys = rows.column(0).to_numpy()
        if (keys[1:] > keys[:-1]).all():
            return rows, 0
        kept = rows.filter(pa.array(is_last(keys)))
    return kept.sort_by([(name, "ascending") for name in order_of(table)]), len(rows) - len(kept)


def is_last(keys: np.ndarray) -> np.ndarray:
    """Return for each key whether no later one is equal. Memory: 32 bytes per key."""
    _, from_end = np.unique(keys[::-1], return_index=True)
    last = np.zeros(len(keys), np.bool_)
    last[len(keys) - 1 - from_end] = True
    return last


def check_rejects(rows: int, rejects: int, settings: IngestSettings, folder: str, remedy: str = "") -> None:
    """Raise RejectsError naming `folder`, where the rejects are, if too many of a site's rows are rejected."""
    if rejects > max(REJECTS_ALLOWED, settings.maximum_reject_share * rows):
        raise RejectsError(
            f"{rejects:,} of {rows:,} rows are broken, more than the share of "
            f"{settings.maximum_reject_share:g} that --max-reject-share allows{most_frequent(folder)}; "
            f"see {folder} for their reasons{remedy}"
        )


def most_frequent(folder: str) -> str:
    """Describe the most frequent reason of the rejects in `folder`: its count and its first row; "" without rejects."""
    files = [file.uri for file in storage.list_files(folder, ".parquet")]
    counts = Counter[str]()
    for reasons in thread_map(lambda uri: pc.value_counts(storage.read_table(uri, REJECTS, ["reason"])[0]), files):
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
    """Counts per file what became of a site's rows. `rows` is the sum of all others but `forbidden_characters`."""

    def __init__(self, sources: Sequence[str], links: int) -> None:
        """Begin for the files named `sources`, of which the last `links` hold links."""
        self._sources = sources
        self._files = [Counter[str]() for _ in sources]
        self._posts = len(sources) - links

    def add(self, file: int, counts: Mapping[str, int]) -> None:
        """Add counts of rows of a file."""
        self._files[file].update(counts)

    def leave_out(self, file: int, table: str, rows: int) -> None:
        """Move rows that were counted for a table to `duplicate_ids`, because a later row has their id."""
        self._files[file][table] -= rows
        self._files[file]["duplicate_ids"] += rows

    def reject_repeated(self) -> None:
        """Count rows with the id of a later row as rejects: in a table from elsewhere they are not older versions."""
        for counts in self._files:
            counts["rejects"] += counts.pop("duplicate_ids", 0)

    def check_rejects(self, settings: IngestSettings, folder: str, repeated: int = 0) -> None:
        """Raise RejectsError naming the rejects' `folder` if there are too many, with `repeated` ids."""
        rows, rejects = (sum(counts[name] for counts in self._files) for name in ("rows", "rejects"))
        remedy = '; give each row once; if each file counts from 1, add --id "", which numbers rows by file'
        remedy = remedy if repeated else ""
        check_rejects(rows, rejects + repeated, settings, folder, remedy)

    def check_questions(self, folder: str) -> None:
        """Raise DupqError if there are no questions. The rejects in `folder` may say why."""
        posts = _sum(self._files[: self._posts])
        if not posts["questions"]:
            others = posts["other_posts"] + posts["fabricated"] + posts["answers"]
            raise DupqError(
                f"{self._sources[0]}: no questions in it, only {others:,} other posts and "
                f"{posts['rejects']:,} unusable rows{most_frequent(folder)}"
            )

    def totals(self) -> dict[str, object]:
        """Return the site's totals, and in `files` what is not zero of each, but always `rows` and `rejects`.

        Raises DupqError if they do not add up.
        """
        for source, counts in zip(self._sources, self._files, strict=True):
            if counts["rows"] != sum(counts[outcome] for outcome in _OUTCOMES):
                shown = ", ".join(f"{outcome} {counts[outcome]:,}" for outcome in _OUTCOMES if counts[outcome])
                raise DupqError(f"{source}: {counts['rows']:,} rows are not the sum of {shown}: a bug in dupq")
        posts, links = _sum(self._files[: self._posts]), _sum(self._files[self._posts :])
        sums: dict[str, object] = {name: posts[name] for name in ("rows", *_OUTCOMES) if name != "links"}
        sums |= {"link_rows": links["rows"], "links": links["links"], "link_rejects": links["rejects"]}
        sums |= {name: count for name in (_FORBIDDEN, WITHOUT_ID, NOT_HTTPS) if (count := posts[name] + links[name])}
        names = ("rows", *_OUTCOMES, _FORBIDDEN)
        sums["files"] = {
            source: {name: counts[name] for name in names if counts[name] or name in ("rows", "rejects")}
            for source, counts in zip(self._sources, self._files, strict=True)
        }
        return sums


def _sum(files: Iterable[Counter[str]]) -> Counter[str]:
    return sum(files, Counter[str]())
