"""What the tasks of ingest do: read a unit of a dump into parts, plan shards, write one."""

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dupq import runs, storage
from dupq.config import IngestSettings
from dupq.dump.columns import Columns
from dupq.dump.contents import KINDS
from dupq.dump.members import DumpSite
from dupq.dump.parts import PartInfo, find_part, keys_of, member_of, merge, rejects_uri, write_part
from dupq.dump.pieces import Piece, Reading, Unit, format_of, pieces
from dupq.dump.posts import PostChoice
from dupq.dump.sharding import ShardLimits, ShardPlan, plan_shards
from dupq.dump.streams import UnpackLimits
from dupq.stages.memory import peak_mb, reset_peak
from dupq.tables import ANSWERS, LINKS, QUESTIONS

SCHEMAS = {"questions": QUESTIONS, "links": LINKS, "answers": ANSWERS}

_PARSERS = 2  # threads that parse and write what one unpacker gives

_ACCEPTED = pa.schema([pa.field("answer_id", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class Ingest:
    """One call of the stage: where it writes, and how it reads."""

    output: str
    settings: IngestSettings
    answers: bool = False
    columns: Columns | None = None  # of tables from elsewhere

    @property
    def reading(self) -> Reading:
        """How dumps are read."""
        limits = UnpackLimits(self.settings.maximum_unpack_ratio, self.settings.maximum_unpacked_bytes)
        return Reading(PostChoice(self.answers, self.settings.maximum_body_bytes), limits, self.columns)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are written, besides the rejects."""
        return ("questions", "links", "answers") if self.answers else ("questions", "links")


class ReadPart(NamedTuple):
    """A part that is written. `packed`: the bytes of the file that it took up."""

    packed: int
    info: PartInfo
    rejects: str | None  # the file of its rejects


def mark(output: str, site: str) -> str:
    """The file that says that a site is done, from what, and what was counted."""
    return storage.join(output, "ingest", f"{site}.json")


def shard_uri(folder: str, number: int) -> str:
    """The file of a shard."""
    return storage.join(folder, f"part-{number:05d}.parquet")


def made_from(site: DumpSite, job: Ingest) -> dict[str, Any]:
    """What the tables of a site depend on: the content of its files, settings, and dupq's code.

    `parts` is what its parts depend on; how they are cut into shards can change without reading the dump again.
    """
    files = [*site.posts, *site.links]
    parts = {
        "files": [[storage.checksum(member.uri), member.name, member.form] for member in files],
        "links": len(site.links),
        "reading": repr(job.reading),
        "answers": job.answers,
        "code": runs.code_fingerprint(),
    }
    return {"parts": parts, "shard_rows": job.settings.shard_rows}


def read_unit(unit: Unit, job: Ingest, work: str) -> Iterator[tuple[ReadPart, float]]:
    """Write the parts of a unit; gives them in their order as they come, and the peak memory (MB) so far.

    Unpacking goes on while threads parse: at most one piece more than there are threads is held.
    """
    reset_peak()
    tables = format_of(unit, job.reading.choice).tables
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


def plan(parts: Sequence[str], table: str, limits: ShardLimits) -> list[ShardPlan]:
    """The shards of parts that are not in order; their keys are held, some 55 bytes a row."""
    return plan_shards([keys_of(part, KINDS[table]) for part in parts], KINDS[table].is_unique, limits)


def write_shard(shard: ShardPlan, table: str, folder: str, accepted: str | None) -> dict[int, int]:
    """Write a shard, unless an earlier attempt did; how many rows of each file it left out, for a later one's id.

    Memory: a row group and the finished file.
    """
    uri = shard_uri(folder, shard.number)
    done = uri.removesuffix(".parquet") + ".json"
    plan_text = repr(shard)
    if storage.exists(done) and storage.exists(uri):
        before = storage.read_json(done)
        if before["plan"] == plan_text:
            return {int(file): rows for file, rows in before["left_out"].items()}
    left_out: dict[int, int] = {}
    groups = _row_groups(shard, table, accepted, left_out)
    storage.write_row_groups(uri, groups, SCHEMAS[table])
    storage.write_json(done, {"plan": plan_text, "left_out": left_out})
    return left_out


def _row_groups(shard: ShardPlan, table: str, accepted: str | None, left_out: dict[int, int]) -> Iterator[pa.Table]:
    for slices in shard.groups:
        rows, dropped = merge(slices, KINDS[table])
        for part, count in dropped.items():
            left_out[member_of(part)] = left_out.get(member_of(part), 0) + count
        if accepted is not None:
            is_accepted = pc.is_in(rows.column("answer_id"), _accepted_ids(accepted))
            rows = rows.append_column(ANSWERS.field("is_accepted"), is_accepted)
        yield rows


@functools.lru_cache(maxsize=1)
def _accepted_ids(uri: str) -> pa.ChunkedArray:
    return storage.read_table(uri).column("answer_id")


def write_accepted(questions: Sequence[str], uri: str) -> None:
    """Write the ids of all accepted answers to the file `uri`; they are held, 8 bytes a question."""
    columns = [storage.read_table(shard, columns=["accepted_answer_id"]).column(0) for shard in questions]
    ids = pa.chunked_array([chunk for column in columns for chunk in column.drop_null().chunks], pa.int64())
    storage.write_table(uri, pa.Table.from_arrays([ids], schema=_ACCEPTED), _ACCEPTED)
