"""The inputs of a run: the contents that identify it, and a copy of each input that it reads more than once.

Links, truth, verdicts, prior and encoder may be replaced while a run is at work, and two stages would then read two
versions. So the inputs stage copies them into the run; they are small. The questions are large: they are read in place,
and checked for changes (dupq/archive.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from dupq import storage
from dupq.archive import Shard, above_sites, table_files
from dupq.job.step import Counts, unless_finished
from dupq.system import side_by_side


class Input(NamedTuple):
    """An input file, as it was when the run was opened."""

    uri: str
    path: str  # of its copy, below the run's inputs
    checksum: str


def input_files(uri: str, path: str, names: Sequence[str] = ()) -> list[Input]:
    """Return the file `uri`, or the Parquet files below that folder, or its files with these names."""
    uri = storage.absolute(uri)  # a task may have another working directory
    if storage.kind(uri) == "file":
        return [Input(uri, path, storage.checksum(uri))]
    if names:
        paths = [(storage.join(uri, name), storage.join(path, name)) for name in names]
    else:
        _, files = above_sites(uri, table_files(uri))
        paths = [(file.uri, storage.join(path, file.relative)) for file in files]
    checksums = side_by_side(storage.checksum, [source for source, _ in paths])
    return [Input(*of_file, checksum) for of_file, checksum in zip(paths, checksums, strict=True)]


def encoder_content(fingerprint: str, files: Sequence[Input]) -> list[str]:
    """Return what identifies an encoder's answers. Its description also holds measures and times."""
    return [fingerprint, next(file.checksum for file in files if file.path.endswith("split.parquet"))]


def content_of(table: str, shards: Sequence[Shard]) -> list[list[str]]:
    """Return the path and the checksum of each shard of a table (URI) that a run reads.

    The shards are given, as a second listing may differ if an ingest ends in between.
    """
    uris, folder = [shard.uri for shard in shards], storage.join(storage.absolute(table), "")
    checksums = side_by_side(storage.checksum, uris)
    return [[uri.removeprefix(folder), checksum] for uri, checksum in zip(uris, checksums, strict=True)]


def copy_input(file: Input, copy: str) -> Counts:
    """Copy a file to the URI `copy`. Raises DupqError if it has changed since the run was opened. Memory: the file."""

    def make() -> Counts:
        with storage.unchanged(file.uri, lambda: storage.checksum(file.uri) == file.checksum):
            content = storage.read_bytes(file.uri)
        storage.write_bytes(copy, content)
        return {"rows_in": 1, "rows_out": 1}

    return unless_finished(copy, make)
