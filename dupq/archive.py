"""The tables of an archive: which files they consist of, their shards, and how a run partitions pairs by key.

`ingest/SITE.json` is written when all shards of a site are there, in one step, and only then are those of the dump
before removed. So a reader sees a site whole, as it was or as it is, whatever was ended when. A table of other origin
has no record, and all its files count.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.storage import read_as
from dupq.system import side_by_side
from dupq.tables import LINKS, QUESTIONS, conform
from dupq.text.keys import MAXIMUM_ID, Sites

UNFINISHED = "_parts"  # beside the tables: what sites that are being ingested, or were cut off, are made of
BEGUN = "begun.json"  # in a site's folder there
_log = logging.getLogger(__name__)


class Counted(TypedDict):
    """What was counted of a site, as far as it is read again."""

    rows: int
    link_rows: int
    rejects: int
    link_rejects: int


class SiteRecord(TypedDict):
    """The record of a site that is whole."""

    made_from: dict[str, Any]
    tables: dict[str, int]  # the size of each file, by TABLE/NAME, without the site's folder
    counts: Counted


def record_of(archive: str, site: str) -> str:
    """The file that says that a site is whole, of which files, from what, and what was counted."""
    return storage.join(archive, "ingest", f"{site}.json")


def lease_of(archive: str, site: str) -> str:
    """The folder of the lease of the job that is at work on a site."""
    return storage.join(archive, "ingest", "_at_work", site)


def read_record(uri: str) -> SiteRecord:
    """The record at `uri`; raises DupqError if it is damaged."""
    return read_as(uri, SiteRecord, "remove it, and the site is ingested anew")


def all_counts(output: str) -> dict[str, dict[str, object]]:
    """The counts of each finished site of an archive: its sums, and `files` with those of each file."""
    marks = storage.list_files(storage.join(output, "ingest"), ".json")
    return {file.relative.removesuffix(".json"): dict(read_record(file.uri)["counts"]) for file in marks}


def table_files(table: str) -> list[storage.File]:
    """The Parquet files of a table with a folder `site=NAME` a site, or of one such folder, in their paths' order.

    Raises DupqError for a site whose ingest was cut off, and for a file that a record names and that is gone or has
    another size.
    """
    folder = storage.absolute(table)  # as the record's files are named, so that the two can be compared
    found = storage.list_files(folder, ".parquet")
    only = _site_of(storage.name(folder))
    root = storage.parent(folder) if only else folder
    archive, kind = storage.parent(root), storage.name(root)
    if not archive.startswith("/") and not storage.is_remote(archive):
        return found  # a bucket has nothing beside it
    records = _records(archive, kind, only)
    sites: dict[str, dict[str, storage.File]] = {site: {} for site in records}
    for file in found:
        site = only or _site_of(file.relative.partition("/")[0])
        sites.setdefault(site, {})[file.uri] = file
    kept = set()
    for site, files in sites.items():
        if site in records:
            kept |= _named(records[site], storage.join(root, f"site={site}"), files)
        elif site and storage.exists(storage.join(archive, UNFINISHED, site, BEGUN)):
            raise DupqError(f"{archive}: the ingest of {site} was cut off, or is at work; run it again to its end")
        else:
            kept |= files.keys()
    if len(kept) < len(found):
        _log.warning(f"{table}: {len(found) - len(kept):,} files that no finished ingest has named are left out")
    return [file for file in found if file.uri in kept]


def _site_of(folder: str) -> str:
    return folder.removeprefix("site=") if folder.startswith("site=") else ""


def _records(archive: str, kind: str, only: str) -> dict[str, dict[str, int]]:
    """The names and sizes of the files of a table, by site, for the sites that have a record of it."""
    found = storage.list_files(storage.join(archive, "ingest"), ".json")
    marks = {file.relative.removesuffix(".json"): file.uri for file in found}
    chosen = {site: uri for site, uri in marks.items() if only in ("", site)}

    def files_of(uri: str) -> dict[str, int]:
        sizes = read_record(uri)["tables"]
        return {path.removeprefix(f"{kind}/"): size for path, size in sizes.items() if path.startswith(f"{kind}/")}

    tables = side_by_side(files_of, chosen.values())
    return {site: files for site, files in zip(chosen, tables, strict=True) if files}


def _named(sizes: dict[str, int], folder: str, files: dict[str, storage.File]) -> set[str]:
    """The URIs of a site's files that its record names."""
    wanted = {storage.join(folder, name): size for name, size in sizes.items()}
    for uri, size in wanted.items():
        if uri not in files or files[uri].size != size:
            state = "has another size than when" if uri in files else "is gone since"
            raise DupqError(
                f"{uri}: {state} its ingest wrote it; remove the site's file in ingest/ and ingest the dump again"
            )
    return set(wanted)


