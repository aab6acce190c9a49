"""The tables of an archive: which files belong to them, their shards, and how a run partitions pairs by key.

Ingest writes a site's record, `ingest/SITE.json`, in one step when all new shards are written, and only then deletes
the earlier ones. So a reader always sees a whole site, before or after. Tables that ingest did not write have no
records; all their files count.
"""

import itertools
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.storage import read_as
from dupq.system import thread_map
from dupq.tables import LINKS, QUESTIONS, conform, with_nulls
from dupq.text.keys import MAXIMUM_ID, Sites

UNFINISHED = "_parts"  # the folder, next to the tables, that has a folder of each site whose ingest is not finished
_log = logging.getLogger(__name__)
_SITE = re.compile(r"(?:^|/)site=([^/]+)/")
_LARGEST_TEXT = 1 << 31  # bytes of a column in a file: Arrow counts them by int32
_QUESTIONS_PER_PARTITION = 50_000
TEXT_COLUMNS = ("question_id", "title", "body_html")  # of questions, which every job reads


class Counted(TypedDict):
    """The counts of a site that are read again."""

    rows: int
    link_rows: int
    rejects: int
    link_rejects: int


class SiteRecord(TypedDict):
    """The record of a finished site."""

    made_from: dict[str, Any]
    tables: dict[str, int]  # the size of each file, by TABLE/NAME
    counts: Counted


def record_of(archive: str, site: str) -> str:
    """Return the URI of a site's record."""
    return storage.join(archive, "ingest", f"{site}.json")


def read_record(uri: str) -> SiteRecord:
    """Return the record at `uri`. Raises DupqError if it is damaged."""
    return read_as(uri, SiteRecord, "remove it, and the site is ingested anew")


def all_counts(output: str) -> dict[str, dict[str, object]]:
    """Return the counts of each finished site of an archive: its sums, and `files` with the counts of each file."""
    return {site: dict(record["counts"]) for site, record in _records(output).items()}


def table_files(table: str) -> list[storage.File]:
    """Return the Parquet files of a table with `site=NAME` folders, or of one such folder, in the order of their paths.

    Raises DupqError for a site whose ingest is not finished, and for a file that a record names and that is gone or has
    another size.
    """
    folder = storage.absolute(table)  # comparable with the URIs of the records
    listed = storage.list_files(folder, ".parquet")
    only = _site_of(storage.name(folder))
    root = storage.parent(folder) if only else folder
    archive, kind = storage.parent(root), storage.name(root)
    if not archive.startswith("/") and not storage.is_remote(archive):
        return listed  # the table is a whole bucket, so there are no records next to it
    records: dict[str, dict[str, int]] = {}  # the size of each of the table's files, by site and name
    for site, record in _records(archive, only).items():
        for path, size in record["tables"].items():
            if path.startswith(f"{kind}/"):
                records.setdefault(site, {})[path.removeprefix(f"{kind}/")] = size
    files = {file.uri: file for file in listed}
    sites = {file.uri: only or _site_of(file.relative.partition("/")[0]) for file in listed}
    unnamed = list(dict.fromkeys(site for site in sites.values() if site and site not in records))
    begun = thread_map(lambda site: storage.exists(storage.join(archive, UNFINISHED, site)), unnamed)
    for site in itertools.compress(unnamed, begun):
        raise DupqError(f"{archive}: the ingest of {site} was cut off, or is at work; run it again to its end")
    kept = {uri for uri, site in sites.items() if site not in records}
    for site, sizes in records.items():
        for name, size in sizes.items():
            uri = storage.join(root, f"site={site}", name)
            if uri not in files or files[uri].size != size:
                state = "has another size than when" if uri in files else "is gone since"
                raise DupqError(
                    f"{uri}: {state} its ingest wrote it; remove the site's file in ingest/ and ingest the dump again"
                )
            kept.add(uri)
    if len(kept) < len(listed):
        _log.warning(f"{table}: {len(listed) - len(kept):,} files that no finished ingest has named are left out")
    return [file for file in listed if file.uri in kept]


def _site_of(folder: str) -> str:
    return folder.removeprefix("site=") if folder.startswith("site=") else ""


def _records(archive: str, only: str = "") -> dict[str, SiteRecord]:
    """Return the records of all sites of an archive, or that of the site `only`, if it has one."""
    listed = storage.list_files(storage.join(archive, "ingest"), ".json")
    uris = {site: file.uri for file in listed if (site := file.relative.removesuffix(".json")) and only in ("", site)}
    return dict(zip(uris, thread_map(read_record, uris.values()), strict=True))


