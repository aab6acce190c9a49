"""The ingest job: dumps → questions, answers, links, rejects.

Several sites are ingested at a time, each by a thread of the driver, which holds no texts: tasks read the site's dump
and write shards (`dupq/stages/ingest.py`).

All this happens in `_parts/SITE`. When a site is whole and all its rows are accounted for, its shards move next to the
earlier ones, under new names; then one write of the site's record, `ingest/SITE.json`, replaces the earlier shards by
the new ones, and the earlier ones are deleted (`dupq/archive.py`). So a broken dump costs no tables, and no reader sees
half a site. A rerun skips a site whose dump, settings and code are those of its record and whose tables are complete.
An interrupted site is resumed: what was finished of it is kept.
"""

import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from dupq import archive, storage
from dupq.archive import all_counts
from dupq.dump.files import DumpSite
from dupq.dump.parsing import WITHOUT_ID, check_rejects, most_frequent
from dupq.dump.reading import Ingest
from dupq.dump.sites import Failure
from dupq.errors import FAULT, DupqError
from dupq.job import cluster, lease, progress
from dupq.job.cluster import versions
from dupq.job.lease import Lease
from dupq.job.progress import Line
from dupq.job.run import Run
from dupq.job.tasks import run_task
from dupq.pipelines.arguments import Checked, IngestJob
from dupq.stages.ingest import (
    SCHEMAS,
    MadeFrom,
    SiteRows,
    SiteTable,
    inputs_of,
    make_shards,
    read_site,
    reject_repeated,
)
from dupq.system import thread_map
from dupq.tables import REJECTS

_log = logging.getLogger(__name__)
_SITES = 16  # at once at least on a cluster that may grow, so that it does


def ingest(job: IngestJob, checked: Checked | None = None) -> dict[str, dict[str, object]]:
    """Write the tables of all sites, and return the counts of each site, as manifest.json has them.

    `checked` is what `job.check()` returned, if it was called before. Raises DupqError if a dump is missing, damaged or
    without questions, or has too many broken rows; if there are several dumps, after the others are done.
    """
    progress.phase("reading the questions")
    (sites, failed, passed_over), plan = checked or job.check()
    for uri, why in passed_over.items():
        _log.warning(f"passed over: {uri} ({why})", extra={"fields": {"passed_over": uri}})
    try:
        peak = ingest_sites(sites, plan, failed)
    finally:  # finished sites count even if others failed
        all_sites = all_counts(plan.output)
        manifest = {"sites": all_sites, "settings": vars(plan.settings), "versions": versions()}
        if passed_over:
            manifest["passed_over"] = passed_over
        storage.write_json(storage.join(plan.output, "manifest.json"), manifest)
    counts = {site.site: all_sites[site.site] for site in sites}
    for site in sites:
        _log_counts(site, counts[site.site], storage.join(plan.output, "rejects", f"site={site.site}"), job)
    also = f"   files passed over {len(passed_over):,}" if passed_over else ""
    _log.info(f"archive: {plan.output}   peak memory of a task {peak:.0f} MB{also}")
    return counts


def _log_counts(site: DumpSite, counted: Mapping[str, object], rejects: str, job: IngestJob) -> None:
    """Log what was counted of a site, whose rejects are in a folder."""
    name, sums = site.site, {name: value for name, value in counted.items() if name != "files" and value}
    shown = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sums.items())
    ids = f"; ids are those of the column {site.id}" if site.id else ""
    _log.info(f"{name}: {shown}{ids}", extra={"fields": {"site": name, **sums}})
    if WITHOUT_ID in sums:
        _log.warning(
            f"{name}: no column of ids, so ids are row numbers, and verdicts hold only while no row moves; name "
            f"the column with --id COLUMN{job.again('--id COLUMN')}"
        )
    if sums.keys() & {"rejects", "link_rejects"}:
        _log.warning(f"{name}: rejected rows are left out{most_frequent(rejects)}; {rejects} has the reasons")


