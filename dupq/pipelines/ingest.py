"""The ingest job: dumps → questions, answers, links, rejects.

Tasks read a site's dump into small files, called partitions (`dupq/stages/ingest.py`); then other tasks write shards
from them. Several sites are ingested at a time, each by a thread of the driver, which holds no texts.

All this happens in `_parts/SITE`. When a site is whole and all its rows are accounted for, its shards move next to the
earlier ones, under new names; then one write of the site's record, `ingest/SITE.json`, replaces the earlier shards by
the new ones, and the earlier ones are deleted (`dupq/archive.py`). So a broken dump costs no tables, and no reader sees
half a site. A rerun skips a site whose dump, settings and code are those of its record and whose tables are complete.
An interrupted site is resumed: its partitions and shards are kept.
"""

import contextlib
import hashlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray

from dupq import archive, storage
from dupq.archive import all_counts
from dupq.dump.files import DumpSite
from dupq.dump.parsing import WITHOUT_ID, Account, check_rejects, most_frequent
from dupq.dump.reading import FileRange, Ingest, file_ranges
from dupq.dump.sites import Failure
from dupq.errors import FAULT, DupqError, RejectsError
from dupq.job import cluster, lease, progress
from dupq.job.cluster import versions
from dupq.job.progress import Line
from dupq.job.tasks import RETRIES, measured, result_or_lost, start, start_stream
from dupq.pipelines.arguments import Checked, IngestJob
from dupq.stages import ingest as steps
from dupq.stages.ingest import Partition, WrittenBatch
from dupq.system import side_by_side
from dupq.tables import REJECTS

_log = logging.getLogger(__name__)
_SITES = 16  # at once at least on a cluster that may grow, so that it does
_AHEAD = 2  # ranges per CPU that are read ahead of their turn

Result = TypeVar("Result")


def ingest(job: IngestJob, checked: Checked | None = None) -> dict[str, dict[str, object]]:
    """Write the tables of all sites, and return the counts of each site, as manifest.json has them.

    `checked` is what `job.check()` returned, if it was called before. Raises DupqError if a dump is missing, damaged or
    without questions, or has too many broken rows; if there are several dumps, after the others are done.
    """
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
    for site, counted in counts.items():
        sums = {name: value for name, value in counted.items() if name != "files" and value}
        shown = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sums.items())
        _log.info(f"{site}: {shown}", extra={"fields": {"site": site, **sums}})
        if counted.get(WITHOUT_ID):
            _log.warning(
                f"{site}: no column of ids, so ids are row numbers, and verdicts hold only while no row moves; name "
                "the column with --id COLUMN"
            )
        if sums.keys() & {"rejects", "link_rejects"}:
            folder = storage.join(plan.output, "rejects", f"site={site}")
            _log.warning(f"{site}: rejected rows are left out{most_frequent(folder)}; {folder} has the reasons")
    also = f"   files passed over {len(passed_over):,}" if passed_over else ""
    _log.info(f"archive: {plan.output}   peak memory of a task {peak:.0f} MB{also}")
    return counts


def ingest_sites(sites: Sequence[DumpSite], job: Ingest, failed: Sequence[Failure] = ()) -> float:
    """Write the tables of every site below the output, hive-partitioned, and return the peak memory (MB) of a task.

    All sites are tried. If some fail, or are in `failed` already, raises DupqError at the end, with a line for each.
    """
    shared = _Shared(sum(map(packed_bytes, sites)))
    at_once = max(_SITES, cluster.cpus()) if cluster.may_grow() else cluster.cpus()  # it may have no CPU yet
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(sites), at_once)))
    errors, peak = list(failed), 0.0
    try:
        futures = [(site.site, pool.submit(_SiteIngest(site, job, shared).run)) for site in sites]
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
        progress.clear()
    storage.delete_if_empty(storage.join(job.output, archive.UNFINISHED))
    if not errors:
        return peak
    count = len(sites) + len(failed)
    if count == 1:
        raise errors[0][1]
    lines = [f"{name}: {error}" for name, error in sorted(errors, key=lambda failure: failure[0])]
    codes = {error.exit_code for _, error in errors}
    head = f"{len(errors)} of {count} sites failed:"
    if codes == {RejectsError.EXIT_CODE}:
        head = f"--max-reject-share: {len(errors)} of {count} sites have more broken rows than it allows:"
    message = "\n  ".join([head, *lines])
    raise DupqError(message, *(codes if len(codes) == 1 else ()))


def packed_bytes(site: DumpSite) -> int:
    """Return the size of a site's files as they are stored."""
    return sum(map(storage.size, {member.uri for member in (*site.posts, *site.links)}))