class Shard(NamedTuple):
    """One file of the questions table."""

    number: int
    uri: str
    site: str
    version: str | None = None  # of the file when the run was opened; None: not pinned
    skip_as: str | None = None  # its path for --skip-shard; None: the job has no such option

    @property
    def file(self) -> str:
        """The name of every file that is made from this shard."""
        return f"part-{self.number:05d}.parquet"


def question_shards(uri: str, skipped: Sequence[str] | None = None) -> tuple[list[Shard], Sites]:
    """Return the shards of a questions table, in the order of their paths, and all its sites.

    `skipped` are shards to leave out, as paths below `uri`; None: the job has no --skip-shard. Raises DupqError if
    there are no shards, if one is outside a `site=…` folder, or if a skipped path does not exist.
    """
    files = _tables(uri, "question")
    left_out = skipped or ()
    missing = sorted(set(left_out) - {file.relative for file in files})
    if missing:
        raise DupqError(f"--skip-shard {missing[0]}: no such file below {uri}; the first there is {files[0].relative}")
    kept = [file for file in files if file.relative not in left_out]
    if not kept:
        raise DupqError(f"--skip-shard: no shard of {uri} is left")
    shards = [
        Shard(index, file.uri, _shards_site_of(file.uri), skip_as=None if skipped is None else file.relative)
        for index, file in enumerate(kept)
    ]
    return shards, Sites([_shards_site_of(file.uri) for file in files])


def in_scope(shards: Sequence[Shard], sites: Sequence[str]) -> list[Shard]:
    """Return the shards of the `sites` that are searched, or all shards if none is named.

    Raises SettingError for an unknown site.
    """
    check_sites(sites, {shard.site for shard in shards})
    return [shard for shard in shards if not sites or shard.site in sites]


def check_sites(sites: Sequence[str], known: Collection[str]) -> None:
    """Raise SettingError for one of `sites`, those to search, that is not known."""
    absent = set(sites).difference(known)
    if absent:
        raise SettingError(f"setting 'neighbours.sites': there are no questions of {', '.join(sorted(absent))}")


