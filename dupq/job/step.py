"""Steps: what they declare, and one call of a step: read its inputs, call it, write its rows, mark them as finished.

A step is a plain function, tables in, a table out, or an iterator of its row groups, or `StepResult`. `@step` declares
the columns that it reads and the schema that it makes. The runner compares them with what it is given before the first
task of a call (`Step.bound`), and a task reads no other columns. mypy checks the same call,
`Run.map("compared", compare)(pairs, texts)`.

A mark lies next to the main output and holds what was counted and each file that was written, with size and checksum.
It is written last. A rerun skips an output whose mark is there and whose files are unchanged; otherwise it makes the
output again, to the same bytes. Names of marks begin with an underscore, which readers of tables pass over.
"""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar, overload

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import archive, storage
from dupq.job.table import Input, Shuffled, Table, Zipped, one_batch, write_batches
from dupq.kinds import ANY, Schema, is_open, is_streamed
from dupq.storage import read_or_none
from dupq.system import Written, forget, note, recording, thread_map
from dupq.text.keys import indices_among

Counts = dict[str, int]
CAP, NUMBER = "cap: ", "number: "  # begin the names of caps and numbers in marks
_NOTHING: Mapping[str, int] = MappingProxyType({})
Row = TypeVar("Row")
Result = TypeVar("Result", covariant=True)
Made = TypeVar("Made")
Given = ParamSpec("Given")  # the parameters of a step as the runner's verbs take them
Rest = ParamSpec("Rest")  # those that are not declared tables
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
T: TypeAlias = pa.Table


class StepResult(NamedTuple, Generic[Made]):
    """The result of a step that counts something besides its rows, or makes a second table.

    The names of counts and caps are read by people only. Numbers are for the stage: `run.report.numbers`.
    """

    table: Made  # a pa.Table; a dict or bytes if the step makes JSON
    counts: Mapping[str, int] = _NOTHING
    second: pa.Table | None = None
    caps: Mapping[str, int] = _NOTHING  # how often a limit left something out
    numbers: Mapping[str, int] = _NOTHING

    @property
    def all_counts(self) -> Counts:
        """Everything that was counted, as marks store it."""
        caps = {f"{CAP}{name}": count for name, count in self.caps.items()}
        return {**self.counts, **caps, **{f"{NUMBER}{name}": count for name, count in self.numbers.items()}}


class Deferred(ABC, Generic[Made]):
    """What a step returns if the process of the call only computes, on a GPU, and others read, prepare and write."""

    @abstractmethod
    def compute(self) -> Made:
        """Return what the device computes."""

    @abstractmethod
    def finish(self, computed: Made) -> StepResult[pa.Table]:
        """Return the step's result, given what was computed."""


class Step(Generic[Given, Result, Row]):
    """A function of tables, the schemas that it reads and makes, and that of its second table."""

    def __init__(
        self,
        function: Callable[..., Result],
        reads: tuple[pa.Schema, ...],
        makes: pa.Schema,
        second: pa.Schema | None,
    ) -> None:
        """Take over the function's name and docstring."""
        functools.update_wrapper(self, function)
        self.function, self.reads, self.makes, self.second = function, reads, makes, second
        self.name: str = function.__name__

    def __call__(self, *args: object, **kwargs: object) -> Result:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str:
        """Return the step's name in its module: tasks import it."""
        return self.name

    def schema(self, whole: Schema[Row] | None) -> Schema[Row] | None:
        """Return the schema of the rows that the step makes; None if only what it returns tells it."""
        return whole if whole is not None else None if is_open(self.makes) else self.makes

    def check_second(self, second: "Destination | None") -> None:
        """Raise TypeError if the second table has another schema than what it is written to."""
        schema = second.table.schema if isinstance(second, Routed) else second and second.schema
        if second and (self.second is None or (schema != self.second and not is_open(self.second))):
            raise TypeError(
                f"{self.name}: its second table has another schema than {schema.names if schema else schema}"
            )

    def bound(self, *args: object, **kwargs: object) -> tuple[object, ...]:
        """Return the arguments of a call in their order, each table with the columns that the step reads.

        Raises TypeError, in the driver and before any task, for a call that does not fit the step's declaration.
        """
        try:
            call = inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        call.apply_defaults()
        values = list(call.args)
        for index, (name, schema) in enumerate(zip(call.arguments, self.reads, strict=False)):
            values[index] = self._read_as(schema, values[index], f"{self.name}: {name}")
        counts = {value.partitions for value in values if isinstance(value, Input) and value.is_partitioned}
        if len(counts) > 1:
            raise TypeError(f"{self.name}: inputs of {', '.join(map(str, sorted(counts)))} partitions")
        return tuple(values)

    def _read_as(self, schema: pa.Schema, value: object, place: str) -> object:
        if value is None or (isinstance(value, Zipped) and not value.values):
            return value  # the function's own types say where an input may be missing; without values there is no task
        if not isinstance(value, Input):
            raise TypeError(f"{place} is a {type(value).__name__}; a table expected, with {', '.join(schema.names)}")
        if value.is_streamed != is_streamed(schema):
            reads = "iterates over it (Streamed)" if is_streamed(schema) else "reads a table"
            raise TypeError(f"{place} is a {type(value).__name__}; the step {reads}")
        given = value.rows_schema
        if given is None:
            return value
        for field in schema:
            if field.name not in given.names:
                raise TypeError(f"{place} has no column {field.name}; it has {', '.join(given.names)}")
            if given.field(field.name).type != field.type:
                raise TypeError(f"{place}: {field.name} is {given.field(field.name).type}; {field.type} expected")
        return value if is_open(schema) else value.only(*schema.names)