def ingest_sites(sites: Sequence[DumpSite], job: Ingest, failed: Sequence[Failure] = ()) -> float:
    """Write the tables of every site below the output, hive-partitioned, and return the peak memory (MB) of a task.

    All sites are tried. If some fail, or are in `failed` already, raises DupqError at the end, with a line for each.
    """
    shared = _Shared(sum(map(packed_bytes, sites)))
    at_once = max(_SITES, cluster.cpus()) if cluster.may_grow() else cluster.cpus()  # it may have no CPU yet
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(sites), at_once)))
    errors, peak = list(failed), 0.0
    try:
        futures = [(site.site, pool.submit(_ingest_site, site, job, shared)) for site in sites]
        for name, future in futures:
            try:
                peak = max(peak, future.result())
            except DupqError as error:
                errors.append((name, error))
            except Exception as error:  # a bug: the other sites continue
                _log.warning(f"{name} failed", exc_info=error)
                first_line = next(iter(str(error).splitlines()), "")
                message = f"{type(error).__name__}: {first_line} (a fault of dupq; the traceback is above)"
                errors.append((name, DupqError(message, FAULT)))
    finally:
        shared.stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
    with contextlib.suppress(OSError):  # unless a site is unfinished; object stores have no empty folders
        os.rmdir(storage.join(job.output, archive.UNFINISHED))
    if errors:
        raise _all_of(errors, len(sites) + len(failed))
    return peak


def _all_of(errors: Sequence[Failure], sites: int) -> DupqError:
    """Return the error of a job in which some of so many sites failed, with a line for each."""
    if sites == 1:
        return errors[0][1]
    lines = [f"{name}: {error}" for name, error in sorted(errors, key=lambda failure: failure[0])]
    codes = {error.exit_code for _, error in errors}
    said = "\n  ".join([f"{len(errors)} of {sites} sites failed:", *lines])
    return DupqError(said, *(codes if len(codes) == 1 else ()))


def packed_bytes(site: DumpSite) -> int:
    """Return the size of a site's files as they are stored."""
    return sum(map(storage.size, {member.uri for member in (*site.posts, *site.links)}))


def _ingest_site(site: DumpSite, job: Ingest, shared: "_Shared") -> float:
    """Ingest a site, unless an earlier run finished it, and return the peak memory (MB) of a task."""
    run = Run(storage.join(job.output, archive.UNFINISHED, site.site), "tables", part_of=f"ingest: {site.site}")
    rows, record = SiteRows(site, job), archive.record_of(job.output, site.site)
    with lease.held(storage.join(job.output, "ingest", "_at_work", site.site), record) as its_lease:
        files = _SiteFiles(site.site, job, run.uri, its_lease)
        made_from = run_task(f"ingest: {site.site}", run.report, inputs_of, site, job)
        if not files.are_made_from(made_from):
            run.discard_stale(made_from["parts"])
            _read(run, site, job, rows, files, shared)
            shards = make_shards(run, rows, job.settings.shard_rows)
            if site.is_table:
                rows.account.reject_repeated()
            shared.check()
            files.replace(shards, made_from, rows.account.totals())
    shared.add(packed_bytes(site) - rows.packed_bytes)
    return run.report.peak_memory_mb


def _read(run: Run, site: DumpSite, job: Ingest, rows: SiteRows, files: "_SiteFiles", shared: "_Shared") -> None:
    """Read a site and publish its rejects, even if it fails.

    Raises DupqError if too many rows are rejected, or there is no question.
    """
    try:
        with contextlib.closing(read_site(run, site, job, shared.stop.is_set)) as batches:
            for batch in batches:
                shared.add(batch.packed_bytes)
                rows.add(batch)
        if site.is_table:
            reject_repeated(run, rows, site.site)
    finally:
        if not shared.stop.is_set():
            files.replace_rejects(rows.rejects)
    rows.account.check_rejects(job.settings, files.folder("rejects"), rows.repeated)
    rows.account.check_questions(files.folder("rejects"))


