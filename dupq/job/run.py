"""Tables made from others by `map`, `gather`, `shuffle` and `look_up`, and JSON made from tables by `record`.

A step is a plain function: tables in, a table out, or `Counted`. It is called once per partition, and opens nothing. A
partition that an earlier attempt finished is skipped (dupq/execution/units.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.job.table import Each, Partitioned, Shards, Spread, Table, Whole
from dupq.shards import Shard, partition_of
from dupq.text.keys import places_among

Step = Callable[..., "pa.Table | dict[str, object] | Counted"]
_ROWS = "rows_out"


class Counted(NamedTuple):
    """What a step returns that counts something besides its rows, or makes a second table (`beside`).

    `CAP` (tasks.py) begins the name of a limit that left something out.
    """

    table: pa.Table  # a dict, if `record` calls the step
    counts: Mapping[str, int] = MappingProxyType({})
    second: pa.Table | None = None


class Run:
    """Makes the tables of a stage, and counts in `report` what its steps do."""

    def __init__(self, uri: str, stage: str, is_done: bool = False) -> None:
        """`uri` is the run's folder. If the stage is done, its tables are named and no step is called."""
        self.uri, self.folder = uri, storage.join(uri, "work", stage)
        self.report, self._is_done = Report(), is_done

    def table(self, name: str, schema: pa.Schema, parts: int = 1, publish: bool = False) -> Table:
        """Return the table of this name; `publish`: one that people read."""
        return Table(storage.join(self.uri if publish else self.folder, name), schema, parts)

    def map(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema,
        beside: Table | None = None,
        publish: bool = False,
    ) -> Table:
        """Apply `step` to each partition of the inputs; its second table goes to `beside`.

        Inputs that are no tables, and those in `Whole` and `Each`, are the same for every call; with no others there is
        one call.
        """
        made = self.table(name, into, _parts(inputs), publish)
        return replace(made, rows=self._do(name, _map, (step, inputs, beside, made), made.parts, inputs))

    def gather(self, name: str, step: Step, *inputs: object, into: pa.Schema) -> Table:
        """As `map`, with all rows in one partition, so that many tasks can read them whole."""
        return self.map(name, as_they_are, Whole(self.map(f"{name}_by_partition", step, *inputs, into=into)), into=into)

    def record(self, name: str, step: Step, *inputs: object, beside: Table | None = None) -> Any:
        """Return the dict that `step` makes of the inputs in one call, kept as JSON; its `rows_out` are the stage's."""
        uri = storage.join(self.folder, f"{name}.json")
        self.report.rows_out += self._do(name, _record, (step, inputs, beside, uri), 1)
        return storage.read_json(uri)

    def shuffle(
        self,
        name: str,
        step: Step,
        *inputs: object,
        into: pa.Schema | None,
        parts: int,
        by: str | None = None,
        to: str | None = None,
        beside: Table | None = None,
        gpus: int = 0,
    ) -> Spread:
        """As `map`, with the rows in the partition of their key in the column `by`, or in the one that `to` numbers.

        Columns that `into` lacks are left out. With `gpus` each call has one, and so many run at a time.
        """
        made = self._spread(name, into, _parts(inputs), parts)
        rows = self._do(name, _shuffle, (step, inputs, beside, by, to, made), len(made.files), inputs, gpus)
        return replace(made, rows=rows)

    def look_up(self, name: str, table: Table | Spread, wanted: Spread) -> Spread:
        """For each file of `wanted` the rows of `table` whose `key` its rows have; both are partitioned by `key`.

        So partition n of the answer is what the step of `wanted`'s n-th file asked for.
        """
        made = self._spread(name, table.read_schema, table.parts, len(wanted.files))
        self._do(name, _look_up, (table, wanted, made), table.parts)
        return made

    def _spread(self, name: str, schema: pa.Schema | None, writers: int, parts: int) -> Spread:
        files = (storage.join(self.folder, name, f"part-{number:05d}.arrow") for number in range(writers))
        return Spread(tuple(files), schema, parts)

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
        if self._is_done:
            return 0
        shards = next((one.shards for one in inputs if isinstance(one, Shards)), ())
        calls = [(part, *arguments, *shards[part : part + 1]) for part in range(parts)]  # a shard gives errors its name
        report = run_tasks(name, work, calls, gpus=gpus)
        self.report.add(report)
        self.report.rows_in += report.rows_in  # which few steps count
        return report.rows_out