AnyStep: TypeAlias = Step[..., Any, Any]


@overload
def step(
    *, makes: Schema[Row], second: pa.Schema | None = None
) -> Callable[[Callable[Rest, Result]], Step[Rest, Result, Row]]: ...
@overload
def step(
    a: Schema[A], /, *, makes: Schema[Row], second: pa.Schema | None = None
) -> Callable[[Callable[Concatenate[T, Rest], Result]], Step[Concatenate[Input[A], Rest], Result, Row]]: ...
@overload
def step(
    a: Schema[A], b: Schema[B], /, *, makes: Schema[Row], second: pa.Schema | None = None
) -> Callable[
    [Callable[Concatenate[T, T, Rest], Result]], Step[Concatenate[Input[A], Input[B], Rest], Result, Row]
]: ...
@overload
def step(
    a: Schema[A], b: Schema[B], c: Schema[C], /, *, makes: Schema[Row], second: pa.Schema | None = None
) -> Callable[
    [Callable[Concatenate[T, T, T, Rest], Result]], Step[Concatenate[Input[A], Input[B], Input[C], Rest], Result, Row]
]: ...
@overload
def step(
    a: Schema[A],
    b: Schema[B],
    c: Schema[C],
    d: Schema[D],
    /,
    *rest: Schema[Any],
    makes: Schema[Row],
    second: pa.Schema | None = None,
) -> Callable[
    [Callable[Concatenate[T, T, T, T, Rest], Result]],
    Step[Concatenate[Input[A], Input[B], Input[C], Input[D], Rest], Result, Row],
]: ...
def step(*reads: pa.Schema, makes: pa.Schema, second: pa.Schema | None = None) -> Callable[..., Any]:
    """Declare the schemas of a function's first parameters, of the table that it returns, and of its second one.

    A schema may be `streamed`, of some `columns`, or open (dupq/kinds.py). If `makes` is open, the verb is given the
    whole schema; it is JSON for a step that returns a dict. mypy compares the kinds of the first four inputs, and the
    runner the columns of all.
    """
    return lambda function: Step(function, reads, makes, second)


@step(ANY, makes=ANY)
def as_is(table: pa.Table) -> pa.Table:
    """Return the table: a step for verbs that move rows without changing them."""
    return table


class Mark(TypedDict):
    """The mark of an output: what was counted and written when it was made."""

    counts: Counts
    files: dict[str, Written]  # by URI


def mark_of(output: str) -> str:
    """Return the URI of the mark of a main output."""
    return storage.join(storage.parent(output), f"_{storage.name(output)}.json")


def finished(output: str) -> Mark | None:
    """Return the mark of `output`; None if it has to be made."""
    mark = read_or_none(mark_of(output), Mark)
    if mark is None or output not in mark["files"]:
        return None
    return mark if all(storage.is_unchanged(uri, written) for uri, written in mark["files"].items()) else None


