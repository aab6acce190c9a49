"""Parts: the rows of each piece of a dump, kept on disk until the site's shards are merged from them.

A part is two files for each of its tables: the rows, sorted by key, in an Arrow file; and their keys and sizes, which
are what is read for planning and searching. The second has xxh3 digests of the first one and of itself. That of the
first table is written last and also has what was counted, so that a part is whole if all its digests are right.
Nothing waits for the disk, whatever order it writes in: what a loss of power tore is told by its digest.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq import storage
from dupq.dump.parsing import KINDS, Contents
from dupq.dump.shards.planning import PartKeys
from dupq.errors import DupqError, StorageError
from dupq.tables import REJECTS

_COUNTS, _DIGEST = b"counts", b"digest"
_DIGEST_BYTES = 16
_KEYS = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("size", pa.int32(), nullable=False)])
_BATCH = 2_048  # rows that are read at a time
_ROW_BYTES = 100  # what a row takes besides its texts
_TEXT_BYTES = 4  # what a text of a list takes besides its letters
_SMALL = 1 << 20  # bytes: rather copied than kept as a view of a file
_REQUESTS = 8  # to S3 at once

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class PartInfo(NamedTuple):
    """What is known of a part without its texts."""

    counts: dict[str, int]
    keys: dict[str, PartKeys]  # by table


def write_part(contents: Contents, name: str, work: str, rejects: str) -> PartInfo:
    """Write a part below the folder `work`, its rejects (if any) below `rejects`."""
    if len(contents.rejects):
        storage.write_table(rejects_uri(rejects, name), contents.rejects, REJECTS)
    keys = {}
    for table in reversed(contents.tables):
        part, rows = _file(work, table, name), contents.tables[table]
        keys[table] = PartKeys(part, rows.column(KINDS[table].key).to_numpy(), row_sizes(rows))
        _write_rows(part, rows)
        _write_keys(keys[table], contents.counts)
    return PartInfo(contents.counts, {table: keys[table] for table in contents.tables})


def rejects_uri(rejects: str, name: str) -> str:
    """The file of a part's rejects."""
    return storage.join(rejects, f"part-{name}.parquet")


def find_part(name: str, work: str, tables: tuple[str, ...]) -> PartInfo | None:
    """What an earlier attempt wrote of this part; None if it did not finish it, or a loss of power tore it.

    On a local disk all of it is read once for that, on S3 only the keys: there nothing is ever torn.
    """
    parts = {table: _file(work, table, name) for table in tables}
    if not storage.exists(_keys_file(parts[tables[0]])) or not all(map(_is_whole, parts.values())):
        return None
    counts = json.loads(_open_keys(parts[tables[0]]).schema.metadata[_COUNTS])
    return PartInfo(counts, {table: keys_of(part) for table, part in parts.items()})


def keys_of(part: str) -> PartKeys:
    """The keys of a part's file; on a local disk only what is looked at is read."""
    batch = _open_keys(part).get_batch(0)
    return PartKeys(part, *(column.to_numpy() for column in batch.columns))


def requests(part: str) -> int:
    """How many parts beside this one to read at once: several where each waits for the network."""
    return _REQUESTS if storage.is_s3(part) else 1


def read_rows(part: str, start: int, is_wanted: np.ndarray) -> pa.Table:
    """Of the rows of a part's file from `start` on those that are wanted.

    It keeps at most twice the memory of these rows: they are copied, unless they are most of what was read.
    """
    stop = start + len(is_wanted)
    batches = []
    with storage.open_mapped(part) as stream:
        reader = pa.ipc.open_file(stream)
        for index in range(start // _BATCH, (stop - 1) // _BATCH + 1):
            first = index * _BATCH
            low, high = max(start, first), min(stop, first + _BATCH)
            batches.append(_taken(reader.get_batch(index), low - first, is_wanted[low - start : high - start]))
    return pa.Table.from_batches(batches)


def all_rows(part: str) -> pa.Table:
    """All rows of a part's file."""
    with storage.open_mapped(part) as stream:
        return pa.ipc.open_file(stream).read_all()


def in_turn(work: Callable[[_Item], _Result], items: Iterable[_Item], at_once: int) -> Iterator[_Result]:
    """What `work` gives for each item, in their order; so many are held at once, and no more."""
    if at_once == 1:
        yield from map(work, items)
        return
    begun: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) == at_once:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def member_of(part: str) -> int:
    """Which of the site's files a part was read from."""
    return int(storage.name(part).split("-")[0])


