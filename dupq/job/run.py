"""A run: its folder, its name, which of its stages are finished, and the verbs that make its tables.

A run's name is a hash of what it is made from: the inputs' content, the encoder, the settings that change the answer
and the versions of its stages. The same arguments over the same data therefore open the same run, and a rerun finishes
what an earlier one left undone, also with other workers, GPUs or sizes of blocks. A stage is finished when its record
is in `stages/` and all that it names is there as it was written (dupq/runs/records.py); within a stage, so is each
partition by its mark (table.py). `_SUCCESS` is written last and names what lasts of the run, and then `latest.json`
beside the runs points here.

A stage makes tables from others by `map`, `gather`, `shuffle` and `look_up`, and JSON by `record`. Their steps are
plain functions: tables in, a table out, or `Counted`. A step is called once per partition, and opens nothing.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dupq import __version__, storage
from dupq.archive import Shard, partition_of
from dupq.job.cluster import versions
from dupq.job.inputs import Input, copy_inputs
from dupq.job.table import (
    Counts,
    Partitioned,
    PerTask,
    Readable,
    Shards,
    Spread,
    Table,
    Whole,
    one_batch,
    skip_or,
    write_parts,
)
from dupq.job.tasks import Report, run_tasks
from dupq.runs import lease, progress, records
from dupq.runs.lease import Lease
from dupq.runs.reader import latest_run
from dupq.runs.records import Output, StageRecord, Success, read_success
from dupq.settings.config import Settings, answer_settings, to_dict
from dupq.system import Written, recording
from dupq.text.keys import indices_among

_log = logging.getLogger(__name__)
EDITED = ("review.tsv", "worklist.tsv")  # people fill them in where they are
_Made = TypeVar("_Made")
_Kind = TypeVar("_Kind", Table, Spread)
Step = Callable[..., "pa.Table | dict[str, object] | bytes | Counted"]
_ROWS = "rows_out"


class Counted(NamedTuple):
    """What a step returns that counts something besides its rows, or makes a second table (`beside`).

    `CAP` (tasks.py) begins the name of a limit that left something out.
    """

    table: pa.Table  # a dict, if `record` calls the step; that or bytes, if `write` does
    counts: Mapping[str, int] = MappingProxyType({})
    second: pa.Table | None = None


class Run:
    """One run's folder, to be made."""

    def __init__(self, uri: str, stage: str = "", is_done: bool = False) -> None:
        """Make tables of one stage, without its record; of a stage that is done they are named and no step is called.

        A whole run is opened by `Run.open`.
        """
        self.uri = uri
        self.run_id = storage.name(uri)
        self.records: list[StageRecord] = []  # of the stages that are finished
        self._inputs: Mapping[str, object] = {}
        self._copied: Mapping[str, Sequence[Input]] = {}
        self._settings = Settings()
        self._algorithms: Mapping[str, int] = {}
        self._finished_before: dict[str, StageRecord] | None = None
        self._lease: Lease | None = None
        self._described: dict[str, Output] = {}
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
        """Return the run below `output` that belongs to these inputs and settings; new or begun before.

        `inputs` are the URIs, for the manifest; `made_from` is what identifies their content, beside that of the files
        that are `copied`, by what they are called; `algorithms` are the versions of its stages.
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
        """Return the URI of something in the run."""
        return storage.join(self.uri, *names)

    def copy_of(self, name: str) -> str | None:
        """Return where the copy of an input is; None if the job has none."""
        return self.path("work", "inputs", name) if name in self._copied else None

    def copy_inputs(self) -> Report:
        """Copy what is read more than once. Raises DupqError if a file has changed since the run was opened."""
        return copy_inputs([file for files in self._copied.values() for file in files], self.path("work", "inputs"))

    @property
    def finished(self) -> bool:
        """Whether everything was written, and is there as it was written; if not so, it is to be made again.

        Raises LeaseError if something is not, and another job is at work on the run.
        """
        success = read_success(self.uri)
        if success is None:
            return False
        if not records.damaged(self.uri, success["outputs"]):
            return True
        with self.held():  # another job may have made it again meanwhile
            success = read_success(self.uri)
            lost = records.damaged(self.uri, success["outputs"]) if success else {}
            if lost:
                _log.warning(
                    f"{self.uri}: {next(iter(lost))} is damaged or gone since the run succeeded; it is made again"
                )
                storage.delete(self.path("_SUCCESS"))
            return success is not None and not lost

    def has_record(self, stage: str) -> bool:
        """Return whether an earlier attempt finished the stage; if what it wrote was lost since, it is done again."""
        return storage.exists(records.place_of(self.uri, stage))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only job at work on this run. Raises LeaseError if another one is, or takes it over meanwhile."""
        with lease.held(self.uri) as self._lease:
            yield
        self._lease = None

    def stage(self, name: str, work: Callable[[], Report], dropped: str | None = None) -> StageRecord:
        """Do `work`, unless an earlier attempt finished it; returns its record.

        `dropped` is a folder of the run that no later stage needs; it is removed.
        """
        if self._finished_before is None:
            self._finished_before = records.recover(self.uri)
        if self._lease is not None:
            self._lease.check()
        with progress.of_stage(self.uri, name, self._inputs):
            record, how = self._finished_before.get(name), "finished before"
            if record is None:
                self._finished_before = {}  # what comes after may have been made from what is made anew now
                record = self._do_stage(name, work, dropped)
                how = f"{record['seconds']:.1f} s"
            self.records.append(record)
            _tell(record, how)
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
            outputs=self._outputs(written, dropped),
            dropped=dropped and dropped.removeprefix(f"{self.uri}/"),
        )
        storage.write_json(records.place_of(self.uri, name), record)
        return record

    def _outputs(self, written: Mapping[str, Written], dropped: str | None = None) -> dict[str, Output]:
        """Return what was written, by paths below the run, without what is dropped and what people edit."""
        own = {uri: file for uri, file in written.items() if uri.startswith(f"{self.uri}/")}
        kept = {uri: file for uri, file in own.items() if not dropped or not uri.startswith(f"{dropped}/")}
        outputs = {
            uri.removeprefix(f"{self.uri}/"): Output(size=file.size, checksum=file.checksum, rows=file.rows)
            for uri, file in kept.items()
        }
        return {path: output for path, output in outputs.items() if path not in EDITED}

    def make(
        self,
        stage: str,
        make: Callable[..., _Made],
        *inputs: object,
        folder: str | None = None,
        dropped: str | None = None,
    ) -> _Made:
        """Return the tables of a stage, `make(run, *inputs)`, made unless an earlier attempt finished them.

        `folder` is the name of what several stages share instead of their own; `dropped` a folder of the run that no
        later stage needs, which is removed.
        """
        made = self.do(stage, make, *inputs, folder=folder, dropped=dropped)
        if not made:
            self._begin(folder or stage, is_done=True)
        return made[0] if made else make(self, *inputs)

    def do(
        self,
        stage: str,
        make: Callable[..., _Made],
        *inputs: object,
        folder: str | None = None,
        dropped: str | None = None,
    ) -> list[_Made]:
        """Call `make(run, *inputs)` unless an earlier attempt finished the stage; `make` calls it then too."""
        made: list[_Made] = []

        def work() -> Report:
            self._begin(folder or stage)
            made.append(make(self, *inputs))
            return self.report

        self.stage(stage, work, dropped=dropped and self.path(dropped))
        return made

    def _begin(self, stage: str, is_done: bool = False) -> None:
        """Have the verbs below make the tables of a stage, and count in `report` what their steps do."""
        self.folder, self.is_done, self.report = self.path("work", stage), is_done, Report()

    def describe(self) -> None:
        """Write config.json and manifest.json: what was run on what, and what each stage took so far."""
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
        """Mark the run, which was described, as whole."""
        outputs = {path: output for record in self.records for path, output in record["outputs"].items()}
        lasting = {path: output for path, output in outputs.items() if not path.startswith("work/")}
        success = Success(outputs={**lasting, **self._described}, finished=datetime.now(UTC).isoformat())
        storage.write_json(self.path("_SUCCESS"), success)

    def point_latest(self) -> None:
        """Point latest.json at this run, which succeeded, unless it names one that succeeded later."""
        if self.is_to_be_latest:
            storage.write_json(
                storage.join(storage.parent(self.uri), "latest.json"), {"run_id": self.run_id, "run": self.uri}
            )

    @property
    def is_to_be_latest(self) -> bool:
        """Whether latest.json names no run, or one that this one, which succeeded, is later than."""
        latest = latest_run(storage.parent(self.uri))
        if latest is None:
            return True
        mine, other = read_success(self.uri), read_success(latest)
        if mine is None or latest == self.uri:
            return False
        return other is None or datetime.fromisoformat(other["finished"]) < datetime.fromisoformat(mine["finished"])

    def table(self, name: str, schema: pa.Schema, parts: int = 1, publish: bool = False, keep: bool = False) -> Table:
        """Return the table of this name; `publish`: one that people read, `keep`: one that outlives the stage."""
        folder = self.uri if publish else storage.parent(self.folder) if keep else self.folder
        return Table(storage.join(folder, name), schema, parts)

    def spread(
        self,
        name: str,
        schema: pa.Schema | None,
        writers: int,
        parts: int,
        by: str | None = None,
        to: str | None = None,
        wanted: Spread | None = None,
    ) -> Spread:
        """Return the table of this name that so many tasks spread over partitions."""
        files = (storage.join(self.folder, name, f"part-{number:05d}.arrow") for number in range(writers))
        return Spread(tuple(files), schema, parts, 0, by, to, wanted)

    def map(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema | None,
        beside: Table | Spread | None = None,
        publish: bool = False,
        keep: bool = False,
        gpus: int = 0,
    ) -> Table:
        """Apply `step` to each partition of the inputs; its second table goes to `beside`.

        Inputs that are no tables, and those in `Whole` and `Each`, are the same for every call; with no others there is
        one call. Of `PerTask` each call has its own. `into` None: the schema is that of what the step returns. With
        `gpus` each call has one, and so many run at a time.
        """
        return self._make(name, step, inputs, beside, self.table(name, into, _parts(inputs), publish, keep), gpus)

    def gather(self, name: str, step: Step, *inputs: object, into: pa.Schema) -> Table:
        """As `map`, with all rows in one partition, so that many tasks can read them whole."""
        return self.map(name, as_they_are, Whole(self.map(f"{name}_by_partition", step, *inputs, into=into)), into=into)

    def record(self, name: str, step: Step, *inputs: object, beside: Table | None = None) -> Any:
        """Return the dict that `step` makes of the inputs in one call, kept as JSON; its `rows_out` are the stage's."""
        return storage.read_json(self.write(name, step, *inputs, file=f"{name}.json", beside=beside))

    def write(self, name: str, step: Step, *inputs: object, file: str, beside: Table | None = None) -> str:
        """Return the URI of the `file` with the bytes, or the dict as JSON, that `step` makes in one call.

        Its `rows_out` are the stage's.
        """
        uri = storage.join(self.folder, file)
        self.report.rows_out += self._do(name, _write_file, (step, inputs, beside, uri), 1)
        return uri

    def shuffle(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema | None,
        parts: int,
        by: str | None = None,
        to: str | None = None,
        beside: Table | Spread | None = None,
        gpus: int = 0,
    ) -> Spread:
        """As `map`, with the rows in the partition of their key in the column `by`, or in the one that `to` numbers.

        Columns that `into` lacks are left out. With `gpus` each call has one, and so many run at a time.
        """
        made = self.spread(name, into, _parts(inputs), parts, by, to)
        return self._make(name, step, inputs, beside, made, gpus)

    def look_up(self, name: str, table: Table | Spread, wanted: Spread) -> Spread:
        """For each file of `wanted` the rows of `table` whose `key` its rows have; both are partitioned by `key`.

        So partition n of the answer is what the step of `wanted`'s n-th file asked for.
        """
        return self.answer(name, as_they_are, table, wanted=wanted, into=table.read_schema)

    def answer(
        self,
        name: str,
        step: Step,
        *inputs: object,
        wanted: Spread,
        into: pa.Schema,
        beside: Table | Spread | None = None,
    ) -> Spread:
        """As `look_up`, of the rows that `step` makes of each partition, which are stored nowhere else."""
        made = self.spread(name, into, wanted.parts, len(wanted.files), wanted=wanted)
        return self._make(name, step, inputs, beside, made)

    def _make(
        self,
        name: str,
        step: Step,
        inputs: tuple[object, ...],
        beside: Table | Spread | None,
        made: _Kind,
        gpus: int = 0,
    ) -> _Kind:
        rows = self._do(name, _make, (step, inputs, beside, made), _parts(inputs), inputs, gpus)
        return replace(made, rows=rows)

    def begin(self, made_by: Mapping[str, object], *names: str) -> None:
        """Remove the tables `names` where an earlier attempt made them by anything else than `made_by` (JSON)."""
        uri = storage.join(self.folder, "made_by.json")
        if not storage.exists(uri) or storage.read_json(uri) != made_by:
            for name in names:
                storage.delete_folder(storage.join(self.folder, name))
            storage.write_json(uri, dict(made_by))

    def _do(
        self,
        name: str,
        work: Callable[..., Counts],
        arguments: tuple[object, ...],
        parts: int,
        inputs: tuple[object, ...] = (),
        gpus: int = 0,
    ) -> int:
        """Run a task per partition, add what they count to the report, and return the number of rows made."""
        if self.is_done:
            return 0
        shards = next((one.shards for one in inputs if isinstance(one, Shards)), ())
        calls = [
            (part, *(_own(one, part) if one is inputs else one for one in arguments), *shards[part : part + 1])
            for part in range(parts)
        ]  # a shard gives errors its name
        report = run_tasks(name, work, calls, gpus=gpus)
        self.report.add(report)
        self.report.rows_in += report.rows_in  # which few steps count
        return report.rows_out


