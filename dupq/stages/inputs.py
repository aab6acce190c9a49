"""What a run takes from outside: copies of its inputs, and the contents of an earlier run.

Inputs that are read more than once are copied, as another job may replace them meanwhile. In the contents of the
earlier run, a run finds the questions that have not changed since.

From the earlier run it takes their texts, embeddings and a reranker's vectors. A shard's questions are searched in the
earlier partitions whose range of ids overlaps its own: both are sorted, or nearly so. At most 8 partitions are read;
the others are counted as left out. The answer is the same as without an earlier run, byte for byte. So nothing is taken
that is damaged or was made differently, and no embeddings from GPUs into a run on CPUs, or vice versa. Between two runs
on GPUs they are taken, although their last bits depend on the rest of the batch: if they were made again, all questions
would count as changed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds, storage
from dupq.archive import Input
from dupq.evaluation.verdicts import VERDICTS_FILE, Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import Counts, unless_finished
from dupq.job.table import Table
from dupq.job.tasks import run_tasks
from dupq.system import thread_map
from dupq.tables import CONTENT_HASHES
from dupq.text.keys import ID_BITS, MAXIMUM_ID
from dupq.text.questions import NO_HASHES, ContentHashes

_PARTITIONS = 8  # of the earlier run that are read per shard
LEFT_OUT = f"files of the earlier run beyond {_PARTITIONS} for a shard"  # a cap


@stage("inputs", version=1)
def copy_inputs(run: Run, verdicts: Sequence[Verdict] = ()) -> None:
    """Copy the run's inputs, and write the verdicts. Raises DupqError if an input changed since the run was opened."""
    if verdicts:
        storage.write_bytes(run.path(VERDICTS_FILE), format_verdicts(verdicts).encode())
    files = [file for files in run.copied.values() for file in files]
    report = run_tasks("inputs", copy_input, [(file, run.path("work", "inputs", file.path)) for file in files])
    run.report.add(report)
    run.report.rows_out = report.rows_out


def copy_input(file: Input, copy: str) -> Counts:
    """Copy a file to the URI `copy`. Raises DupqError if it has changed since the run was opened. Memory: the file."""

    def make() -> Counts:
        with storage.unchanged(file.uri, lambda: storage.checksum(file.uri) == file.checksum):
            content = storage.read_bytes(file.uri)
        storage.write_bytes(copy, content)
        return {"rows_in": 1, "rows_out": 1}

    return unless_finished(copy, make)


class Span(NamedTuple):
    """A partition of the earlier run: its number, its site, and its lowest and highest id."""

    number: int
    site: str
    low: int
    high: int


class EarlierContents(NamedTuple):
    """The hashes of the earlier contents, and what each partition of them spans."""

    contents: Table[kinds.ContentHash]
    spans: tuple[Span, ...]  # without empty partitions


def contents_of(contents: Table[kinds.ContentHash], sites: Sequence[str]) -> EarlierContents:
    """Return the contents of an earlier run, whose keys number its `sites`."""
    spans = tuple(
        Span(number, sites[span[0] >> ID_BITS], span[0] & MAXIMUM_ID, span[1] & MAXIMUM_ID)
        for number, span in enumerate(thread_map(storage.key_span, contents.files))
        if span is not None
    )
    return EarlierContents(contents.only(*CONTENT_HASHES.names), spans)


def find_contents(earlier: EarlierContents | None, site: str, ids: np.ndarray) -> tuple[list[int], ContentHashes, int]:
    """Return the partitions of the earlier run that may have the questions `ids` of `site`, and the hashes in them.

    The last number counts such partitions that are not read.
    """
    if earlier is None or not len(ids):
        return [], NO_HASHES, 0
    low, high = int(ids.min()), int(ids.max())
    overlapping = [span.number for span in earlier.spans if span.site == site and span.low <= high and low <= span.high]
    numbers = overlapping[:_PARTITIONS]
    return numbers, hashes_in(map(earlier.contents.read, numbers)), len(overlapping) - len(numbers)


def hashes_in(tables: Iterable[pa.Table]) -> ContentHashes:
    """Return the hashes in tables of CONTENT_HASHES, all of one site, sorted by id."""
    contents = pa.concat_tables([CONTENT_HASHES.empty_table(), *tables])
    ids = contents["key"].to_numpy() & MAXIMUM_ID
    order = np.argsort(ids, kind="stable")
    hashes = np.stack([contents[half].to_numpy()[order] for half in ("high", "low")], axis=1)
    return ContentHashes(ids[order], hashes)
