"""A site's tables as ingest makes them: read into partitions, sorted, written as shards, counted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from inline import without_ray

from dupq import storage
from dupq.dump.files import DumpSite
from dupq.dump.reading import Ingest
from dupq.job.run import Run
from dupq.settings.sections import IngestSettings
from dupq.stages.ingest import SCHEMAS, SiteRows, make_shards
from dupq.stages.ingest import read_site as read_batches
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


@without_ray()
def read_site(site: DumpSite, folder: Path, answers: bool = False, shard_rows: int = 50_000) -> SiteTables:
    """Everything of a site; `folder` takes what is written on the way."""
    job = Ingest(str(folder), IngestSettings(shard_rows=shard_rows), answers)
    run, rows = Run(str(folder), "tables"), SiteRows(site, job)
    for batch in read_batches(run, site, job, lambda: False):
        rows.add(batch)
    tables = {}
    for table, shards in make_shards(run, rows, shard_rows).items():
        read = [shards.read(number) for number in range(shards.partitions)]
        assert max(map(len, read)) <= shard_rows
        tables[table] = pa.concat_tables([SCHEMAS[table].empty_table(), *read])
    found_rejects = pa.concat_tables([REJECTS.empty_table(), *map(storage.read_table, rows.rejects.values())])
    rows.account.check_questions(f"{run.folder}/rejects")
    return SiteTables(tables, found_rejects, rows.account.totals())
