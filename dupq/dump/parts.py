"""Parts: what was read of each piece of a dump, kept until the site's shards are made of it.

A part is one Arrow file for each of its tables, sorted by key. The file of the first table is written last, so
that a part is whole if it is there; it also keeps what was counted.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.dump.contents import KINDS, Contents, Kind, sort_rows
from dupq.dump.sharding import PartKeys, Slice
from dupq.tables import REJECTS

_COUNTS = b"counts"
_BATCH = 2_048  # rows that are read at a time
_ROW_BYTES = 100  # what a row takes besides its texts


class PartInfo(NamedTuple):
    """What is known of a part without its texts."""

    counts: dict[str, int]
    keys: dict[str, PartKeys]  # by table


def write_part(contents: Contents, name: str, work: str, rejects: str) -> PartInfo:
    """Write a part below the folder `work`, its rejects (if any) below `rejects`."""
    if len(contents.rejects):
        storage.write_table(rejects_uri(rejects, name), contents.rejects, REJECTS)
    for table in reversed(contents.tables):
        _write(_file(work, table, name), contents.tables[table], contents.counts)
    return _info(work, name, contents.tables, contents.counts)


def rejects_uri(rejects: str, name: str) -> str:
    """The file of a part's rejects."""
    return storage.join(rejects, f"part-{name}.parquet")


def find_part(name: str, work: str, tables: tuple[str, ...]) -> PartInfo | None:
    """What an earlier attempt wrote of this part; None if it did not finish it."""
    if not storage.exists(_file(work, tables[0], name)):
        return None
    try:
        found = {table: _read(_file(work, table, name)) for table in tables}
    except (pa.ArrowInvalid, OSError):  # torn by a loss of power
        return None
    counts = json.loads(found[tables[0]].schema.metadata[_COUNTS])
    return _info(work, name, found, counts)


def merge(slices: tuple[Slice, ...], kind: Kind) -> tuple[pa.Table, dict[str, int]]:
    """The rows of `slices` sorted as `kind` says, and how many it leaves out of each part.

    Of rows with the same key the last stays, if `kind` is unique.
    """
    tables = [_read_slice(piece) for piece in slices]
    table, dropped = sort_rows(kind, pa.concat_tables(tables))
    ends = np.cumsum([len(table) for table in tables])
    owners = np.searchsorted(ends, dropped, "right")
    counts = np.bincount(owners, minlength=len(slices)).tolist()
    return table, {piece.part: count for piece, count in zip(slices, counts, strict=True) if count}


def keys_of(part: str, kind: Kind) -> PartKeys:
    """The keys of a part's file."""
    return _keys(part, _read(part), kind)


def member_of(part: str) -> int:
    """Which of the site's files a part was read from."""
    return int(storage.name(part).split("-")[0])


def _file(work: str, table: str, name: str) -> str:
    return storage.join(work, table, f"{name}.arrow")


def _info(work: str, name: str, tables: Mapping[str, pa.Table], counts: dict[str, int]) -> PartInfo:
    keys = {table: _keys(_file(work, table, name), rows, KINDS[table]) for table, rows in tables.items()}
    return PartInfo(counts, keys)


def _keys(part: str, table: pa.Table, kind: Kind) -> PartKeys:
    sizes = np.full(len(table), _ROW_BYTES, np.int32)
    for field in table.schema:
        if pa.types.is_string(field.type):
            sizes += pc.fill_null(pc.binary_length(table.column(field.name)), 0).to_numpy()
    return PartKeys(part, 0, table.column(kind.key).to_numpy(), sizes)


def _write(uri: str, table: pa.Table, counts: dict[str, int]) -> None:
    schema = table.schema.with_metadata({_COUNTS: json.dumps(counts, sort_keys=True)})
    # on a local disk parts stay in the page cache; over a network they are better small
    options = pa.ipc.IpcWriteOptions(compression="lz4" if storage.is_s3(uri) else None)
    with (
        storage.open_output(uri, is_durable=False) as sink,
        pa.ipc.new_file(sink, schema, options=options) as writer,
    ):
        writer.write_table(table.combine_chunks(), max_chunksize=_BATCH)


def _read(uri: str) -> pa.Table:
    with storage.open_mapped(uri) as stream:
        return pa.ipc.open_file(stream).read_all()


def _read_slice(piece: Slice) -> pa.Table:
    """Only the batches that the slice touches are read."""
    with storage.open_mapped(piece.part) as stream:
        reader = pa.ipc.open_file(stream)
        first, last = piece.start // _BATCH, (piece.stop - 1) // _BATCH
        batches = [reader.get_batch(index) for index in range(first, last + 1)]
    schema = reader.schema.remove_metadata()
    table = pa.Table.from_batches(batches).replace_schema_metadata(None).cast(schema)
    return table.slice(piece.start - first * _BATCH, piece.stop - piece.start)
