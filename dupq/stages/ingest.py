"""dumps → questions, links, rejects: one task a site.

A task holds the tables of its site. What a site was made from is kept in `ingest/SITE.json`, written last: a rerun
skips a site whose dump, settings and code are the same, and makes any other anew.
"""

from typing import Any

import pyarrow as pa

from dupq import runs, storage
from dupq.config import IngestSettings
from dupq.dump.archives import DumpSite
from dupq.dump.site import SiteTables, read_site
from dupq.errors import DupqError
from dupq.stages.tasks import Counts, Report, run_tasks
from dupq.tables import LINKS, QUESTIONS, REJECTS

_TABLES = ("questions", "links", "rejects")


def ingest(sites: list[DumpSite], settings: IngestSettings, output: str) -> Report:
    """Write the tables of every site below `output`, hive-partitioned by site, in shards of a set size."""
    code = runs.code_fingerprint()
    return run_tasks("ingest", _ingest_site, [(site, settings, code, output) for site in sites])


def counts_of(output: str, site: str) -> dict[str, int]:
    """What the ingest of a site counted."""
    return storage.read_json(_mark(output, site))["counts"]


def _mark(output: str, site: str) -> str:
    return storage.join(output, "ingest", f"{site}.json")


def _ingest_site(site: DumpSite, settings: IngestSettings, code: str, output: str) -> Counts:
    made_from = _made_from(site, settings, code)
    mark = _mark(output, site.site)
    if storage.exists(mark):
        before = storage.read_json(mark)
        if before["made_from"] == made_from:
            return _task_counts(before["counts"])
        storage.delete(mark)
    tables = read_site(site)
    for name in _TABLES:
        for file in storage.list_files(_folder(output, name, site.site), ".parquet"):
            storage.delete(file.uri)
    _write(output, "rejects", site.site, tables.rejects, REJECTS, settings.shard_rows)
    _check_rejects(tables, site, settings, output)
    _write(output, "questions", site.site, tables.questions, QUESTIONS, settings.shard_rows)
    _write(output, "links", site.site, tables.links, LINKS, settings.shard_rows)
    storage.create(mark, storage.json_bytes({"made_from": made_from, "counts": tables.counts}))
    return _task_counts(tables.counts)


def _made_from(site: DumpSite, settings: IngestSettings, code: str) -> dict[str, Any]:
    members = [site.posts, *([site.links] if site.links else [])]
    files = {member.uri: storage.checksum(member.uri) for member in members}
    return {"files": sorted(files.values()), "settings": vars(settings), "code": code}


def _folder(output: str, table: str, site: str) -> str:
    return storage.join(output, table, f"site={site}")


def _write(output: str, name: str, site: str, table: pa.Table, schema: pa.Schema, rows: int) -> None:
    for index, start in enumerate(range(0, max(1, len(table)), rows)):
        place = storage.join(_folder(output, name, site), f"part-{index:05d}.parquet")
        storage.write_table(place, table.slice(start, rows), schema)


def _check_rejects(tables: SiteTables, site: DumpSite, settings: IngestSettings, output: str) -> None:
    rejects = len(tables.rejects)
    rows = tables.counts["rows"] + tables.counts["link_rows"]
    if rejects > max(settings.rejects_allowed, settings.maximum_reject_share * rows):
        raise DupqError(
            f"{site.posts.uri}: {rejects} of {rows} rows are broken, more than ingest.maximum_reject_share "
            f"{settings.maximum_reject_share} allows; see {_folder(output, 'rejects', site.site)} for their reasons"
        )


def _task_counts(counts: dict[str, int]) -> Counts:
    rejects = counts["rejects"] + counts["link_rejects"]
    return {
        "rows_in": counts["rows"] + counts["link_rows"],
        "rows_out": counts["questions"] + counts["links"],
        "rejects": rejects,
    }
