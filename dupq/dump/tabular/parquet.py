"""Parsing the rows of a Parquet table, a row group at a time, whatever types its columns have."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from dupq import storage
from dupq.dump.archives.streams import UnpackLimits
from dupq.dump.tabular.columns import (
    DATES,
    NOT_UTF8,
    Columns,
    Layout,
    Table,
    columns_of,
    locate,
    read_row,
    tags_of,
    whole_number,
)
from dupq.dump.xml.rows import EXCERPT, BrokenRow, Row
from dupq.dump.xml.segments import MAXIMUM_ROW
from dupq.errors import DupqError

_BATCH = 1_000  # rows
_BATCH_BYTES = 16 << 20  # that are stored of a batch of rows, on average
_BUFFER = 1 << 20  # bytes of a column that are read at a time
_UNFOLDED = 128 << 20  # bytes that texts of a batch may unfold to where Arrow cannot keep them folded; it takes twice
_MAXIMUM_TAGS = 64  # in a row, on average

_NOT_TEXT: Any = object()  # marks a value that is not UTF-8


def row_groups(uri: str) -> int:
    """The number of row groups of a Parquet file. Raises DupqError if it is missing or damaged."""
    with storage.open_input(uri) as stream, _damage(uri):
        return pq.read_metadata(stream).num_row_groups


def read_row_group(
    uri: str, index: int, columns: Columns | None, table: Table = "posts", limits: UnpackLimits | None = None
) -> Iterator[Row | BrokenRow]:
    """The rows of row group `index`, in their order; a row's position is its number in the file, from 0.

    `columns` of None are the dump's own for `table`; no others are read. The content of a row is the beginning
    of its values, for a report on it.

    Memory: a page of each column is held (some MB as they are usually written, 2 GiB at most), and what is stored
    of a batch of rows (16 MiB on average), each different text once, however often it occurs; where delta encodings
    do not let it, the batches are smaller. At most MAXIMUM_ROW bytes of text are made into rows at a time; a row
    with more is broken. Refused are columns that unpack beyond `limits`, going by the footer (None: there are no
    limits), and lists with far more tags than questions have.

    Raises DupqError naming the file if it is missing, damaged or refused, or if it lacks a column, has it twice or
    in a type that cannot hold what it should.
    """
    with storage.open_input(uri) as stream:
        with _damage(uri):
            footer = pq.read_metadata(stream)
            group = footer.row_group(index)
            texts = [chunk.path_in_schema for chunk in _chunks(group) if _keeps_dictionary(chunk)]
            file = pq.ParquetFile(stream, metadata=footer, read_dictionary=texts, buffer_size=_BUFFER, pre_buffer=False)
            schema = file.schema_arrow
        layout = locate(columns_of(columns, table), schema.names, uri)
        fields = [schema.field(place) for place in layout.places]
        for attribute, field in zip(layout.attributes, fields, strict=True):
            _check_type(uri, attribute, field)
        names = [field.name for field in fields]
        size = _batch_size(uri, group, names, limits)
        first = position = sum(footer.row_group(earlier).num_rows for earlier in range(index))
        for batch in _batches(uri, file, index, names, size):
            yield from _rows(batch.select(names), position, layout)
            position += batch.num_rows
        if position - first != group.num_rows:
            raise DupqError(f"{uri}: damaged: row group {index} does not have the rows that the footer says")


@contextlib.contextmanager
def _damage(uri: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DupqError(f"{uri}: no Parquet file, or damaged ({error})") from error


def _batches(uri: str, file: pq.ParquetFile, index: int, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
    with _damage(uri):
        batches = file.iter_batches(size, [index], list(dict.fromkeys(names)), use_threads=False)
    while True:
        with _damage(uri):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _batch_size(uri: str, group: pq.RowGroupMetaData, names: list[str], limits: UnpackLimits | None) -> int:
    """The rows that are read at a time. Raises DupqError for a column that is not to be read."""
    size, stored = _BATCH, 0
    for chunk in _chunks(group):
        path = chunk.path_in_schema
        is_list = any(path.startswith(f"{name}.") for name in names)
        if not is_list and path not in names:
            continue
        if limits is not None:
            limits.check(f"{uri}, column '{path}'", chunk.total_uncompressed_size, chunk.total_compressed_size)
        stored += chunk.total_uncompressed_size
        if is_list and chunk.num_values > _MAXIMUM_TAGS * (group.num_rows + _BATCH):
            raise DupqError(
                f"{uri}: refused: column '{path}' has {chunk.num_values:,} values in {group.num_rows:,} rows"
            )
        if chunk.physical_type == "BYTE_ARRAY" and not _keeps_dictionary(chunk) and _may_unfold(chunk):
            size = min(size, max(1, _UNFOLDED // max(1, chunk.total_uncompressed_size)))
    return max(1, min(size, _BATCH_BYTES * group.num_rows // max(1, stored)))


def _chunks(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(number) for number in range(group.num_columns)]


def _keeps_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a column can be read without unfolding its dictionary, which it cannot where delta encodings are."""
    has_deltas = any(encoding.startswith("DELTA") for encoding in chunk.encodings)
    return chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page and not has_deltas