def _tell(record: StageRecord, how: str) -> None:
    """Log a line of a stage; as JSON without its files: there are thousands, and run.log is written whole each time."""
    told = {name: value for name, value in record.items() if name not in ("outputs", "dropped")}
    bitten = "".join(f", {value:,} {name}" for name, value in {**record["counts"], **record["caps"]}.items() if value)
    _log.info(
        f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
        f"{record['peak_memory_mb']:6.0f} MB{bitten}",
        extra={"told": told},
    )


def as_they_are(table: pa.Table) -> pa.Table:
    """Return the table: where its rows go is all that is asked."""
    return table


def _parts(inputs: tuple[object, ...]) -> int:
    return next((one.parts for one in inputs if isinstance(one, Partitioned | PerTask)), 1)


def _own(inputs: tuple[object, ...], part: int) -> tuple[object, ...]:
    """Return the inputs of a task: all of `PerTask` would make calls that grow with the square of their number."""
    return tuple(one.inputs[part] if isinstance(one, PerTask) else one for one in inputs)


def _called(step: Step, inputs: tuple[object, ...], part: int) -> Counted:
    def read(one: object) -> object:
        return one.read(part) if isinstance(one, Partitioned) else one.read() if isinstance(one, Readable) else one

    found = step(*map(read, inputs))
    return found if isinstance(found, Counted) else Counted(found)


