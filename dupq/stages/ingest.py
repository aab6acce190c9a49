"""dumps → questions, answers, links, rejects.

Each site is read unit by unit, each unit in a task of its own, into parts (`dupq/dump/parts.py`); while parts come
in, tasks merge them into sorted shards. Many sites go side by side. Each has a thread on the driver, which holds
the ids of those parts that are not in a planned shard yet, and no texts.

What a site was made from is kept in `ingest/SITE.json`, written last: a rerun skips a site whose dump, settings and
code are the same. One that was begun goes on: the parts and shards that are there are kept.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from dupq import storage
from dupq.dump.accounts import Account
from dupq.dump.contents import KINDS
from dupq.dump.members import DumpSite
from dupq.dump.parts import rejects_uri
from dupq.dump.pieces import Unit, units
from dupq.dump.sharding import Planner, ShardLimits, ShardPlan
from dupq.errors import DupqError
from dupq.stages import cluster, ingest_tasks
from dupq.stages.ingest_progress import IngestProgress
from dupq.stages.ingest_tasks import Ingest, ReadPart
from dupq.stages.memory import measured
from dupq.stages.tasks import RETRIES, result_of
from dupq.tables import REJECTS

_AHEAD = 2  # units a CPU that are being read before their turn comes


def ingest(sites: Sequence[DumpSite], job: Ingest) -> float:
    """Write the tables of every site below the output, hive-partitioned; returns the peak memory (MB) of a task.

    A site that fails does not keep the others from being finished. Raises DupqError then, at the end.
    """
    progress = IngestProgress(sum(map(_packed_bytes, sites)))
    stop = threading.Event()
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(sites), cluster.cpus())))
    errors: list[tuple[str, DupqError]] = []
    peak = 0.0
    try:
        made = [(site.site, pool.submit(_SiteIngest(site, job, progress, stop).run)) for site in sites]
        for name, future in made:
            try:
                peak = max(peak, future.result())
            except DupqError as error:
                errors.append((name, error))
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        progress.end()
    if not errors:
        storage.delete_folder(storage.join(job.output, "_parts"))
    if len(sites) == 1 and errors:
        raise errors[0][1]
    if errors:
        names = ", ".join(name for name, _ in errors)
        raise DupqError(f"{len(errors)} of {len(sites)} sites failed ({names}), the first of them: {errors[0][1]}")
    return peak


def counts_of(output: str, site: str) -> dict[str, Any]:
    """What the ingest of a site counted: its sums, and `files` with the counts of each file."""
    return storage.read_json(ingest_tasks.mark(output, site))["counts"]


def _packed_bytes(site: DumpSite) -> int:
    return sum(map(storage.size, {member.uri for member in (*site.posts, *site.links)}))


class _SiteIngest:
    """The ingest of one site, driven from a thread of its own."""

    def __init__(self, site: DumpSite, job: Ingest, progress: IngestProgress, stop: threading.Event) -> None:
        self._site, self._job, self._progress, self._stop = site, job, progress, stop
        members = [*site.posts, *site.links]
        self._account = Account([member.source for member in members], len(site.links))
        self._limits = ShardLimits(job.settings.shard_rows)
        self._planners = {table: Planner(KINDS[table].is_unique, self._limits) for table in job.tables}
        self._parts: dict[str, list[str]] = {table: [] for table in job.tables}
        self._shards: dict[str, int] = dict.fromkeys(job.tables, 0)
        self._rejects: set[str] = set()
        self._writes: dict[tuple[str, int], Any] = {}  # the task that writes a table's shard
        self._peak = 0.0
        self._work = ""

    def run(self) -> float:
        """Read, write, account, and mark as done; returns the peak memory (MB) of a task."""
        made_from = self._do(ingest_tasks.made_from, self._site, self._job)
        mark = ingest_tasks.mark(self._job.output, self._site.site)
        if storage.exists(mark):
            if storage.read_json(mark)["made_from"] == made_from:
                self._progress.add(_packed_bytes(self._site), 0, 0)
                return self._peak
            storage.delete(mark)
        self._work = self._work_folder(made_from)
        try:
            self._make()
            counts = self._account.closed()
        except DupqError:
            self._await_writes()
            self._clear_tables()
            storage.clear(storage.join(self._work, "shards"))
            raise
        storage.create(mark, storage.json_bytes({"made_from": made_from, "counts": counts}))
        storage.delete_folder(storage.parent(self._work))
        return self._peak

    def _await_writes(self) -> None:
        """Nothing is written any more after this, whether the tasks failed or not."""
        if self._writes:
            ray.wait(list(self._writes.values()), num_returns=len(self._writes))

    def _work_folder(self, made_from: Any) -> str:
        """Where parts go; what a run on another dump or with other settings left is cleared away."""
        works = storage.join(self._job.output, "_parts", self._site.site)
        work = storage.join(works, hashlib.sha256(storage.json_bytes(made_from)).hexdigest()[:16])
        begun = storage.join(work, "begun.json")
        if not storage.exists(begun):
            storage.delete_folder(works)
            self._clear_tables()
            storage.clear(self._folder("rejects"))
            storage.create(begun, storage.json_bytes(made_from))
        return work

    def _clear_tables(self) -> None:
        for table in ingest_tasks.SCHEMAS:
            storage.clear(self._folder(table))

    def _folder(self, table: str) -> str:
        return storage.join(self._job.output, table, f"site={self._site.site}")

    def _make(self) -> None:
        answers: list[ShardPlan] = []
        for unit, part in self._read_parts():
            self._account.add(unit.file, part.info.counts)
            if part.rejects is not None:
                self._rejects.add(part.rejects)
            for table, keys in part.info.keys.items():
                self._parts[table].append(keys.part)
                shards = self._planners[table].add(keys)
                if table == "answers":  # which of them are accepted is known when all questions are there
                    answers += shards
                else:
                    self._write(table, shards)
        self._finish_rejects()
        self._account.check_rejects(self._job.settings, self._folder("rejects"))
        self._account.check_questions()
        for table in ("questions", "links"):
            self._write(table, self._rest(table, self._shards[table]))
        if self._job.answers:
            self._collect()
            accepted = storage.join(self._work, "accepted.parquet")
            self._do(ingest_tasks.write_accepted, self._folder("questions"), accepted)
            rest = self._rest("answers", len(answers))
            self._write("answers", answers + rest if self._planners["answers"].is_ordered else rest, accepted)
        self._collect()

    def _finish_rejects(self) -> None:
        """Clear away what is of another dump; a table without rows is a table too."""
        folder = self._folder("rejects")
        if not self._rejects:
            self._rejects.add(rejects_uri(folder, "none"))
            storage.write_table(rejects_uri(folder, "none"), REJECTS.empty_table(), REJECTS)
        storage.clear(folder, self._rejects)

    def _read_parts(self) -> Iterator[tuple[Unit, ReadPart]]:
        """The parts of all units in their order, some units ahead being read meanwhile."""
        read = ray.remote(ingest_tasks.read_unit).options(num_cpus=1, max_retries=RETRIES, num_returns="streaming")
        waiting, begun = deque(units(self._site)), deque[tuple[Unit, Any]]()
        try:
            while waiting or begun:
                while waiting and len(begun) < _AHEAD * cluster.cpus():
                    unit = waiting.popleft()
                    begun.append((unit, read.remote(unit, self._job, self._work, self._folder("rejects"))))
                unit, parts = begun[0]
                for reference in parts:
                    part: ReadPart = self._result(reference)
                    self._progress.add(part.packed, part.info.counts["rows"], part.info.counts["rejects"])
                    yield unit, part
                begun.popleft()
        finally:
            for _, parts in begun:  # of a site that has failed
                ray.cancel(parts)

    def _rest(self, table: str, planned: int) -> list[ShardPlan]:
        """The shards of a table besides those planned while its parts came in; all, if these were not in order."""
        planner = self._planners[table]
        if planner.is_ordered:
            shards = planner.finish()
            return shards if shards or planned else [ShardPlan(0, ())]
        self._shards[table] = 0
        return self._do(ingest_tasks.plan, self._parts[table], table, self._limits)

    def _write(self, table: str, shards: Sequence[ShardPlan], accepted: str | None = None) -> None:
        for shard in shards:
            arguments = (shard, table, self._folder(table), self._work, accepted)
            earlier = self._writes.get((table, shard.number))
            if earlier is not None:  # planned before it was known that the parts are not in order
                self._result(earlier)
            self._writes[table, shard.number] = self._start(ingest_tasks.write_shard, *arguments)
            self._shards[table] = shard.number + 1

    def _collect(self) -> None:
        """Wait for all shards, count the rows that they left out, and clear away all other files."""
        for (table, number), task in self._writes.items():
            left_out = self._result(task)
            if number < self._shards[table]:
                for file, rows in left_out.items():
                    self._account.leave_out(file, table, rows)
        self._writes = {}
        for table, count in self._shards.items():
            folder = self._folder(table)
            storage.clear(folder, {ingest_tasks.shard_uri(folder, number) for number in range(count)})

    def _start(self, work: Any, *arguments: Any) -> Any:
        return ray.remote(measured).options(num_cpus=1, max_retries=RETRIES).remote(work, *arguments)

    def _do(self, work: Any, *arguments: Any) -> Any:
        return self._result(self._start(work, *arguments))

    def _result(self, reference: Any) -> Any:
        """What a task gave, unless the whole ingest was given up meanwhile."""
        if self._stop.is_set():
            raise DupqError("given up")
        value, peak = result_of(reference)
        self._peak = max(self._peak, peak)
        return value