_SITE = re.compile(r"(?:^|/)site=([^/]+)/")
_QUESTIONS_PER_PARTITION = 50_000
TEXT_COLUMNS = ("question_id", "title", "body_html")  # of questions: what every job reads


class Shard(NamedTuple):
    """One file of the questions table."""

    number: int
    uri: str
    site: str
    version: str | None = None  # of the file when the run was opened; None: any
    skip_as: str | None = None  # what --skip-shard calls it; None: the job cannot leave it out

    @property
    def file(self) -> str:
        """The name of every file that is made of this shard."""
        return f"part-{self.number:05d}.parquet"


def question_shards(uri: str, skipped: Sequence[str] | None = None) -> tuple[list[Shard], Sites]:
    """The shards of a questions table in the order of their paths but for those `skipped`, and the sites of all.

    `skipped` are paths below `uri`; None: the job has no --skip-shard. Raises DupqError if there is nothing, a file
    outside a `site=…` folder, or no file at a path to skip.
    """
    files = _tables(uri, "question")
    left_out = skipped or ()
    missing = sorted(set(left_out) - {file.relative for file in files})
    if missing:
        raise DupqError(f"--skip-shard {missing[0]}: no such file below {uri}; the first there is {files[0].relative}")
    kept = [file for file in files if file.relative not in left_out]
    if not kept:
        raise DupqError(f"--skip-shard: no shard of {uri} is left")
    can_skip = skipped is not None
    shards = [
        Shard(index, file.uri, _shards_site_of(file.uri), skip_as=file.relative if can_skip else None)
        for index, file in enumerate(kept)
    ]
    return shards, Sites([_shards_site_of(file.uri) for file in files])


def in_scope(shards: Sequence[Shard], sites: Sequence[str]) -> list[Shard]:
    """Return the shards of the `sites` that are searched, all if none is named.

    Raises SettingError for a site that is not there.
    """
    absent = set(sites) - {shard.site for shard in shards}
    if absent:
        raise SettingError(f"setting 'neighbours.sites': there are no questions of {', '.join(sorted(absent))}")
    return [shard for shard in shards if not sites or shard.site in sites]


def pinned(shards: Sequence[Shard]) -> list[Shard]:
    """The shards as they are now: reading one that has changed since is an error."""
    return [shard._replace(version=storage.version(shard.uri)) for shard in shards]


def read_shard(shard: Shard, schema: pa.Schema, columns: list[str]) -> pa.Table:
    """Columns of a shard. Raises DupqError for a damaged file, and one that has changed since it was pinned."""
    with _as_pinned(shard):
        return storage.read_table(shard.uri, schema, columns)