def row_sizes(table: pa.Table) -> np.ndarray:
    """About how many bytes each row takes."""
    sizes = np.full(len(table), _ROW_BYTES, np.int32)
    for column in table.columns:
        if pa.types.is_string(column.type):
            sizes += _text_sizes(column)
        elif pa.types.is_list(column.type):
            ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), dtype=np.int64)
            totals = np.cumsum(np.append(0, _text_sizes(pc.list_flatten(column)) + _TEXT_BYTES), dtype=np.int64)
            sizes += np.diff(totals[np.append(0, ends)]).astype(np.int32)
    return sizes


def _text_sizes(texts: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(pc.binary_length(texts), 0).to_numpy()


def _file(work: str, table: str, name: str) -> str:
    return storage.join(work, table, f"{name}.arrow")


def _keys_file(part: str) -> str:
    return part.removesuffix(".arrow") + ".keys"


def _write_rows(part: str, table: pa.Table) -> None:
    # on a local disk parts stay in the page cache; over a network they are better small
    options = pa.ipc.IpcWriteOptions(compression="lz4" if storage.is_s3(part) else None)
    with (
        storage.open_output(part, is_durable=False) as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table.combine_chunks(), max_chunksize=_BATCH)


def _write_keys(keys: PartKeys, counts: Mapping[str, int]) -> None:
    known = {_COUNTS: json.dumps(counts, sort_keys=True), _DIGEST: _digest(keys.part)}
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, _KEYS.with_metadata(known)) as writer:
        writer.write_batch(pa.record_batch([pa.array(keys.keys), pa.array(keys.sizes)], schema=_KEYS))
    content = buffer.getvalue()
    with storage.open_output(_keys_file(keys.part), is_durable=False) as sink:
        sink.write(content)
        sink.write(xxhash.xxh3_128_digest(content))


def _digest(part: str) -> str:
    """xxh3 of a local file; nothing for one on S3, which is whole if it is there."""
    if storage.is_s3(part):
        return ""
    with storage.open_mapped(part) as stream:
        return xxhash.xxh3_128_hexdigest(stream.read_buffer())


def _is_whole(part: str) -> bool:
    try:
        with storage.open_mapped(_keys_file(part)) as stream:
            content = stream.read_buffer()
        if xxhash.xxh3_128_digest(content[:-_DIGEST_BYTES]) != content[-_DIGEST_BYTES:].to_pybytes():
            return False
        return _open_keys(part).schema.metadata[_DIGEST].decode() == _digest(part)
    except StorageError:
        raise
    except (DupqError, pa.ArrowInvalid, OSError):  # one of them is missing or empty
        return False


def _open_keys(part: str) -> pa.ipc.RecordBatchFileReader:
    with storage.open_mapped(_keys_file(part)) as stream:
        return pa.ipc.open_file(pa.BufferReader(stream.read_buffer()[:-_DIGEST_BYTES]))


def _taken(batch: pa.RecordBatch, start: int, is_wanted: np.ndarray) -> pa.RecordBatch:
    rows = batch.slice(start, len(is_wanted))
    if is_wanted.all() and rows.nbytes >= max(_SMALL, batch.nbytes // 2):
        return rows
    return rows.take(pa.array(np.flatnonzero(is_wanted)))
