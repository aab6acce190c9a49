"""What a run takes in: the contents that name it, and a copy of each input that it reads more than once."""

from collections.abc import Sequence
from typing import NamedTuple

from dupq import storage
from dupq.archive import Shard, above_sites, table_files
from dupq.job.step import Counts, unless_finished
from dupq.job.tasks import Report, run_tasks
from dupq.system import side_by_side

# The inputs stage: what a run reads more than once is copied into it, as it was when the run was opened.
#
# Links, truth, verdicts, prior and encoder may be replaced while a run is at work, and two stages would then read two
# versions. They are small beside the questions, which are read in place and checked instead (dupq/archive.py).


class Input(NamedTuple):
    """A file of the inputs, as it was when the run was opened."""

    uri: str
    path: str  # of its copy, below the run's inputs
    checksum: str


def input_files(uri: str, path: str, names: Sequence[str] = ()) -> list[Input]:
    """The file `uri`, or the Parquet files below that folder, or those of its files that have these names."""
    if storage.kind(uri) == "file":
        return [Input(uri, path, storage.checksum(uri))]
    if names:
        places = [(storage.join(uri, name), storage.join(path, name)) for name in names]
    else:
        _, files = above_sites(uri, table_files(uri))
        places = [(file.uri, storage.join(path, file.relative)) for file in files]
    return [Input(place, copy, storage.checksum(place)) for place, copy in places]


def encoder_content(fingerprint: str, files: Sequence[Input]) -> list[str]:
    """What tells an encoder from others that answer differently: its description also holds measures and times."""
    return [fingerprint, next(file.checksum for file in files if file.path.endswith("split.parquet"))]


def content_of(table: str, shards: Sequence[Shard]) -> list[list[str]]:
    """What identifies the shards of a table (URI) that a run reads: of each the path below it and the checksum.

    It is given those that the run listed: a second listing may name others, of an ingest that ended in between.
    """
    uris, folder = [shard.uri for shard in shards], storage.join(storage.absolute(table), "")
    found = zip(uris, side_by_side(storage.checksum, uris), strict=True)
    return [[uri.removeprefix(folder), checksum] for uri, checksum in found]


def copy_inputs(inputs: Sequence[Input], folder: str) -> Report:
    """Copy the files to `folder`. Raises DupqError if one has changed since the run was opened. A task holds one."""
    return run_tasks("inputs", _copy, [(file, storage.join(folder, file.path)) for file in inputs])


def _copy(file: Input, copy: str) -> Counts:
    def make() -> Counts:
        with storage.unchanged(file.uri, lambda: storage.checksum(file.uri) == file.checksum):
            content = storage.read_bytes(file.uri)
        storage.write_bytes(copy, content)
        return {"rows_in": 1, "rows_out": 1}

    return unless_finished(copy, make)