def as_they_are(table: pa.Table) -> pa.Table:
    """Return the table: where its rows go is all that is asked."""
    return table


def _parts(inputs: tuple[object, ...]) -> int:
    return next((one.parts for one in inputs if isinstance(one, Partitioned)), 1)


def _called(step: Step, inputs: tuple[object, ...], part: int) -> Counted:
    def read(one: object) -> object:
        return one.read(part) if isinstance(one, Partitioned) else one.read() if isinstance(one, Whole | Each) else one

    found = step(*map(read, inputs))
    return found if isinstance(found, Counted) else Counted(found)


def _map(part: int, step: Step, inputs: tuple[object, ...], beside: Table | None, made: Table, *_: Shard) -> Counts:
    def make() -> Counts:
        found = _called(step, inputs, part)
        _write_beside(beside, part, found)
        storage.write_table(made.file(part), found.table, made.schema, dict(found.counts))
        return {_ROWS: len(found.table), **found.counts}

    return skip_or(made.file(part), make)


def _record(part: int, step: Step, inputs: tuple[object, ...], beside: Table | None, uri: str) -> Counts:
    def make() -> Counts:
        found = _called(step, inputs, part)
        _write_beside(beside, part, found)
        storage.write_json(uri, found.table)
        return dict(found.counts)

    return skip_or(uri, make)


def _shuffle(
    part: int,
    step: Step,
    inputs: tuple[object, ...],
    beside: Table | None,
    by: str | None,
    to: str | None,
    made: Spread,
    *_: Shard,
) -> Counts:
    def make() -> Counts:
        found = _called(step, inputs, part)
        _write_beside(beside, part, found)
        homes = partition_of(found.table[by].to_numpy(), made.parts) if by else found.table[to].to_numpy()
        table = found.table if made.schema is None else found.table.select(made.schema.names)
        _write(made, part, table, _rows_of(homes, made.parts))
        return {_ROWS: len(found.table), **found.counts}

    return skip_or(made.files[part], make)


def _write_beside(beside: Table | None, part: int, found: Counted) -> None:
    if beside is not None:
        storage.write_table(beside.file(part), found.second, beside.schema)


def _look_up(part: int, table: Table | Spread, wanted: Spread, made: Spread) -> Counts:
    def make() -> Counts:
        rows = table.read(part)
        keys = rows["key"].to_numpy()
        order = np.argsort(keys, kind="stable")
        asked = (places_among(keys[order], batch["key"].to_numpy()) for batch in wanted.batches(part))
        _write(made, part, rows, (order[places[are_there]] for places, are_there in asked))
        return {}

    return skip_or(made.files[part], make)


def _rows_of(homes: np.ndarray, parts: int) -> Iterator[np.ndarray]:
    """Yield the rows of each partition, in their order."""
    order = np.argsort(homes, kind="stable")
    bounds = np.searchsorted(homes[order], np.arange(parts + 1))
    return (order[bounds[part] : bounds[part + 1]] for part in range(parts))


def _write(made: Spread, part: int, table: pa.Table, rows: Iterator[np.ndarray]) -> None:
    table = table.replace_schema_metadata(None).combine_chunks()
    batches = (exchange.one_batch(table.take(pa.array(some))) for some in rows)
    exchange.write_parts(made.files[part], batches, table.schema if made.schema is None else made.schema)
