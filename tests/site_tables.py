"""A site's tables as ingest makes them, in this process: read into partitions, sorted, written as shards, counted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dupq import storage
from dupq.dump.files import DumpSite
from dupq.dump.parsing import Account
from dupq.dump.reading import Ingest, file_ranges
from dupq.settings.sections import IngestSettings
from dupq.stages.ingest import (
    SCHEMAS,
    Partition,
    plan_shards,
    read_range,
    shard_uri,
    sort_partitions,
    write_accepted_ids,
    write_shard,
)
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
    parts: dict[str, list[Partition]] = {table: [] for table in job.tables(site)}
    reject_files = []
    for file_range in file_ranges(site):
        for batch, _ in read_range(file_range, job, work):
            account.add(file_range.file, batch.counts)
            reject_files += [batch.rejects] if batch.rejects else []
            for table, found in batch.partitions.items():
                parts[table].append(found)
    tables: dict[str, pa.Table] = {}
    accepted = str(folder / "accepted.parquet")
    for table, found in parts.items():  # answers last
        if table == "answers":
            shards = storage.list_files(str(folder / "questions"), ".parquet")
            write_accepted_ids([shard.uri for shard in shards], accepted)
        ordered, left_out = sort_partitions(found, table, work)
        for file, rows in left_out.items():
            account.leave_out(file, table, rows)
        files = [SCHEMAS[table].empty_table()]
        for number, ranges in enumerate(plan_shards(ordered, shard_rows)):
            uri = shard_uri(str(folder / table), number)
            write_shard(uri, ranges, table, accepted if table == "answers" else None)
            files.append(storage.read_table(uri, SCHEMAS[table]))
            assert files[-1].num_rows <= shard_rows
        tables[table] = pa.concat_tables(files)
    found_rejects = pa.concat_tables([REJECTS.empty_table(), *map(storage.read_table, reject_files)])
    account.check_questions(f"{work}/rejects")
    return SiteTables(tables, found_rejects, account.totals())