class _SiteIngest:
    """The ingest of one site, driven by one thread."""

    def __init__(self, site: DumpSite, job: Ingest, shared: "_Shared") -> None:
        self._site, self._job, self._shared = site, job, shared
        members = [*site.posts, *site.links]
        self._account = Account([member.source for member in members], len(site.links))
        self._partitions: dict[str, list[Partition]] = {table: [] for table in job.tables(site)}
        self._shards: dict[str, int] = {}  # the number of shards of each table that was written
        self._rejects: set[str] = set()
        self._record = archive.record_of(job.output, site.site)
        self._unfinished = storage.join(job.output, archive.UNFINISHED, site.site)
        self._lease: lease.Lease  # which `run` holds
        self._work = ""
        self._repeated = 0  # rows of a table from elsewhere whose id a later row has
        self._peak = 0.0
        self._read = 0  # bytes of the site's files

    def run(self) -> float:
        """Ingest the site, unless an earlier run finished it, and return the peak memory (MB) of a task."""
        leases = storage.join(self._job.output, "ingest", "_at_work")
        with lease.held(storage.join(leases, self._site.site), self._record) as self._lease:
            made_from = self._call(steps.inputs_of, self._site, self._job)
            if not self._is_done(made_from):
                self._work = steps.begin(self._unfinished, made_from["parts"])
                self._write_tables()
                self._publish(made_from)
        self._shared.add(packed_bytes(self._site) - self._read)
        return self._peak

    def _is_done(self, made_from: dict[str, object]) -> bool:
        """Return whether the site is finished. Raises DupqError if it has more rejects than the settings allow."""
        if not storage.exists(self._record):
            return False
        record, files = archive.read_record(self._record), self._table_files()
        sizes = {path: file.size for path, file in files.items()}
        if record["made_from"] != made_from or not record["tables"].items() <= sizes.items():
            return False
        was_interrupted = storage.exists(storage.join(self._unfinished, archive.BEGUN))
        if was_interrupted or len(sizes) > len(record["tables"]):
            self._clear({files[path].uri for path in record["tables"]})
        counts = record["counts"]
        rows, rejects = counts["rows"] + counts["link_rows"], counts["rejects"] + counts["link_rejects"]
        check_rejects(rows, rejects, self._job.settings, self._folder("rejects"))
        return True

    def _write_tables(self) -> None:
        """Write the shards of all tables. Raises DupqError if too many rows are rejected, or there is no question."""
        try:
            with contextlib.closing(self._read_batches()) as batches:
                for file, batch in batches:
                    self._account.add(file, batch.counts)
                    if batch.rejects is not None:
                        self._rejects.add(batch.rejects)
                    for table, partition in batch.partitions.items():
                        self._partitions[table].append(partition)
            if self._site.is_table:
                uri = steps.rejects_uri(self._work, "doubled")
                self._repeated, first = self._call(steps.reject_repeated, self._partitions["ids"], uri)
                if self._repeated:
                    self._rejects.add(uri)
                    rejected = f"{self._repeated:,} rows rejected, as a later row has their id; first at {first}"
                    _log.warning(f"{self._site.site}: {rejected}")
        finally:
            self._publish_rejects()
        self._account.check_rejects(self._job.settings, self._folder("rejects"), self._repeated)
        self._account.check_questions(self._folder("rejects"))
        self._write([table for table in self._partitions if table != "answers"])
        if self._job.answers:  # the questions say which are accepted
            accepted = storage.join(self._work, "accepted")
            self._call(steps.write_accepted_ids, self._shard_uris(self._staged("questions"), "questions"), accepted)
            self._write(["answers"], accepted)
        if self._site.is_table:
            self._account.reject_repeated()

    def _read_batches(self) -> Generator[tuple[int, WrittenBatch]]:
        """Yield the batches of all files in order, each with the index of its file; tasks read some ranges ahead."""
        waiting, started = deque(file_ranges(self._site)), deque[tuple[FileRange, Any]]()
        try:
            while waiting or started:
                while waiting and len(started) < _AHEAD * cluster.cpus():
                    file_range = waiting.popleft()
                    stream = start_stream(steps.read_range, file_range, self._job, self._work, retries=RETRIES)
                    started.append((file_range, stream))
                file_range, stream = started[0]
                for reference in stream:
                    batch: WrittenBatch = self._result(reference, file_range.member.source)
                    self._read += batch.packed_bytes
                    self._shared.add(batch.packed_bytes)
                    yield file_range.file, batch
                started.popleft()
        finally:
            # If the site failed, read the streams to the end: Ray can abort the driver when a stream is cancelled.
            rest = itertools.chain.from_iterable(stream for _, stream in started)
            while not self._shared.stop.is_set() and next(rest, None) is not None:
                pass

    def _publish_rejects(self) -> None:
        """Publish the rejects, even if the site fails."""
        if self._shared.stop.is_set():
            return
        self._check_held()
        folder = self._folder("rejects")
        files = [storage.join(folder, storage.name(uri)) for uri in self._rejects]
        for target, uri in zip(files, self._rejects, strict=True):
            storage.write_bytes(target, storage.read_bytes(uri))
        if not files:  # a table without rows still needs a file
            files = [storage.join(folder, "part-none.parquet")]
            storage.write_table(files[0], REJECTS.empty_table(), REJECTS)
        storage.clear(folder, files)

    def _write(self, tables: Sequence[str], accepted: str | None = None) -> None:
        """Write the shards of `tables`."""
        tasks = []
        for table in tables:
            shards = steps.plan_shards(self._ordered(table), self._job.settings.shard_rows)
            self._shards[table] = len(shards)
            for uri, ranges in zip(self._shard_uris(self._staged(table), table), shards, strict=True):
                tasks.append(self._start(steps.write_shard, uri, ranges, table, accepted))
        for task in tasks:
            self._result(task)

    def _ordered(self, table: str) -> list[Partition]:
        """Return a table's partitions if they are in the order of their keys, else new ones."""
        partitions = self._partitions[table]
        if steps.are_ordered(partitions) and not (table == "ids" and self._repeated):
            return partitions
        ordered, dropped = self._call(steps.sort_partitions, partitions, table, self._work)
        for file, rows in dropped.items() if table != "ids" else ():
            self._account.leave_out(file, table, rows)
        return ordered

    def _publish(self, made_from: dict[str, object]) -> None:
        """Replace the site's earlier shards by the new ones, and write its record."""
        counts = self._account.totals()
        self._check_held()
        suffix = "-" + hashlib.sha256(storage.json_bytes(made_from)).hexdigest()[:12]
        files = {file.uri for file in storage.list_files(self._folder("rejects"), ".parquet")}
        for table in steps.SCHEMAS:
            shards = self._shard_uris(self._folder(table), table, suffix)
            moves = zip(self._shard_uris(self._staged(table), table), shards, strict=True)
            side_by_side(lambda move: storage.move(*move), moves)
            files.update(shards)
        self._check_held()
        sizes = {path: file.size for path, file in self._table_files().items() if file.uri in files}
        storage.write_json(self._record, {"made_from": made_from, "counts": counts, "tables": sizes})
        self._clear(files)

    def _clear(self, files: Collection[str]) -> None:
        """Delete the shards that are not among `files`, which the site's record names, and all unfinished work."""
        self._check_held()
        for table in steps.SCHEMAS:
            storage.clear(self._folder(table), files)
        storage.delete_folder(self._unfinished)

    def _check_held(self) -> None:
        """Raise LeaseError if another run has taken over the site, even since the last heartbeat."""
        self._lease.beat()
        self._lease.check()

    def _table_files(self) -> dict[str, storage.File]:
        """Return the files of the site's tables, by TABLE/NAME."""
        folders = [(table, self._folder(table)) for table in (*steps.SCHEMAS, "rejects")]
        files = [(table, file) for table, folder in folders for file in storage.list_files(folder, ".parquet")]
        return {f"{table}/{file.relative}": file for table, file in files}

    def _folder(self, table: str) -> str:
        return storage.join(self._job.output, table, f"site={self._site.site}")

    def _staged(self, table: str) -> str:
        """Return the folder of a table's shards until all are written."""
        return storage.join(self._work, f"shards-{self._job.settings.shard_rows}", table)

    def _shard_uris(self, folder: str, table: str, suffix: str = "") -> list[str]:
        return [steps.shard_uri(folder, number, suffix) for number in range(self._shards.get(table, 0))]

    def _start(self, work: Callable[..., Result], *arguments: object) -> "ray.ObjectRef[tuple[Result, float]]":
        return start(measured, work, *arguments, retries=RETRIES)

    def _call(self, work: Callable[..., Result], *arguments: object) -> Result:
        return self._result(self._start(work, *arguments))

    def _result(self, reference: "ray.ObjectRef[tuple[Result, float]]", source: str | None = None) -> Result:
        """Return the result of a task that reads `source`. Raises DupqError if the job was aborted meanwhile."""
        if self._shared.stop.is_set():
            raise DupqError("given up")
        value, peak = result_or_lost(reference, f"ingest: {source or self._site.site}")
        self._peak = max(self._peak, peak)
        return value


class _Shared:
    """What the sites of one job share: a progress line, and a signal to stop."""

    def __init__(self, size: int) -> None:
        """Begin the progress line of a job whose files have `size` bytes."""
        self.stop = threading.Event()
        self._line = Line("MB of the dump", size >> 20)
        self._read = 0
        self._lock = threading.Lock()

    def add(self, read: int) -> None:
        """Show that `read` more bytes of the files are done."""
        with self._lock:
            self._read += read
            self._line.show(self._read >> 20)