def unfinished(table: Table[object]) -> list[int]:
    """Return the partitions of a table without a mark."""
    are_marked = thread_map(lambda uri: storage.exists(mark_of(uri)), table.files)
    return [number for number, is_marked in enumerate(are_marked) if not is_marked]


def unless_finished(output: str, make: Callable[[], Counts]) -> Counts:
    """Return the counts of `output`: from its mark if it is finished, else from `make`, which writes it."""
    before = finished(output)
    if before is not None:
        note(before["files"])
        return before["counts"]
    uri = mark_of(output)
    storage.delete(uri)
    with recording() as written:
        counts = make()
    storage.write_json(uri, Mark(counts=counts, files=written))
    forget(uri)  # marks are not outputs of the stage
    return counts


class Routed(NamedTuple, Generic[Row]):
    """A shuffled table, and where its rows go.

    That is the partition of their key in the column `by`, the number in their column `to`, or each file of `keys` that
    holds their `key`.
    """

    table: Shuffled[Row]
    by: str | None = None
    to: str | None = None
    keys: Shuffled[object] | None = None


Destination: TypeAlias = Table[Any] | Routed[Any]
Output = Destination | str  # the URI of a file for a dict (as JSON) or bytes


def call_step(
    partition: int, step: AnyStep, inputs: tuple[object, ...], second: Destination | None, output: Output
) -> Counts:
    """Write what `step` makes of a partition of its inputs, unless an earlier attempt did; return what it counted.

    `second` is the table for `StepResult.second`.
    """

    def make() -> Counts:
        result = step(*read_inputs(partition, inputs))
        if isinstance(result, Deferred):
            result = result.finish(result.compute())
        return write_result(partition, result, second, output)

    return unless_finished(file_of(output, partition), make)


def read_inputs(partition: int, inputs: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments of a step in the call for a partition."""
    return tuple(value.read(partition) if isinstance(value, Input) else value for value in inputs)


def write_result(partition: int, result: object, second: Destination | None, output: Output) -> Counts:
    """Write what a step returned; return what it counted."""
    made = result if isinstance(result, StepResult) else StepResult(result)
    if second is not None:
        _write(second, partition, made.second)
    if isinstance(output, str):
        content = made.table
        storage.write_bytes(output, content if isinstance(content, bytes) else storage.json_bytes(content))
        return made.all_counts
    return {"rows_out": _write(output, partition, made.table), **made.all_counts}


def file_of(output: Output, partition: int) -> str:
    """Return the URI of the file that the call for a partition writes."""
    if isinstance(output, str):
        return output
    return output.table.file(partition) if isinstance(output, Routed) else output.file(partition)


def _write(output: Destination, writer: int, table: pa.Table) -> int:
    """Write the file of one writer: of a shuffled table a record batch per partition, in its schema's columns.

    Returns the number of rows of `table`, which may be an iterator of row groups if the output is a `Table`.
    """
    if isinstance(output, Table) and not isinstance(table, pa.Table):
        return storage.write_row_groups(output.file(writer), table, output.schema)
    if isinstance(output, Table):
        storage.write_table(output.file(writer), table, output.schema or table.schema)
        return len(table)
    schema = output.table.schema
    rows = table if schema is None else table.select(schema.names).cast(schema)
    rows = rows.replace_schema_metadata(None).combine_chunks()
    batches = (one_batch(rows.take(pa.array(indices))) for indices in _rows_by_partition(output, writer, table))
    write_batches(output.table.file(writer), batches, rows.schema)
    return len(table)


def _rows_by_partition(output: Routed[object], writer: int, table: pa.Table) -> Iterator[np.ndarray]:
    """Yield the indices of the rows of each partition."""
    count = output.table.partitions
    if output.keys is None:
        by = output.by
        partitions = archive.partition_of(table[by].to_numpy(), count) if by else table[output.to].to_numpy()
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(count + 1))
        yield from (order[bounds[number] : bounds[number + 1]] for number in range(count))
        return
    keys = table["key"].to_numpy()
    order = np.argsort(keys, kind="stable")
    for batch in output.keys.batches(writer):
        indices, is_found = indices_among(keys[order], batch["key"].to_numpy())
        yield order[indices[is_found]]