class _SiteFiles:
    """The files of a site's tables in the archive, which one job at a time replaces."""

    def __init__(self, site: str, job: Ingest, unfinished: str, its_lease: Lease) -> None:
        """Use the lease that this job holds. `unfinished` is the folder of the tables until they are published."""
        self._site, self._job, self._unfinished, self._lease = site, job, unfinished, its_lease
        self._record = archive.record_of(job.output, site)

    def folder(self, table: str) -> str:
        """Return the folder of one of the site's tables."""
        return storage.join(self._job.output, table, f"site={self._site}")

    def are_made_from(self, made_from: MadeFrom) -> bool:
        """Return whether the site is finished. Raises DupqError if it has more rejects than the settings allow."""
        if not storage.exists(self._record):
            return False
        record, files = archive.read_record(self._record), self._listed()
        sizes = {path: file.size for path, file in files.items()}
        if record["made_from"] != made_from or not record["tables"].items() <= sizes.items():
            return False
        if storage.exists(self._unfinished) or len(sizes) > len(record["tables"]):  # it was interrupted
            self._clear({files[path].uri for path in record["tables"]})
        counts = record["counts"]
        rows, rejects = counts["rows"] + counts["link_rows"], counts["rejects"] + counts["link_rejects"]
        check_rejects(rows, rejects, self._job.settings, self.folder("rejects"))
        return True

    def replace_rejects(self, rejects: Mapping[str, str]) -> None:
        """Replace the site's rejects by these files (URIs by name)."""
        self._check_held()
        folder = self.folder("rejects")
        files = [storage.join(folder, name) for name in rejects or ["part-none.parquet"]]
        for target, uri in zip(files, rejects.values(), strict=False):
            storage.write_bytes(target, storage.read_bytes(uri))
        if not rejects:  # a table without rows still needs a file
            storage.write_table(files[0], REJECTS.empty_table(), REJECTS)
        storage.clear(folder, files)

    def replace(self, shards: Mapping[str, SiteTable], made_from: MadeFrom, counts: dict[str, object]) -> None:
        """Replace the site's earlier shards by the new ones, and write its record."""
        self._check_held()
        suffix = hashlib.sha256(storage.json_bytes(made_from)).hexdigest()[:12]  # distinguishes them from other inputs'
        moves = {
            storage.join(self.folder(table), f"part-{number:05d}-{suffix}.parquet"): uri
            for table, made in shards.items()
            for number, uri in enumerate(made.files)
        }
        thread_map(lambda target: storage.move(moves[target], target), moves)
        files = {*moves, *(file.uri for file in storage.list_files(self.folder("rejects"), ".parquet"))}
        self._check_held()
        sizes = {path: file.size for path, file in self._listed().items() if file.uri in files}
        storage.write_json(self._record, {"made_from": made_from, "counts": counts, "tables": sizes})
        self._clear(files)

    def _clear(self, files: Collection[str]) -> None:
        """Delete the shards that are not among `files`, which the site's record names, and all unfinished work."""
        self._check_held()
        for table in SCHEMAS:
            storage.clear(self.folder(table), files)
        storage.delete_folder(self._unfinished)

    def _listed(self) -> dict[str, storage.File]:
        """Return the files of the site's tables, by TABLE/NAME."""
        folders = [(table, self.folder(table)) for table in (*SCHEMAS, "rejects")]
        files = [(table, file) for table, folder in folders for file in storage.list_files(folder, ".parquet")]
        return {f"{table}/{file.relative}": file for table, file in files}

    def _check_held(self) -> None:
        """Raise LeaseError if another run has taken over the site, even since the last heartbeat."""
        self._lease.beat()
        self._lease.check()


class _Shared:
    """What the sites of one job share: a progress line, and a signal to stop."""

    def __init__(self, size: int) -> None:
        """Begin the progress line of a job whose files have `size` bytes."""
        self.stop = threading.Event()
        self._line = Line("MB of the dump", size >> 20)
        self._read = 0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise DupqError if the job was aborted."""
        if self.stop.is_set():
            raise DupqError("given up")

    def add(self, read: int) -> None:
        """Show that `read` more bytes of the files are done. Raises as `check`."""
        self.check()
        with self._lock:
            self._read += read
            self._line.show(self._read >> 20)