def _make(
    part: int, step: Step, inputs: tuple[object, ...], beside: Table | Spread | None, made: Table | Spread, *_: Shard
) -> Counts:
    def make() -> Counts:
        found = _called(step, inputs, part)
        if beside is not None:
            _write(beside, part, found.second, {})
        _write(made, part, found.table, found.counts)
        return {_ROWS: len(found.table), **found.counts}

    return skip_or(made.file(part), make)


def _write_file(part: int, step: Step, inputs: tuple[object, ...], beside: Table | None, uri: str, *_: Shard) -> Counts:
    def make() -> Counts:
        found = _called(step, inputs, part)
        if beside is not None:
            _write(beside, part, found.second, {})
        content = found.table
        storage.write_bytes(uri, content if isinstance(content, bytes) else storage.json_bytes(content))
        return dict(found.counts)

    return skip_or(uri, make)


def _write(made: Table | Spread, part: int, table: pa.Table, counts: Mapping[str, int]) -> None:
    if isinstance(made, Table):
        storage.write_table(made.file(part), table, made.schema or table.schema, dict(counts))
        return
    rows = _rows_for(made, part, table)
    some = table if made.schema is None else table.select(made.schema.names).cast(made.schema)
    some = some.replace_schema_metadata(None).combine_chunks()
    batches = (one_batch(some.take(pa.array(indices))) for indices in rows)
    write_parts(made.file(part), batches, some.schema)


def _rows_for(made: Spread, part: int, table: pa.Table) -> Iterator[np.ndarray]:
    """Yield the rows of each partition."""
    if made.wanted is None:
        homes = partition_of(table[made.by].to_numpy(), made.parts) if made.by else table[made.to].to_numpy()
        order = np.argsort(homes, kind="stable")
        bounds = np.searchsorted(homes[order], np.arange(made.parts + 1))
        return (order[bounds[part] : bounds[part + 1]] for part in range(made.parts))
    keys = table["key"].to_numpy()
    order = np.argsort(keys, kind="stable")
    asked = (indices_among(keys[order], batch["key"].to_numpy()) for batch in made.wanted.batches(part))
    return (order[places[are_there]] for places, are_there in asked)


def write_spread(made: Spread, part: int, table: pa.Table) -> None:
    """Write a file of a table: see `Run.shuffle`."""
    _write(made, part, table, {})