def _may_unfold(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether values may be many times what is stored of them: they share a dictionary, or their prefixes."""
    return chunk.has_dictionary_page or "DELTA_BYTE_ARRAY" in chunk.encodings


def _check_type(uri: str, attribute: str, field: pa.Field) -> None:
    """Raise DupqError if no value of the column can be what `attribute` is."""
    inner = field.type.value_type if pt.is_dictionary(field.type) else field.type
    if pt.is_null(inner) or _is_text(inner):
        return
    if attribute == "Tags":
        is_usable = _is_list(inner) and (_is_text(_element(inner)) or pt.is_null(inner.value_type))
    elif attribute in DATES:
        is_usable = pt.is_timestamp(inner) or pt.is_date(inner)
    else:
        is_usable = pt.is_integer(inner) or pt.is_floating(inner) or pt.is_decimal(inner)
    if not is_usable:
        raise DupqError(f"{uri}: column '{field.name}' is {field.type}, which cannot be read as {attribute}")


def _is_text(data_type: pa.DataType) -> bool:
    kinds = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
    return _is_view(data_type) or any(is_kind(data_type) for is_kind in kinds)


def _is_view(data_type: pa.DataType) -> bool:
    return pt.is_string_view(data_type) or pt.is_binary_view(data_type)


def _is_list(data_type: pa.DataType) -> bool:
    return pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type)


def _element(data_type: pa.DataType) -> pa.DataType:
    inner = data_type.value_type
    return inner.value_type if pt.is_dictionary(inner) else inner


def _rows(batch: pa.RecordBatch, position: int, layout: Layout) -> Iterator[Row | BrokenRow]:
    """The rows of a batch, of which no more than MAXIMUM_ROW bytes of text are unfolded at a time."""
    if sum(map(_text_bytes, batch.columns)) > MAXIMUM_ROW:
        half = batch.num_rows // 2
        if half:
            yield from _rows(batch.slice(0, half), position, layout)
            yield from _rows(batch.slice(half), position + half, layout)
        else:
            key = str(_texts(batch.column(0))[0])
            yield BrokenRow(position, f"longer than {MAXIMUM_ROW >> 20} MiB", key[:EXCERPT])
        return
    for place, values in enumerate(zip(*map(_texts, batch.columns), strict=True), position):
        yield _row(values, place, layout)


def _row(values: Sequence[str | None], position: int, layout: Layout) -> Row | BrokenRow:
    texts = [value for value in values if value]
    if _NOT_TEXT in texts:
        shown = " ".join(value for value in texts if value is not _NOT_TEXT)
        return BrokenRow(position, NOT_UTF8, shown[:EXCERPT])
    return read_row(position, values, " ".join(texts).encode(), layout)


def _text_bytes(array: pa.Array) -> int:
    """The bytes of all texts in a column, each as often as it occurs."""
    if _is_list(array.type):
        return _text_bytes(array.flatten())
    if pt.is_dictionary(array.type) and _is_text(array.type.value_type):
        lengths = pc.take(pc.binary_length(array.dictionary), array.indices)
    elif _is_text(array.type):
        lengths = pc.binary_length(array.cast(pa.binary()) if _is_view(array.type) else array)
    else:
        return 0
    return pc.sum(lengths).as_py() or 0


def _texts(array: pa.Array) -> list[str | None]:
    """The values of a column as text; None where there is none, _NOT_TEXT for one that is not UTF-8."""
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_view(array.type):
        array = array.cast(pa.binary())
    if pt.is_timestamp(array.type):
        array = array.cast(pa.timestamp(array.type.unit))  # in UTC, as it is stored
    if pt.is_floating(array.type):
        return [None if value is None else _float_text(value) for value in array.to_pylist()]
    if pt.is_decimal(array.type):
        return [None if value is None else whole_number(str(value)) for value in array.to_pylist()]
    if not _is_text(array.type) and not _is_list(array.type):
        return array.cast(pa.string()).to_pylist()
    try:
        values = array.to_pylist()
    except UnicodeDecodeError:
        return [_text_of_scalar(scalar) for scalar in array]
    is_string = pt.is_string(array.type) or pt.is_large_string(array.type)
    return values if is_string else [_text(value) for value in values]


def _text_of_scalar(scalar: pa.Scalar) -> str | None:
    try:
        return _text(scalar.as_py())
    except UnicodeDecodeError:
        return _NOT_TEXT


def _text(value: str | bytes | list[str | bytes | None] | None) -> str | None:
    try:
        if isinstance(value, list):
            return tags_of([tag.decode() if isinstance(tag, bytes) else tag for tag in value])
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return _NOT_TEXT


def _float_text(value: float) -> str | None:
    if value != value:  # as pandas writes what is missing
        return None
    return str(int(value)) if value.is_integer() else repr(value)
