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
from typing import Any, overload

from dupq import __version__, kinds, storage
from dupq.archive import Input as InputFile
from dupq.archive import Shard
from dupq.job import lease, progress, records
from dupq.job.actors import Pool, run_groups
from dupq.job.cluster import versions
from dupq.job.records import StageRecord, Success
from dupq.job.step import (
    AnyStep,
    Destination,
    Given,
    Made,
    Routed,
    Row,
    Step,
    StepResult,
    as_is,
    call_step,
)
from dupq.job.table import Broadcast, Input, Shards, Shuffled, Table, Zipped, number_of_calls
from dupq.job.tasks import Report, run_tasks
from dupq.kinds import Schema
from dupq.settings.config import Settings, answer_settings, to_dict
from dupq.system import Written, recording

_log = logging.getLogger(__name__)
EDITED = ("review.tsv", "worklist.tsv")  # people fill them in, so they may differ from what was written


class Run:
    """One run's folder, its stages, and the tables that they make."""

    def __init__(self, uri: str, stage: str = "", part_of: str = "") -> None:
        """Make the tables of one stage without a record. `Run.open` opens a whole run.

        `part_of` says in errors what the tables belong to; then the job shows its progress itself.
        """
        self.uri, self._part_of = uri, part_of
        self.run_id = storage.name(uri)
        self.records: list[StageRecord] = []  # of the stages that are finished
        self._inputs: Mapping[str, object] = {}
        self.copied: Mapping[str, Sequence[InputFile]] = {}  # input files that stages read as copies, by name
        self.previous: str | None = None  # the URI of the earlier run that this one builds on
        self._settings = Settings()
        self.algorithms: Mapping[str, int] = {}
        self._finished_before: dict[str, StageRecord] | None = None  # None: not read yet
        self._lease: lease.Lease | None = None
        self._described: dict[str, Written] = {}
        self._begin(stage)

    @staticmethod
    def open(
        output: str,
        inputs: Mapping[str, object],
        made_from: Mapping[str, object],
        settings: Settings,
        algorithms: Mapping[str, int],
        copied: Mapping[str, Sequence[InputFile]] = MappingProxyType({}),
    ) -> "Run":
        """Return the run below `output` for these inputs and settings, whether new or begun before.

        `inputs` are the URIs, for the manifest. `copied` are input files that the run copies, by name of the input;
        their content is part of the run's identity, together with `made_from`. `algorithms` are the versions of the
        stages.
        """
        contents = {name: [[file.path, file.checksum] for file in files] for name, files in copied.items()}
        made_from = {**contents, **made_from}
        identity = {"made_from": made_from, "settings": answer_settings(settings), "algorithms": algorithms}
        run_id = hashlib.sha256(storage.json_bytes(identity)).hexdigest()[:16]
        run = Run(storage.join(storage.absolute(output), run_id))
        run._inputs, run.copied, run._settings, run.algorithms = inputs, copied, settings, algorithms
        return run

    def path(self, *names: str) -> str:
        """Return the URI of a file or folder of the run."""
        return storage.join(self.uri, *names)

    def copy_of(self, name: str) -> str | None:
        """Return the URI of the copy of an input; None if the job has no such input."""
        return self.path("work", "inputs", name) if name in self.copied else None

    @property
    def finished(self) -> bool:
        """Whether the run succeeded and all its files are unchanged. If they are not, it is marked as unfinished.

        Raises LeaseError if a file is damaged and another job is at work on the run.
        """
        success = records.read_success(self.uri)
        if success is None:
            return False
        if not records.damaged(self.uri, success["outputs"]):
            return True
        with self.held():
            success = records.read_success(self.uri)  # again: another job may have repaired the run meanwhile
            lost = records.damaged(self.uri, success["outputs"]) if success else {}
            if lost:
                _log.warning(
                    f"{self.uri}: {next(iter(lost))} is damaged or gone since the run succeeded; it is made again"
                )
                storage.delete(self.path("_SUCCESS"))
            return success is not None and not lost

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only job at work on this run. Raises LeaseError if another one is, or takes it over meanwhile."""
        with lease.held(self.uri) as self._lease:
            yield
        self._lease = None

    def finish(self, name: str, folder: str, work: Callable[[], object], dropped: str | None) -> StageRecord:
        """Call `work`, which returns a stage's answer as JSON, unless an earlier attempt finished the stage.

        Its tables go to `folder`, and the folder `dropped`, which no later stage needs, is removed (below the run).
        """
        if self._finished_before is None:
            self._finished_before = records.recover(self.uri)
        if self._lease is not None:
            self._lease.check()
        with progress.of_stage(self.uri, name, self._inputs):
            record, how = self._finished_before.get(name), "finished before"
            if record is None:
                self._finished_before = {}  # later stages may have been made from what is made again now
                self._begin(folder)
                record = self._do_stage(name, work, dropped)
                how = f"{record['seconds']:.1f} s"
            self.records.append(record)
            records.log_stage(record, how)
            if dropped:
                storage.delete_folder(self.path(dropped))
            return record

    def _do_stage(self, name: str, work: Callable[[], object], dropped: str | None) -> StageRecord:
        start = time.monotonic()
        with recording() as written:
            made = work()
        report = self.report
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
            dropped=dropped,
            made=made,
            made_as=self.made_as,
        )
        storage.write_json(records.record_of(self.uri, name), record)
        return record

    def _outputs(self, written: Mapping[str, Written], dropped: str | None = None) -> dict[str, Written]:
        """Return the written files by path below the run, without dropped ones and those that people edit."""
        run = f"{self.uri}/"
        inside = {uri.removeprefix(run): file for uri, file in written.items() if uri.startswith(run)}
        left_out = (f"{dropped}/",) if dropped else ()
        return {path: file for path, file in inside.items() if path not in EDITED and not path.startswith(left_out)}

    def _begin(self, stage: str) -> None:
        """Direct the verbs below to the stage's folder, and count their tasks in a new `report`."""
        self.folder, self.report, self.made_as = self.path("work", stage), Report(), dict[str, Any]()

    def describe(self) -> None:
        """Write config.json and manifest.json: the settings, the inputs, and the record of each stage so far."""
        manifest = {
            "run_id": self.run_id,
            "dupq": __version__,
            "algorithms": self.algorithms,
            "versions": versions(),
            "inputs": self._inputs,
            "stages": [records.without_answer(record) for record in self.records],
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

    def table(
        self, name: str, schema: Schema[Row] | None, partitions: int = 1, publish: bool = False, keep: bool = False
    ) -> Table[Row]:
        """Return the table of this name: below the run if people read it (`publish`), below `work` if it outlives the
        stage (`keep`), else in the stage's folder.
        """
        folder = self.uri if publish else storage.parent(self.folder) if keep else self.folder
        return Table(storage.join(folder, name), schema, partitions)

    def shuffled(
        self,
        name: str,
        schema: Schema[Row] | None,
        writers: int,
        partitions: int,
        by: str | None = None,
        to: str | None = None,
        keys: Shuffled[object] | None = None,
    ) -> Routed[Row]:
        """Return the table of this name whose rows `writers` tasks send to partitions; see `Routed`."""
        files = (storage.join(self.folder, name, f"part-{number:05d}.arrow") for number in range(writers))
        return Routed(Shuffled(tuple(files), schema, partitions), by, to, keys)

    # The verbs. Each takes a name, a step and how to call it, and returns a function of the step's inputs, which mypy
    # checks. A call reads its partition of each table, its own value of what is `zipped`, and all other inputs as they
    # are. If no input has partitions, there is one call.

    def map(
        self,
        name: str,
        step: Step[Given, object, Row],
        schema: Schema[Row] | None = None,
        second: Destination | None = None,
        publish: bool = False,
        keep: bool = False,
        gpus: int = 0,
        groups: Sequence[Sequence[int]] | None = None,
        pool: Pool | None = None,
    ) -> Callable[Given, Table[Row]]:
        """Call `step` for each partition of the inputs; its second table goes to `second`.

        `schema` is that of the rows if the step's own is open. With `gpus`, each task has one, and that many run at a
        time. A task makes a partition, or each of `groups`, if no `pool` of actors makes them.
        """

        def call(*args: Given.args, **kwargs: Given.kwargs) -> Table[Row]:
            inputs = step.bound(*args, **kwargs)
            made = self.table(name, step.schema(schema), number_of_calls(inputs), publish, keep)
            return replace(made, rows=self._make(name, step, inputs, second, made, gpus, groups, pool))

        return call

    def shuffle(
        self,
        name: str,
        step: Step[Given, object, Row],
        partitions: int,
        by: str | None = None,
        to: str | None = None,
        keys: Shuffled[object] | None = None,
        schema: Schema[Row] | None = None,
        second: Destination | None = None,
    ) -> Callable[Given, Shuffled[Row]]:
        """As `map`, with each row in the partition of its key in the column `by`, or of the number in the column `to`.

        With `keys`, a row goes to each task that made `keys` and asks for its `key`, as for `look_up`. Columns that the
        schema lacks are left out.
        """

        def call(*args: Given.args, **kwargs: Given.kwargs) -> Shuffled[Row]:
            inputs = step.bound(*args, **kwargs)
            made = self.shuffled(name, step.schema(schema), number_of_calls(inputs), partitions, by, to, keys)
            return replace(made.table, rows=self._make(name, step, inputs, second, made))

        return call

    def gather(self, name: str, step: Step[Given, object, Row]) -> Callable[Given, Table[Row]]:
        """As `map`, with all rows in one partition, so that many tasks can read them whole."""

        def call(*args: Given.args, **kwargs: Given.kwargs) -> Table[Row]:
            made = self.map(f"{name}_by_partition", step)(*args, **kwargs)
            return self.map(name, as_is, made.schema)(Broadcast(made))

        return call

    def spread(
        self, name: str, table: Input[Row], partitions: int, by: str | None = None, to: str | None = None
    ) -> Shuffled[Row]:
        """Send the rows of a table to partitions, as `shuffle` does."""
        return self.shuffle(name, as_is, partitions, by, to, schema=table.rows_schema)(table)

    def look_up(self, name: str, table: Table[Row] | Shuffled[Row], keys: Shuffled[kinds.Key]) -> Shuffled[Row]:
        """Return, for each file of `keys`, the rows of `table` with one of its keys. Both are partitioned by `key`.

        So partition n of the answer is what the n-th task that made `keys` asked for.
        """
        return self.shuffle(name, as_is, len(keys.files), keys=keys, schema=table.rows_schema)(table)

    @overload
    def record(
        self, name: str, step: Step[Given, StepResult[Made], kinds.Json], second: Table[object] | None = None
    ) -> Callable[Given, Made]: ...
    @overload
    def record(
        self, name: str, step: Step[Given, Made, kinds.Json], second: Table[object] | None = None
    ) -> Callable[Given, Made]: ...
    def record(self, name: str, step: AnyStep, second: Table[object] | None = None) -> Callable[..., Any]:
        """Return what `step` makes in one call, from the JSON file that keeps it. Counts as `write` does."""
        write = self.write(f"{name}.json", step, second)
        return lambda *args, **kwargs: storage.read_json(write(*args, **kwargs))

    def write(
        self,
        file: str,
        step: Step[Given, object, kinds.Json],
        second: Table[object] | None = None,
        publish: bool = False,
        gpus: int = 0,
    ) -> Callable[Given, str]:
        """Return the URI of `file`, which holds the bytes, or the dict as JSON, that `step` makes in one call.

        The step's count `rows_out` is added to the stage's. A file that people read (`publish`) is copied from the
        stage's folder to the run's; a sheet that is there stays as it is, as it may be filled in. With `gpus`, the call
        has one.
        """

        def call(*args: Given.args, **kwargs: Given.kwargs) -> str:
            uri, public = storage.join(self.folder, file), self.path(file)
            step.check_second(second)
            calls = [(0, step, step.bound(*args, **kwargs), second, uri)]
            self.report.rows_out += self._run(file.partition(".")[0], calls, gpus)
            if publish and not (file in EDITED and storage.exists(public)):
                storage.write_bytes(public, storage.read_bytes(uri))
            return public if publish else uri

        return call

    def discard_stale(self, made_by: Mapping[str, object], *names: str | Table[object]) -> None:
        """Remove tables, or files and folders of the stage, if an earlier attempt made them by anything but `made_by`.

        `made_by` is JSON, and kept with the stage's tables, in a file that is named after the first of `names`. Without
        `names` all of the stage is removed.
        """
        outputs = [name.folder if isinstance(name, Table) else storage.join(self.folder, name) for name in names]
        outputs = outputs or [self.folder]
        uri = storage.join(self.folder, f"{storage.name(outputs[0]).partition('.')[0]}_made_by.json")
        if not storage.exists(uri) or storage.read_json(uri) != made_by:
            for output in outputs:
                storage.delete_folder(output)
                storage.delete(output)
            storage.write_json(uri, dict(made_by))

    def _make(
        self,
        name: str,
        step: AnyStep,
        inputs: tuple[object, ...],
        second: Destination | None,
        made: Destination,
        gpus: int = 0,
        groups: Sequence[Sequence[int]] | None = None,
        pool: Pool | None = None,
    ) -> int:
        """Run a task per partition or group of them, or a pool; return the number of rows made."""
        step.check_second(second)
        if groups is not None:
            report = run_groups(name, step, inputs, second, made, groups, gpus, pool)
            self.report.add(report)
            return report.rows_out
        shards: Sequence[Shard] = next((value.shards for value in inputs if isinstance(value, Shards)), ())
        calls: list[tuple[object, ...]] = []
        for number in range(number_of_calls(inputs)):
            # only its own value of `Zipped`: calls stay small if tasks are many
            own = tuple(value.values[number] if isinstance(value, Zipped) else value for value in inputs)
            calls.append((number, step, own, second, made))
        return self._run(name, calls, gpus, shards)

    def _run(self, name: str, calls: Sequence[tuple[object, ...]], gpus: int = 0, shards: Sequence[Shard] = ()) -> int:
        """Run a task per call of `call_step`, add its counts to the report, and return the number of rows made."""
        report = run_tasks(name, call_step, calls, gpus=gpus, shards=shards, part_of=self._part_of)
        self.report.add(report)
        return report.rows_out
