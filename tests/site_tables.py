"""A site's tables as ingest makes them, in this process: found, cut into parts, planned, merged, accounted for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dupq import storage
from dupq.dump.accounting import Account
from dupq.dump.files import DumpSite
from dupq.dump.parsing import KINDS
from dupq.dump.shards.parts import find_part
from dupq.dump.shards.planning import ShardLimits, plan_shards
from dupq.dump.units import format_of, units
from dupq.settings.ingest import IngestSettings
from dupq.stages.ingest.tasks import SCHEMAS, Ingest, read_unit, write_accepted, write_shard
from dupq.tables import REJECTS


@dataclass(frozen=True)
class SiteTables:
    tables: dict[str, pa.Table]
    rejects: pa.Table
    counts: dict[str, Any]

    @property
    def questions(self) -> pa.Table:
        return self.tables["questions"]

    @property
    def links(self) -> pa.Table:
        return self.tables["links"]


def read_site(site: DumpSite, folder: Path, answers: bool = False, shard_rows: int = 50_000) -> SiteTables:
    """Everything of a site; `folder` takes what is written on the way."""
    job = Ingest(str(folder), IngestSettings(shard_rows=shard_rows), answers)
    work = str(folder / "work")
    account = Account([member.source for member in (*site.posts, *site.links)], len(site.links))
    keys = {table: [] for table in job.tables(site)}
    reject_files = []
    for unit in units(site):
        for part, _ in read_unit(unit, job, work):
            account.add(unit.file, part.info.counts)
            assert find_part_of(part.info.keys, work, format_of(unit, job.reading.choice).tables) == part.info.counts
            reject_files += [part.rejects] if part.rejects else []
            for table, found in part.info.keys.items():
                keys[table].append(found)
    tables: dict[str, pa.Table] = {}
    accepted = str(folder / "accepted.parquet")
    for table in job.tables(site):  # answers last
        if table == "answers":
            shards = storage.list_files(str(folder / "questions"), ".parquet")
            write_accepted([shard.uri for shard in shards], accepted)
        files = [SCHEMAS[table].empty_table()]
        for shard in plan_shards(keys[table], KINDS[table].is_unique, ShardLimits(shard_rows)):
            place = (table, str(folder / table), accepted if table == "answers" else None)
            for file, rows in write_shard(shard, *place).items():
                account.leave_out(file, table, rows)
            files.append(storage.read_table(f"{folder}/{table}/part-{shard.number:05d}.parquet", SCHEMAS[table]))
            assert files[-1].num_rows <= shard_rows or table == "links"
        tables[table] = pa.concat_tables(files)
    found_rejects = pa.concat_tables([REJECTS.empty_table(), *map(storage.read_table, reject_files)])
    account.check_questions(f"{work}/rejects")
    return SiteTables(tables, found_rejects, account.closed())


def find_part_of(keys: dict[str, Any], work: str, tables: tuple[str, ...]) -> dict[str, int] | None:
    """What a rerun finds counted of a part."""
    name = storage.name(keys[tables[0]].part).removesuffix(".arrow")
    found = find_part(name, work, tables)
    return None if found is None else found.counts
