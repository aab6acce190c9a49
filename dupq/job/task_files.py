"""What tasks leave in files: marks, by which a rerun skips what is finished, and rows for the next step."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from typing_extensions import TypedDict

from dupq import storage
from dupq.storage import read_whole
from dupq.system import Written, forget, note, recording, side_by_side

# Units of work: a rerun skips what an earlier attempt finished, if its files are still the ones that were written.
#
# A unit leaves a mark beside its main output: what it counted, and each file that it wrote with size and checksum. The
# mark is written last. Without it, or if a file was deleted, cut or replaced since, the unit is done again; the same
# inputs give the same bytes. Names of marks begin with an underscore, which readers of tables pass over.

Counts = dict[str, int]


class _Mark(TypedDict):
    """What a finished unit leaves."""

    counts: Counts
    files: dict[str, tuple[int, str, int | None]]  # by URI: `Written`


def finished(output: str) -> tuple[Counts, dict[str, Written]] | None:
    """What an earlier attempt at this run counted in making `output`, and what it wrote; None if it is to be made."""
    mark = read_whole(mark_of(output), _Mark)
    if mark is None:
        return None
    files = {uri: Written(*written) for uri, written in mark["files"].items()}
    is_whole = output in files and all(storage.is_unchanged(uri, written) for uri, written in files.items())
    return (mark["counts"], files) if is_whole else None


def skip_or(output: str, work: Callable[[], Counts]) -> Counts:
    """The counts of `output` if an earlier attempt at this run finished it, else those of making it by `work`."""
    there = finished(output)
    if there is not None:
        note(there[1])
        return there[0]
    place = mark_of(output)
    storage.delete(place)
    with recording() as written:
        counts = work()
    storage.write_json(place, {"counts": counts, "files": written})
    forget(place)  # it is no output
    return counts


def mark_of(output: str) -> str:
    """The mark of the unit whose main output is `output`."""
    return storage.join(storage.parent(output), f"_{storage.name(output)}.json")


# Exchange of rows between tasks: Arrow files with one record batch for each task that reads them.
#
# A writer spreads its rows over parts; the reader of a part takes that batch of every writer's file and nothing else
# (on S3 by range requests), so that no row is read twice.


def write_parts(uri: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write `batches`, the first for the reader of part 0 and so on. Memory: a batch; on S3 the file."""
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read_part(uris: list[str], part: int) -> list[pa.RecordBatch]:
    """Batch `part` of each file, in the order of `uris`. Raises DupqError for a missing or damaged file."""
    if not uris or not storage.is_remote(uris[0]):
        return [_read_batch(uri, part) for uri in uris]
    return side_by_side(lambda uri: _read_batch(uri, part), uris)  # each waits for the network twice


def read_all(uri: str) -> list[pa.RecordBatch]:
    """All batches of one file; errors as of `read_part`."""
    with storage.open_input(uri) as stream, storage.readable(uri, "Arrow"):
        return pa.ipc.open_file(stream).read_all().to_batches()


def _read_batch(uri: str, part: int) -> pa.RecordBatch:
    with storage.open_input(uri) as stream, storage.readable(uri, "Arrow"):
        return pa.ipc.open_file(stream).get_batch(part)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch, also where there are none."""
    plain = table.replace_schema_metadata(None).combine_chunks()
    return plain.to_batches()[0] if len(plain) else pa.RecordBatch.from_pylist([], schema=plain.schema)


def table_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of all batches together; whatever metadata these have is left out."""
    return pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], schema)