def read_shard_pieces(shard: Shard, schema: pa.Schema, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Columns of a shard, at most `rows` rows at once; errors as of `read_shard`, the change's after the last piece."""
    with _as_pinned(shard):
        yield from storage.read_batches(shard.uri, schema, columns, rows)


def _as_pinned(shard: Shard) -> AbstractContextManager[None]:
    """Raises DupqError, after reading, if the shard has changed: a file that is replaced later was read as it was."""
    return storage.unchanged(shard.uri, lambda: shard.version is None or storage.version(shard.uri) == shard.version)


def answer_shards(questions: str, sites: Sites) -> list[Shard]:
    """The shards of the answers that were ingested beside a questions table, of its sites only; none is fine."""
    folder = storage.join(storage.parent(storage.absolute(questions)), "answers")
    files = [file.uri for file in table_files(folder)]
    known = [uri for uri in files if _shards_site_of(uri) in sites.names]
    return [Shard(index, uri, _shards_site_of(uri)) for index, uri in enumerate(known)]


def _shards_site_of(uri: str) -> str:
    site = site_in(uri)
    if site is None:
        raise DupqError(f"{uri}: is in no site=NAME folder, so its site is unknown")
    return site


def site_in(uri: str) -> str | None:
    """The site of a table's file; None if it is in no `site=NAME` folder."""
    found = _SITE.findall(uri)
    return found[-1] if found else None


def above_sites(table: str, files: Sequence[storage.File]) -> tuple[str, list[storage.File]]:
    """The folder from which on the paths of a table's `files` tell their sites, and the files by these paths.

    That is the table itself, unless it is the folder of one site, or below it.
    """
    root = f"{storage.absolute(table)}/".rpartition("/site=")[0]
    if not root or any(_SITE.search(file.relative) for file in files):
        return table, list(files)
    return root, [file._replace(relative=file.uri.removeprefix(f"{root}/")) for file in files]


def link_files(uri: str) -> list[tuple[str, str]]:
    """The files of a links table and their sites. Raises DupqError if there are none."""
    return [(file.uri, _shards_site_of(file.uri)) for file in _tables(uri, "link")]


def check_questions(uri: str, columns: Sequence[str] = TEXT_COLUMNS, skipped: Sequence[str] = ()) -> tuple[Sites, int]:
    """The sites and the number of questions of a table that has `columns`. Raises DupqError as `check_files` does."""
    shards, sites = question_shards(uri, skipped)
    return sites, check_files([shard.uri for shard in shards], QUESTIONS, columns)


def check_links(uri: str) -> int:
    """The number of links of a table. Raises DupqError, as `check_files` does, for one that cannot be read."""
    return check_files([file for file, _ in link_files(uri)], LINKS, ["question_id", "related_id", "link_type"])


def _tables(uri: str, kind: str) -> list[storage.File]:
    if storage.kind(uri) == "file":
        raise DupqError(f"{uri}: a file; the folder of the {kind} tables expected, with their site=NAME folders")
    files = table_files(uri)
    own = f"{kind}s"  # the folder of an archive that holds the table
    if any(file.relative.startswith(f"{own}/site=") for file in files):
        raise DupqError(f"{uri}: a whole archive; give its {own}: {storage.join(uri, own)}")
    if not files:
        raise DupqError(f"{uri}: no {kind} tables here (no .parquet file); make them with dupq ingest")
    return files


def check_files(uris: Sequence[str], schema: pa.Schema, columns: Sequence[str]) -> int:
    """The number of rows of Parquet files that have the `columns` of `schema`; only their footers are read.

    Raises DupqError naming the file that is damaged, lacks a column, or has an empty value or a wrong id.
    """
    wanted = pa.schema([schema.field(name) for name in columns])
    return sum(side_by_side(lambda uri: _check_file(uri, wanted), uris))


def _check_file(uri: str, wanted: pa.Schema) -> int:
    footer = storage.read_footer(uri)
    conform(footer.schema.to_arrow_schema().remove_metadata().empty_table(), wanted, uri)
    for field in wanted:
        if not field.nullable:
            _check_values(footer, field.name, uri)
    return int(footer.num_rows)


def _check_values(footer: pq.FileMetaData, name: str, uri: str) -> None:
    """Raise DupqError if the statistics of a column that must have values tell of empty ones, or of ids out of range.

    A file without statistics is checked when its rows are read.
    """
    for group in map(footer.row_group, range(footer.num_row_groups)):
        columns = map(group.column, range(group.num_columns))
        found = next((column.statistics for column in columns if column.path_in_schema == name), None)
        if found is not None and found.has_null_count and found.null_count:
            raise DupqError(f"{uri}: column '{name}' has {found.null_count} empty values; it must have none")
        if found is not None and found.has_min_max and isinstance(found.min, int):
            wrong = [value for value in (found.min, found.max) if not 0 <= value <= MAXIMUM_ID]
            if wrong:
                raise DupqError(f"{uri}: {name} {wrong[0]} is out of range; 0 to 2**48 - 1 expected")


def partitions(questions: int) -> int:
    """Into how many parts pairs are spread by their left key: one for 50,000 questions."""
    return max(1, -(-questions // _QUESTIONS_PER_PARTITION))


def partition_of(keys: np.ndarray, count: int) -> np.ndarray:
    """The part (0 to count - 1) of each key, evenly spread; the same key always goes to the same one."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)
