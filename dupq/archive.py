"""Which files an archive's tables consist of: of a site that ingest made, those that its record names.

`ingest/SITE.json` is written when all shards of a site are there, in one step, and only then are those of the dump
before removed. So a reader sees a site whole, as it was or as it is, whatever was ended when. A table of other origin
has no record, and all its files count.
"""

import logging
from typing import Any

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.json_files import read_as
from dupq.side_by_side import side_by_side

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
    place = storage.absolute(table)  # as the record's files are named, so that the two can be compared
    found = storage.list_files(place, ".parquet")
    only = _site_of(storage.name(place))
    root = storage.parent(place) if only else place
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
    tables = side_by_side(lambda uri: _of_kind(read_record(uri)["tables"], kind), chosen.values())
    return {site: files for site, files in zip(chosen, tables, strict=True) if files}


def _of_kind(tables: dict[str, int], kind: str) -> dict[str, int]:
    return {path.removeprefix(f"{kind}/"): size for path, size in tables.items() if path.startswith(f"{kind}/")}


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
