"""The tasks of ingest: read a unit of a dump into parts, sort parts, write a shard; and the folder in
which the next attempt goes on.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

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
from dupq.job.tasks import give_back, peak_mb, reset_peak
from dupq.runs import writer
from dupq.storage import read_whole
from dupq.tables import ANSWERS, IDS, LINKS, QUESTIONS, REJECTS
from dupq.text.keys import are_among


def begin(folder: str, parts_from: object) -> str:
    """Clear `folder` of parts of anything else; returns where those from `parts_from` are, or go."""
    work = hashlib.sha256(storage.json_bytes(parts_from)).hexdigest()[:16]
    if read_whole(_mark(folder), dict[str, str]) != {"work": work}:
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
    tables = unit.tables(job.answers)
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
