"""The tasks of ingest: read a unit of a dump into parts, sort parts, write a shard."""

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.dump.accepted_answers import is_accepted, read_accepted_ids, write_accepted_ids
from dupq.dump.archives.streams import UnpackLimits
from dupq.dump.columns import BY_NAME, Columns
from dupq.dump.files import DumpSite
from dupq.dump.parts import Part, PartInfo, Shard, all_rows, find_part, rejects_uri, row_groups, write_part
from dupq.dump.table_files import doubled
from dupq.dump.units import Piece, Reading, Unit, pieces
from dupq.dump.xml.posts import PostChoice
from dupq.execution.memory import give_back, peak_mb, reset_peak
from dupq.runs import versions
from dupq.settings.ingest import IngestSettings
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS

SCHEMAS = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS, "ids": IDS}

_PARSERS = 2  # threads that parse and write what one unpacker gives


@dataclass(frozen=True)
class Ingest:
    """One call of the stage: where it writes, and how it reads."""

    output: str
    settings: IngestSettings
    answers: bool = False
    columns: Columns = BY_NAME  # of tables from elsewhere

    @property
    def reading(self) -> Reading:
        """How dumps are read."""
        return Reading(PostChoice(self.answers), UnpackLimits(), self.columns)

    def tables(self, site: DumpSite) -> tuple[str, ...]:
        """The tables of a site that are written, besides the rejects."""
        return ("questions", "links", *["answers"] * self.answers, *["ids"] * site.is_table)


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
        "algorithms": versions.INGEST,
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
        marks = is_accepted(rows.column("answer_id"), _accepted_ids(accepted))
        yield rows.append_column(ANSWERS.field("is_accepted"), marks)


@functools.lru_cache(maxsize=1)
def _accepted_ids(uri: str) -> np.ndarray:
    return read_accepted_ids(uri)


def reject_doubled(parts: Sequence[Part], uri: str) -> tuple[int, str]:
    """Write the rejects of a table from elsewhere whose id a later row has; how many these are, and the first's row."""
    rejects = doubled(all_rows(part.uri) for part in parts)
    if not len(rejects):
        return 0, ""
    storage.write_table(uri, rejects, REJECTS)
    first = rejects.slice(0, 1).to_pylist()[0]
    return len(rejects), f"{first['position']:,}: {first['excerpt']}"


def write_accepted(questions: Sequence[str], uri: str) -> None:
    """Write the ids of all accepted answers to the file `uri`."""
    write_accepted_ids(questions, uri)
