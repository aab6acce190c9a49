"""The tasks of ingest: read a unit of a dump into parts, sort parts, write a shard; with their progress, and the
folder in which the next attempt goes on.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from typing_extensions import TypedDict

from dupq import archive, storage
from dupq.dump.files import DumpSite
from dupq.dump.parts import (
    Part,
    PartInfo,
    Shard,
    all_rows,
    find_part,
    read_accepted_ids,
    rejects_uri,
    row_groups,
    write_part,
)
from dupq.dump.table_files import doubled
from dupq.dump.units import Ingest, Piece, Unit, pieces
from dupq.execution.tasks import give_back, peak_mb, reset_peak
from dupq.json_files import read_whole
from dupq.runs import log, writer
from dupq.runs.inventory import size_of
from dupq.runs.log import duration
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS
from dupq.text.keys import are_among

_log = logging.getLogger(__name__)
_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 10.0


class IngestProgress:
    """Counts what was read, from any thread."""

    def __init__(self, total: int) -> None:
        """`total` is the size in bytes of all files, as they are, packed or not."""
        self._total = total
        self._read = self._rows = self._rejects = 0
        self._is_live = log.is_live()
        self._start = self._shown = time.monotonic()
        self._lock = threading.Lock()

    def add(self, read: int, rows: int, rejects: int) -> None:
        """`read` more bytes of files, with so many rows, are done."""
        with self._lock:
            self._read += read
            self._rows += rows
            self._rejects += rejects
            now = time.monotonic()
            if now - self._shown >= (_LIVE_SECONDS if self._is_live else _PLAIN_SECONDS):
                self._shown = now
                self._print(self.line(now - self._start))

    def end(self) -> None:
        """Take the live line away."""
        log.clear()

    def line(self, seconds: float) -> str:
        """What there is to say after `seconds`."""
        share = min(1.0, self._read / max(1, self._total))
        left = f"{duration(seconds / share - seconds)} left" if share else "time left unknown"
        return (
            f"ingest: {size_of(self._read)} of {size_of(self._total)} ({share:.0%}), {self._rows:,} rows, "
            f"{self._rows / max(seconds, 1e-9):,.0f} rows/s, {self._rejects:,} rejects, {left}"
        )

    def _print(self, line: str) -> None:
        if self._is_live:
            log.draw(line)
        else:
            told = {"step": "ingest", "done": self._read, "total": self._total}
            log.progress_line(_log, line, told | {"rows": self._rows, "rejects": self._rejects})


class _Work(TypedDict):
    work: str


def begin(folder: str, parts_from: object) -> str:
    """Clear `folder` of parts of anything else; returns where those from `parts_from` are, or go."""
    work = hashlib.sha256(storage.json_bytes(parts_from)).hexdigest()[:16]
    if read_whole(_mark(folder), _Work) != {"work": work}:
        storage.delete_folder(folder)
        storage.write_json(_mark(folder), {"work": work})
    return storage.join(folder, work)


def is_there(folder: str) -> bool:
    """Whether an attempt was cut off while it worked in `folder`."""
    return storage.exists(_mark(folder))


def _mark(folder: str) -> str:
    return storage.join(folder, archive.BEGUN)


SCHEMAS = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS, "ids": IDS}

_PARSERS = 2  # threads that parse and write what one unpacker gives


class ReadPart(NamedTuple):
    """A part that is written. `packed`: the bytes of the file that it took up."""

    packed: int
    info: PartInfo
    rejects: str | None  # the file of its rejects


def shard_uri(folder: str, number: int, made: str = "") -> str:
    """The file of a shard; `made` tells those of one dump and settings from those of another."""
    return storage.join(folder, f"part-{number:05d}{made}.parquet")


def made_from(site: DumpSite, job: Ingest) -> dict[str, object]:
    """What the tables of a site depend on: the content of its files, settings, and the version of ingest.

    `parts` is what its parts depend on; how they are cut into shards can change without reading the dump again.
    """
    files = [*site.posts, *site.links]
    parts = {
        "files": [[storage.checksum(member.uri), member.name, member.form] for member in files],
        "links": len(site.links),
        "is_table": site.is_table,
        "reading": repr(job.reading),
        "answers": job.answers,
        "algorithms": writer.INGEST_VERSIONS,
    }
    return {"parts": parts, "shard_rows": job.settings.shard_rows}


def read_unit(unit: Unit, job: Ingest, work: str) -> Iterator[tuple[ReadPart, float]]:
    """Write the parts of a unit; gives them in their order as they come, and the peak memory (MB) so far.

    Unpacking goes on while threads parse: at most one piece more than there are threads is held.
    """
    give_back()
    reset_peak()
    tables = unit.tables(job.reading.choice)
    begun: deque[Future[ReadPart]] = deque()
    parsers = _PARSERS if unit.member.is_packed else 1
    with ThreadPoolExecutor(parsers) as pool:
        for piece in pieces(unit, job.reading):
            begun.append(pool.submit(_read_part, piece, tables, work))
            if len(begun) > parsers:
                yield begun.popleft().result(), peak_mb()
        while begun:
            yield begun.popleft().result(), peak_mb()


def _read_part(piece: Piece, tables: tuple[str, ...], work: str) -> ReadPart:
    rejects = storage.join(work, "rejects")
    info = find_part(piece.name, work, tables)
    if info is None:
        info = write_part(piece.read(), piece.name, work, rejects)
    return ReadPart(piece.packed, info, rejects_uri(rejects, piece.name) if info.counts["rejects"] else None)


def write_shard(shard: Shard, table: str, folder: str, accepted: str | None) -> None:
    """Write a shard, unless an earlier attempt did. Memory: a row group and the finished file."""
    uri = shard_uri(folder, shard.number)
    if not storage.exists(uri):
        groups = row_groups(shard)
        storage.write_row_groups(uri, groups if accepted is None else _judged(groups, accepted), SCHEMAS[table])


def _judged(groups: Iterable[pa.Table], accepted: str) -> Iterator[pa.Table]:
    """Answers with whether they are accepted."""
    for rows in groups:
        marks = are_among(read_accepted_ids(accepted), rows.column("answer_id").to_numpy())
        yield rows.append_column(ANSWERS.field("is_accepted"), pa.array(marks))


def reject_doubled(parts: Sequence[Part], uri: str) -> tuple[int, str]:
    """Write the rejects of a table from elsewhere whose id a later row has; how many these are, and the first's row."""
    rejects = doubled(all_rows(part.uri) for part in parts)
    if not len(rejects):
        return 0, ""
    storage.write_table(uri, rejects, REJECTS)
    first = rejects.slice(0, 1).to_pylist()[0]
    return len(rejects), f"{first['position']:,}: {first['excerpt']}"