def pinned(shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards with their present versions: reading one after it changed raises DupqError."""
    versions = thread_map(storage.version, [shard.uri for shard in shards])
    return [shard._replace(version=version) for shard, version in zip(shards, versions, strict=True)]


def read_shard(shard: Shard, schema: pa.Schema, columns: list[str]) -> pa.Table:
    """Read columns of a shard. Raises DupqError if it is damaged, or has changed since it was pinned."""
    with _as_pinned(shard):
        return storage.read_table(shard.uri, schema, columns)


def read_shard_batches(shard: Shard, schema: pa.Schema, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield columns of a shard, `rows` rows at most at a time. Raises as `read_shard`; for a change, after the last."""
    with _as_pinned(shard):
        yield from storage.read_batches(shard.uri, schema, columns, rows)


def _as_pinned(shard: Shard) -> AbstractContextManager[None]:
    """Raise DupqError at the end of the block if the shard has changed: a later change does not matter."""
    return storage.unchanged(shard.uri, lambda: shard.version is None or storage.version(shard.uri) == shard.version)


def answer_shards(questions: str, sites: Sites) -> list[Shard]:
    """Return the shards of the answers next to a questions table, of its sites only; none if it has no answers."""
    folder = storage.join(storage.parent(storage.absolute(questions)), "answers")
    files = [file.uri for file in table_files(folder)]
    known = [uri for uri in files if _shards_site_of(uri) in sites.names]
    return [Shard(index, uri, _shards_site_of(uri)) for index, uri in enumerate(known)]


def _shards_site_of(uri: str) -> str:
    sites = _SITE.findall(uri)
    if not sites:
        raise DupqError(f"{uri}: is in no site=NAME folder, so its site is unknown")
    return str(sites[-1])


def above_sites(table: str) -> tuple[str, list[storage.File]]:
    """Return the folder above the `site=NAME` folders of a table, and its `table_files` with paths below that folder.

    The folder is the table itself, unless the table is the folder of one site, or below one.
    """
    files = table_files(table)
    root = f"{storage.absolute(table)}/".rpartition("/site=")[0]
    if not root or any(_SITE.search(file.relative) for file in files):
        return table, files
    return root, [file._replace(relative=file.uri.removeprefix(f"{root}/")) for file in files]


# The inputs of a run: the contents that identify it, and the files that it copies because it reads them more than once.
#
# Links, truth, verdicts, prior and encoder are small. They may be replaced while a run is at work, and two stages would
# then read two versions. The questions are large: they are read in place, and checked for changes.


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
        _, files = above_sites(uri)
        paths = [(file.uri, storage.join(path, file.relative)) for file in files]
    checksums = thread_map(storage.checksum, [source for source, _ in paths])
    return [Input(*of_file, checksum) for of_file, checksum in zip(paths, checksums, strict=True)]


def content_of(table: str, shards: Sequence[Shard]) -> list[list[str]]:
    """Return the path and the checksum of each shard of a table (URI) that a run reads.

    The shards are given, as a second listing may differ if an ingest ends in between.
    """
    uris, folder = [shard.uri for shard in shards], storage.join(storage.absolute(table), "")
    checksums = thread_map(storage.checksum, uris)
    return [[uri.removeprefix(folder), checksum] for uri, checksum in zip(uris, checksums, strict=True)]


def link_files(uri: str) -> list[tuple[str, str]]:
    """Return the files of a links table with their sites. Raises DupqError if there are none."""
    return [(file.uri, _shards_site_of(file.uri)) for file in _tables(uri, "link")]


def check_questions(uri: str, columns: Sequence[str] = TEXT_COLUMNS, skipped: Sequence[str] = ()) -> tuple[Sites, int]:
    """Return the sites and the number of questions of a table with these columns. Raises as `check_files`."""
    shards, sites = question_shards(uri, skipped)
    return sites, check_files([shard.uri for shard in shards], QUESTIONS, columns)


def check_links(uri: str) -> int:
    """Return the number of links of a table. Raises as `check_files`."""
    return check_files([file for file, _ in link_files(uri)], LINKS, ["question_id", "related_id", "link_type"])


def _tables(uri: str, kind: str) -> list[storage.File]:
    if storage.kind(uri) == "file":
        raise DupqError(f"{uri}: a file; the folder of the {kind} tables expected, with their site=NAME folders")
    files = table_files(uri)
    name = f"{kind}s"  # the table's folder in an archive
    if any(file.relative.startswith(f"{name}/site=") for file in files):
        raise DupqError(f"{uri}: a whole archive; give its {name}: {storage.join(uri, name)}")
    if not files:
        raise DupqError(f"{uri}: no {kind} tables here (no .parquet file); make them with dupq ingest")
    return files


def check_files(uris: Sequence[str], schema: pa.Schema, columns: Sequence[str]) -> int:
    """Return the number of rows of Parquet files, after checking their `columns` by their footers.

    Raises DupqError that names the file that is damaged, lacks a column, or has an empty value or a wrong id.
    """
    expected = pa.schema([schema.field(name) for name in columns])
    return sum(thread_map(lambda uri: _check_file(uri, expected), uris))


def _check_file(uri: str, expected: pa.Schema) -> int:
    footer = storage.read_footer(uri)
    conform(with_nulls(footer.schema.to_arrow_schema().remove_metadata().empty_table(), expected), expected, uri)
    groups = map(footer.row_group, range(footer.num_row_groups))
    all_columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    for field in expected:
        columns = [column for column in all_columns if column.path_in_schema == field.name]
        if not field.nullable:
            _check_values(columns, field.name, uri)
        size = sum(column.total_uncompressed_size for column in columns)
        if pa.types.is_string(field.type) and size >= _LARGEST_TEXT:
            raise DupqError(
                f"{uri}: column '{field.name}' has {size / (1 << 30):.1f} GiB of text, more than a task can hold; "
                "write the table as files of 50,000 questions"
            )
    return int(footer.num_rows)


def _check_values(columns: Sequence[pq.ColumnChunkMetaData], name: str, uri: str) -> None:
    """Raise DupqError if the statistics of a required column show empty values, or ids out of range.

    A file without statistics is checked when its rows are read.
    """
    for values in filter(None, (column.statistics for column in columns)):
        if values.has_null_count and values.null_count:
            raise DupqError(f"{uri}: column '{name}' has {values.null_count} empty values; it must have none")
        if values.has_min_max and isinstance(values.min, int):
            for value in (values.min, values.max):
                if not 0 <= value <= MAXIMUM_ID:
                    raise DupqError(f"{uri}: {name} {value} is out of range; 0 to 2**48 - 1 expected")


def has_values(uris: Sequence[str], name: str) -> bool:
    """Return whether a row of Parquet files has a value in a column. Reads files until one has."""
    for uri in uris:
        if name in storage.read_schema(uri).names:
            column = storage.read_table(uri, columns=[name])[name]
            values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
            if len(values) > values.null_count:
                return True
    return False


def partitions(questions: int) -> int:
    """Return the number of partitions of pairs: one per 50,000 questions."""
    return max(1, -(-questions // _QUESTIONS_PER_PARTITION))


def partition_of(keys: np.ndarray, count: int) -> np.ndarray:
    """Return the partition (0 to count - 1) of each key: a hash of it, so evenly spread."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)
