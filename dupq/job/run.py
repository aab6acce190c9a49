"""A run: its folder, its name, its finished stages, and the verbs that make its tables.

A run's name is a hash of what it is made from: the content of its inputs, the encoder, the settings that change the
answer and the versions of its stages. The same arguments over the same data open the same run, and a rerun finishes
what an earlier attempt left, even with other workers, GPUs or block sizes. A stage is finished when its record is in
`stages/` and all files that it names are unchanged (dupq/job/records.py); a partition, when its mark says so
(step.py). `_SUCCESS` is written last and names the run's lasting files; then `latest.json` beside the runs points to
this one.

A stage makes tables from others by `map`, `gather`, `shuffle` and `look_up`, and JSON by `record`. Each calls a step
(step.py), a plain function that opens nothing, once per partition.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from dupq import __version__, storage
from dupq.archive import Input, Shard
from dupq.job import lease, progress, records
from dupq.job.cluster import versions
from dupq.job.lease import Lease
from dupq.job.records import StageRecord, Success, read_success
from dupq.job.step import Step, as_is, call_step, copy_input
from dupq.job.table import Partitioned, PerTask, Shards, Shuffled, Table, Whole
from dupq.job.tasks import Report, run_tasks
from dupq.runs.reader import latest_run
from dupq.settings.config import Settings, answer_settings, to_dict
from dupq.system import Written, recording

_log = logging.getLogger(__name__)
EDITED = ("review.tsv", "worklist.tsv")  # people fill them in, so they may differ from what was written
T = TypeVar("T")
_Kind = TypeVar("_Kind", Table, Shuffled)


class Run:
    """One run's folder, its stages, and the tables that they make."""

    def __init__(self, uri: str, stage: str = "", is_done: bool = False) -> None:
        """Make the tables of one stage without a record; if it `is_done`, name them and call no step.

        `Run.open` opens a whole run.
        """
        self.uri = uri
        self.run_id = storage.name(uri)
        self.records: list[StageRecord] = []  # of the stages that are finished
        self._inputs: Mapping[str, object] = {}
        self._copied: Mapping[str, Sequence[Input]] = {}
        self._settings = Settings()
        self._algorithms: Mapping[str, int] = {}
        self._finished_before: dict[str, StageRecord] | None = None  # None: not read yet
        self._lease: Lease | None = None
        self._described: dict[str, Written] = {}
        self._begin(stage, is_done)

    @staticmethod
    def open(
        output: str,
        inputs: Mapping[str, object],
        made_from: Mapping[str, object],
        settings: Settings,
        algorithms: Mapping[str, int],
        copied: Mapping[str, Sequence[Input]] = MappingProxyType({}),
    ) -> "Run":
        """Return the run below `output` for these inputs and settings, whether new or begun before.

        `inputs` are the URIs, for the manifest. `copied` are input files that the run copies, by name of the input;
        their content is part of the run's identity, together with `made_from`. `algorithms` are the versions of the
        stages.
        """
        contents = {name: [[file.path, file.checksum] for file in files] for name, files in copied.items()}
        identity = {
            "made_from": {**contents, **made_from},
            "settings": answer_settings(settings),
            "algorithms": algorithms,
        }
        run_id = hashlib.sha256(storage.json_bytes(identity)).hexdigest()[:16]
        run = Run(storage.join(storage.absolute(output), run_id))
        run._inputs, run._copied, run._settings, run._algorithms = inputs, copied, settings, algorithms
        return run

    def path(self, *names: str) -> str:
        """Return the URI of a file or folder of the run."""
        return storage.join(self.uri, *names)

    def copy_of(self, name: str) -> str | None:
        """Return the URI of the copy of an input; None if the job has no such input."""
        return self.path("work", "inputs", name) if name in self._copied else None

    def copy_inputs(self) -> Report:
        """Copy the inputs that are read more than once. Raises DupqError if one changed since the run was opened."""
        files = [file for files in self._copied.values() for file in files]
        return run_tasks("inputs", copy_input, [(file, self.path("work", "inputs", file.path)) for file in files])

    @property
    def finished(self) -> bool:
        """Whether the run succeeded and all its files are unchanged. If they are not, it is marked as unfinished.

        Raises LeaseError if a file is damaged and another job is at work on the run.
        """
        success = read_success(self.uri)
        if success is None:
            return False
        if not records.damaged(self.uri, success["outputs"]):
            return True
        with self.held():
            success = read_success(self.uri)  # again: another job may have repaired the run meanwhile
            lost = records.damaged(self.uri, success["outputs"]) if success else {}
            if lost:
                _log.warning(
                    f"{self.uri}: {next(iter(lost))} is damaged or gone since the run succeeded; it is made again"
                )
                storage.delete(self.path("_SUCCESS"))
            return success is not None and not lost

    def has_record(self, stage: str) -> bool:
        """Return whether an earlier attempt finished the stage, even if files of it were lost since."""
        return storage.exists(records.record_of(self.uri, stage))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only job at work on this run. Raises LeaseError if another one is, or takes it over meanwhile."""
        with lease.held(self.uri) as self._lease:
            yield
        self._lease = None

    def stage(self, name: str, work: Callable[[], Report], dropped: str | None = None) -> StageRecord:
        """Call `work` unless an earlier attempt finished the stage; return its record.

        The folder `dropped`, which no later stage needs, is removed.
        """
        if self._finished_before is None:
            self._finished_before = records.recover(self.uri)
        if self._lease is not None:
            self._lease.check()
        with progress.of_stage(self.uri, name, self._inputs):
            record, how = self._finished_before.get(name), "finished before"
            if record is None:
                self._finished_before = {}  # later stages may have been made from what is made again now
                record = self._do_stage(name, work, dropped)
                how = f"{record['seconds']:.1f} s"
            self.records.append(record)
            _log_stage(record, how)
            if dropped:
                storage.delete_folder(dropped)
            return record

    def _do_stage(self, name: str, work: Callable[[], Report], dropped: str | None) -> StageRecord:
        start = time.monotonic()
        with recording() as written:
            report = work()
        record = StageRecord(
            name=name,
            seconds=round(time.monotonic() - start, 2),
            tasks=report.tasks,
            rows_in=report.rows_in,
            rows_out=report.rows_out,
            peak_memory_mb=round(report.peak_memory_mb, 1),
            counts=report.counts,
            caps=report.caps,
            steps={step: round(seconds, 2) for step, seconds in report.steps.items()},
            outputs=self._outputs(written, dropped),
            dropped=dropped and dropped.removeprefix(f"{self.uri}/"),
        )
        storage.write_json(records.record_of(self.uri, name), record)
        return record

    def _outputs(self, written: Mapping[str, Written], dropped: str | None = None) -> dict[str, Written]:
        """Return the written files by path below the run, without dropped ones and those that people edit."""
        run = f"{self.uri}/"
        inside = {uri.removeprefix(run): file for uri, file in written.items() if uri.startswith(run)}
        left_out = (f"{dropped.removeprefix(run)}/",) if dropped else ()
        return {path: file for path, file in inside.items() if path not in EDITED and not path.startswith(left_out)}

    def make(
        self, stage: str, make: Callable[..., T], *inputs: object, folder: str | None = None, dropped: str | None = None
    ) -> T:
        """Return the tables of a stage, `make(run, *inputs)`; of a finished stage they are only named.

        `folder` is the name that several stages share for their tables, by default the stage's own. The folder
        `dropped` of the run, which no later stage needs, is removed.
        """
        made = self.do(stage, make, *inputs, folder=folder, dropped=dropped)
        if made:
            return made[0]
        self._begin(folder or stage, is_done=True)
        return make(self, *inputs)

    def do(
        self, stage: str, make: Callable[..., T], *inputs: object, folder: str | None = None, dropped: str | None = None
    ) -> list[T]:
        """Return the result of `make(run, *inputs)` in a list; empty, without a call, if the stage is finished."""
        made: list[T] = []

        def work() -> Report:
            self._begin(folder or stage)
            made.append(make(self, *inputs))
            return self.report

        self.stage(stage, work, dropped=dropped and self.path(dropped))
        return made

    def _begin(self, stage: str, is_done: bool = False) -> None:
        """Direct the verbs below to the stage's folder, and count their tasks in a new `report`."""
        self.folder, self.is_done, self.report = self.path("work", stage), is_done, Report()

    def describe(self) -> None:
        """Write config.json and manifest.json: the settings, the inputs, and the record of each stage so far."""
        manifest = {
            "run_id": self.run_id,
            "dupq": __version__,
            "algorithms": self._algorithms,
            "versions": versions(),
            "inputs": self._inputs,
            "stages": self.records,
        }
        with recording() as written:
            storage.write_json(self.path("config.json"), to_dict(self._settings))
            storage.write_json(self.path("manifest.json"), manifest)
        self._described = self._outputs(written)

    def mark(self) -> None:
        """Write `_SUCCESS`, after `describe`. Raises LeaseError if another job has taken over the run."""
        if self._lease is not None:
            self._lease.check()
        outputs = {path: output for record in self.records for path, output in record["outputs"].items()}
        lasting = {path: output for path, output in outputs.items() if not path.startswith("work/")}
        success = Success(outputs={**lasting, **self._described}, finished=datetime.now(UTC).isoformat())
        storage.write_json(self.path("_SUCCESS"), success)

    def point_latest(self) -> None:
        """Point latest.json to this run, which succeeded, unless it names one that succeeded later."""
        runs = storage.parent(self.uri)
        if self.is_to_be_latest:
            storage.write_json(storage.join(runs, "latest.json"), {"run_id": self.run_id, "run": self.uri})
        elif latest_run(runs) != self.uri:
            _log.warning(f"{self.uri}: latest.json stays: it names a run that succeeded later, by that machine's clock")

    @property
    def is_to_be_latest(self) -> bool:
        """Whether latest.json names no run, or one that succeeded before this one."""
        latest = latest_run(storage.parent(self.uri))
        if latest is None:
            return True
        mine, other = read_success(self.uri), read_success(latest)
        if mine is None or latest == self.uri:
            return False
        return other is None or datetime.fromisoformat(other["finished"]) < datetime.fromisoformat(mine["finished"])

    def table(
        self, name: str, schema: pa.Schema | None, partitions: int = 1, publish: bool = False, keep: bool = False
    ) -> Table:
        """Return the table of this name: below the run if people read it (`publish`), below `work` if it outlives the
        stage (`keep`), else in the stage's folder.
        """
        folder = self.uri if publish else storage.parent(self.folder) if keep else self.folder
        return Table(storage.join(folder, name), schema, partitions)

    def shuffled(
        self,
        name: str,
        schema: pa.Schema | None,
        writers: int,
        partitions: int,
        by: str | None = None,
        to: str | None = None,
        keys: Shuffled | None = None,
    ) -> Shuffled:
        """Return the table of this name whose rows `writers` tasks send to partitions."""
        files = (storage.join(self.folder, name, f"part-{number:05d}.arrow") for number in range(writers))
        return Shuffled(tuple(files), schema, partitions, 0, by, to, keys)

    def map(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema | None,
        second: Table | Shuffled | None = None,
        publish: bool = False,
        keep: bool = False,
        gpus: int = 0,
    ) -> Table:
        """Call `step` for each partition of the inputs; its second table goes to `second`.

        A call gets its partition of each table, its own value of each `PerTask`, and all other inputs as they are
        (`Whole` and `Each` give a whole table). If no input has partitions, there is one call. `into` None takes the
        schema of what the step returns. With `gpus`, each call has one, and that many run at a time.
        """
        made = self.table(name, into, _partitions_of(inputs), publish, keep)
        return self._make(name, step, inputs, second, made, gpus)

    def gather(self, name: str, step: Step, *inputs: object, into: pa.Schema) -> Table:
        """Do the same as `map`, with all rows in one partition, so that many tasks can read them whole."""
        return self.map(name, as_is, Whole(self.map(f"{name}_by_partition", step, *inputs, into=into)), into=into)

    def record(self, name: str, step: Step, *inputs: object, second: Table | None = None) -> Any:
        """Return the dict that `step` makes in one call, from the JSON file that keeps it. Counts as `write` does."""
        return storage.read_json(self.write(name, step, *inputs, file=f"{name}.json", second=second))

    def write(self, name: str, step: Step, *inputs: object, file: str, second: Table | None = None) -> str:
        """Return the URI of `file`, which holds the bytes, or the dict as JSON, that `step` makes in one call.

        The step's count `rows_out` is added to the stage's.
        """
        uri = storage.join(self.folder, file)
        self.report.rows_out += self._run(name, [(0, step, inputs, second, uri)])
        return uri

    def shuffle(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema | None,
        partitions: int,
        by: str | None = None,
        to: str | None = None,
        keys: Shuffled | None = None,
        second: Table | Shuffled | None = None,
        gpus: int = 0,
    ) -> Shuffled:
        """As `map`, with each row in the partition of its key in the column `by`, or of the number in the column `to`.

        With `keys`, a row goes to each task that made `keys` and asks for its `key`, as for `look_up`. Columns that
        `into` lacks are left out.
        """
        made = self.shuffled(name, into, _partitions_of(inputs), partitions, by, to, keys)
        return self._make(name, step, inputs, second, made, gpus)

    def look_up(self, name: str, table: Table | Shuffled, keys: Shuffled) -> Shuffled:
        """Return, for each file of `keys`, the rows of `table` with one of its keys. Both are partitioned by `key`.

        So partition n of the answer is what the n-th task that made `keys` asked for.
        """
        return self.shuffle(name, as_is, table, into=table.read_schema, partitions=len(keys.files), keys=keys)

    def discard_stale(self, made_by: Mapping[str, object], *names: str) -> None:
        """Remove the tables `names` if an earlier attempt made them by anything but `made_by` (JSON)."""
        uri = storage.join(self.folder, "made_by.json")
        if not storage.exists(uri) or storage.read_json(uri) != made_by:
            for name in names:
                storage.delete_folder(storage.join(self.folder, name))
            storage.write_json(uri, dict(made_by))

    def _make(
        self,
        name: str,
        step: Step,
        inputs: tuple[object, ...],
        second: Table | Shuffled | None,
        made: _Kind,
        gpus: int = 0,
    ) -> _Kind:
        shards: Sequence[Shard] = next((value.shards for value in inputs if isinstance(value, Shards)), ())
        calls: list[tuple[object, ...]] = []
        for number in range(_partitions_of(inputs)):  # only its own of `PerTask`: calls stay small if tasks are many
            own = tuple(value.inputs[number] if isinstance(value, PerTask) else value for value in inputs)
            calls.append((number, step, own, second, made, shards[number] if shards else None))
        return replace(made, rows=self._run(name, calls, gpus))

    def _run(self, name: str, calls: Sequence[tuple[object, ...]], gpus: int = 0) -> int:
        """Run a task per call of `call_step`, add its counts to the report, and return the number of rows made."""
        if self.is_done:
            return 0
        report = run_tasks(name, call_step, calls, gpus=gpus)
        self.report.add(report)
        return report.rows_out


def _partitions_of(inputs: tuple[object, ...]) -> int:
    return next((value.partitions for value in inputs if isinstance(value, Partitioned | PerTask)), 1)


def _log_stage(record: StageRecord, how: str) -> None:
    """Log a stage's line. In JSON it lacks the files: there are thousands, and run.log is rewritten each time."""
    fields = {name: value for name, value in record.items() if name not in ("outputs", "dropped")}
    bitten = "".join(f", {value:,} {name}" for name, value in {**record["counts"], **record["caps"]}.items() if value)
    _log.info(
        f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
        f"{record['peak_memory_mb']:6.0f} MB{bitten}",
        extra={"fields": fields},
    )
