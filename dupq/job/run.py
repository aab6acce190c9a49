"""Tables made from others by `map`, `gather`, `shuffle` and `look_up`, and JSON made from tables by `record`.

A step is a plain function: tables in, a table out, or `Counted`. It is called once per partition, and opens nothing. A
partition that an earlier attempt finished is skipped (dupq/job/table.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.archive import Shard, partition_of
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
from dupq.runs import writer
from dupq.text.keys import places_among

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
    """Makes the tables of a stage, and counts in `report` what its steps do."""

    def __init__(self, uri: str, stage: str, is_done: bool = False) -> None:
        """`uri` is the run's folder. If the stage is done, its tables are named and no step is called."""
        self.uri, self.folder = uri, storage.join(uri, "work", stage)
        self.report, self.is_done = Report(), is_done

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


def make_tables(
    run: writer.Run,
    stage: str,
    make: Callable[..., _Made],
    *inputs: object,
    folder: str | None = None,
    dropped: str | None = None,
) -> _Made:
    """Return what `make(steps, *inputs)` returns: the tables of a stage, made unless an earlier attempt finished them.

    `folder` is the name of what several stages share instead of their own; `dropped` a folder of the run that no later
    stage needs, which is removed.
    """
    made: list[_Made] = []
    do_stage(run, stage, lambda steps: made.append(make(steps, *inputs)), folder=folder, dropped=dropped)
    return made[0] if made else make(Run(run.uri, folder or stage, is_done=True), *inputs)


def do_stage(
    run: writer.Run,
    stage: str,
    make: Callable[..., object],
    *inputs: object,
    folder: str | None = None,
    dropped: str | None = None,
) -> None:
    """Call `make(steps, *inputs)` unless an earlier attempt finished the stage; `make_tables` calls it then too."""

    def work() -> Report:
        steps = Run(run.uri, folder or stage)
        make(steps, *inputs)
        return steps.report

    run.stage(stage, work, dropped=dropped and run.path(dropped))


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
    asked = (places_among(keys[order], batch["key"].to_numpy()) for batch in made.wanted.batches(part))
    return (order[places[are_there]] for places, are_there in asked)


def write_spread(made: Spread, part: int, table: pa.Table) -> None:
    """Write a file of a table: see `Run.shuffle`."""
    _write(made, part, table, {})
