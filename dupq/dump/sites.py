"""Finds the sites in the files, folders and prefixes that --dump names, in any form, local or on S3.

A dump is found by the names of its files; Parquet conversions, which may have any names, by the names of their columns.
A URI without a dump but with tables is a site of questions from elsewhere. Only names, headers and footers are read
here, several files at a time, because on S3 each is a request or two.
"""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from dupq import storage
from dupq.dump.files import OTHER_TABLES, DumpSite, Member, dump_table, is_table, passed_over, without_compression
from dupq.dump.streams import names_in_zip, read_header
from dupq.errors import DupqError, SettingError
from dupq.local_files import LOST
from dupq.system import thread_map

_TableName = Literal["posts", "links"]

_TABLES: dict[str, _TableName] = {"posts": "posts", "postlinks": "links"}
_TABLE_FILES = {f"{table}.xml": held for table, held in _TABLES.items()}
_SITE_AND_TABLE = re.compile(r"(?P<site>.+)-(?P<table>[a-z_]+)", re.IGNORECASE)
_FOREIGN = "a table of questions"  # the origin of tables from elsewhere, which belong together
_PARQUET_TABLE = re.compile(r"(post_?links|links|posts|questions|answers)([-_.]?\d.*)?", re.IGNORECASE)
_DOMAIN = re.compile(r".+\.(com|net|org)", re.IGNORECASE)
# Without letters it would be read as a number from hive partitions; what begins with _ or . is passed over in listings.
_SITE_NAME = re.compile(r"(?=.*[^\W\d_])[^\W_][\w.-]*")
_ODD = re.compile(r"[^\w.-]+")
_NAME_BYTES = 100  # names of files contain it, and may have 255

_EXPECTED = (
    "looked for .7z archives with Posts.xml, for Posts.xml, and for tables: .csv, .tsv, .json, .jsonl, .ndjson or "
    ".parquet; all but .7z plain, .gz, .bz2, .xz or .zst, tables also in a .zip"
)


# How folders of table formats are told, their names, and what reads their rows. Their Parquet files also have rows that
# were deleted or replaced.
_TABLE_FORMATS = {
    "_delta_log": ("Delta", "duckdb -c \"COPY (FROM delta_scan('{}')) TO 'rows.parquet'\""),
    "metadata": ("Iceberg", "duckdb -c \"COPY (FROM iceberg_scan('{}')) TO 'rows.parquet'\""),
    ".hoodie": ("Hudi", "Spark: spark.read.format('hudi').load('{}').write.parquet('rows')"),
}
_ICEBERG = re.compile(r"(.*)/metadata/[^/]*\.metadata\.json(?:\.gz)?")

Failure = tuple[str, DupqError]  # a site, by the name of its files, and why it cannot be read
_Listing = tuple[list[str], list[str]]  # the files of a URI that --dump names, and its broken links
_IN_ZIP = "is packed itself, or no table; unpack the .zip first"


class FoundSites(NamedTuple):
    """The sites of a dump, and what cannot or need not be read."""

    sites: list[DumpSite]  # sorted by name
    failed: list[Failure]  # likewise, each with the first reason
    passed_over: dict[str, str]  # files that look like a dump but are not read, with the reason and the remedy


class _SiteTable(NamedTuple):
    """A file with a table of a site. Several files of one table belong together only if they share an origin."""

    site: str
    table: _TableName
    member: Member
    origin: str


def find_sites(
    uris: Sequence[str], site: str | None = None, has_columns: bool = False, left_out: Sequence[str] = ()
) -> FoundSites:
    """Find the sites in the files and folders `uris`, at any depth, without files whose URI begins with a `left_out`.

    A site is named after its archive, the folder of its Posts.xml, the SITE in `SITE-Posts.…`, or its `site=…` folder;
    `site` overrides that for a dump of one site. All tables of a URI without a dump, or with `has_columns` of any URI,
    are questions of one site, which is named after the URI. A file that several `uris` name counts once.

    A site fails if one of its files is damaged, two files have the same table, its links come without posts, or its
    name is not allowed. Raises DupqError if all fail, if one fails and `site` is given, and if one of `uris` is missing
    or has no dump in it; SettingError if `site` is given for several sites.
    """
    listings = {uri: _list(uri, tuple(left_out)) for uri in dict.fromkeys(map(storage.absolute, uris))}
    searched = {  # for dumps
        uri: files
        for uri, (files, _) in listings.items()
        if not (has_columns and any(is_table(file) or file.lower().endswith(".zip") for file in files))
    }
    named = {uri for uri, files in searched.items() if files == [uri]}  # for which the links next to them count too
    files = sorted({file for files in searched.values() for file in files}.union(*map(_links_next_to, named)))
    dumps = dict(zip(files, thread_map(lambda file: _tables_in(file, file in named), files), strict=True))
    by_site: dict[str, list[_SiteTable]] = {}
    failures: dict[str, DupqError] = {}
    for table in itertools.chain.from_iterable(dumps.values()):
        if isinstance(table, _SiteTable):
            by_site.setdefault(table.site, []).append(table)
        else:
            failures.setdefault(*table)
    used = {uri for uri, tables in dumps.items() if tables}
    for uri, (listed, _) in listings.items():
        if used.isdisjoint(listed):
            for table in _question_tables(uri, listed, site):
                used.add(table.member.uri)
                by_site.setdefault(table.site, []).append(table)
    _check_all_used(listings, used)
    if site is not None and not failures:
        if len(by_site) > 1:
            names = ", ".join(sorted(by_site))
            raise SettingError(f"the dump holds several sites ({names}), which cannot all be called '{site}'")
        by_site = {site: next(iter(by_site.values()))}
    sites = []
    for name in sorted(by_site.keys() - failures.keys()):
        try:
            sites.append(_dump_site(name, by_site[name]))
        except DupqError as error:
            failures[name] = error
    failed = sorted(failures.items(), key=lambda failure: failure[0])
    if failed and (site is not None or not sites):
        if len(failed) == 1:
            raise failed[0][1]
        lines = [f"{len(failed)} sites cannot be read:", *(str(error) for _, error in failed)]
        raise DupqError("\n  ".join(lines))
    return FoundSites(sites, failed, _passed_over(listings.values(), used))


def _list(uri: str, left_out: tuple[str, ...]) -> _Listing:
    kind = storage.kind(uri)
    if kind == "missing":
        if os.path.exists(uri) or storage.name(uri) == "-":
            raise DupqError(f"{uri}: a pipe, which can be read once only; write it to a file first")
        raise DupqError(f"{uri}: {LOST if os.path.islink(uri) else 'no such file or folder'}")
    if kind == "file":
        _check_format([uri], storage.parent(uri))
        return [] if uri.startswith(left_out) else [uri], []
    files = [file.uri for file in storage.list_files(uri) if not file.uri.startswith(left_out)]
    _check_format(files, uri)
    return files, [link for link in storage.broken_links(uri) if not link.startswith(left_out)]


def _check_format(files: Sequence[str], above: str) -> None:
    """Raise DupqError if Parquet files among `files`, which are below the folder `above`, are of a table format."""
    formats = {found[1]: "metadata" for file in files if (found := _ICEBERG.fullmatch(file))}
    folders = {storage.parent(file) for file in files if file.lower().endswith(".parquet")}
    for folder in tuple(folders):
        while folder not in (above, parent := storage.parent(folder)):
            folders.add(folder := parent)
    hidden = [mark for mark in _TABLE_FORMATS if mark.startswith((".", "_"))]
    marked = [(folder, mark) for folder in folders if "=" not in storage.name(folder) for mark in hidden]
    formats |= dict(itertools.compress(marked, thread_map(lambda of: storage.exists(storage.join(*of)), marked)))
    for folder, mark in sorted(formats.items()):
        name, way = _TABLE_FORMATS[mark]
        raise DupqError(
            f"{folder}: a table of {name}, which holds deleted rows too; export it first, with {way.format(folder)}"
        )


def _question_tables(uri: str, files: Sequence[str], site: str | None) -> list[_SiteTable]:
    """Return the tables among the files below `uri`, also in .zip archives, as the posts of one site."""
    stem = without_compression(storage.name(uri))
    if files == [uri]:
        stem = stem.rpartition(".")[0]
    members = []
    for file in sorted(files):
        if file.lower().endswith(".zip"):  # of its tables not those that are compressed again, or hidden by macOS
            tables = (name for name in names_in_zip(file) if is_table(name) and name == without_compression(name))
            members += [Member(file, name) for name in tables if not storage.name(name).startswith((".", "_"))]
        elif is_table(file):
            members.append(Member(file))
    return [
        _SiteTable(site or _ODD.sub("-", stem).strip("-").lstrip("-_"), "posts", member, _FOREIGN) for member in members
    ]


def _is_left_in_zip(name: str) -> bool:
    """Tell whether a file in a .zip whose tables are read looks like a dump or a table, and is not read."""
    file = storage.name(name).lower()
    is_packed = file.endswith((".zip", ".7z")) or (is_table(file) and file != without_compression(file))
    is_dump = _site_and_table(without_compression(file).removesuffix(".xml"))[1] in _TABLES or file in _TABLE_FILES
    return not file.startswith((".", "_")) and (is_packed or is_dump)


def _passed_over(listings: Iterable[_Listing], used: Collection[str]) -> dict[str, str]:
    """Return the files and links that look like a dump but are not `used`, with the reason and the remedy."""
    reasons = passed_over([file for files, _ in listings for file in files], used)
    for uri in used:
        if uri.lower().endswith(".zip"):
            reasons |= {f"{uri}/{name}": _IN_ZIP for name in names_in_zip(uri) if _is_left_in_zip(name)}
    reasons |= {link: LOST for _, broken_links in listings for link in broken_links}
    # a name may not be UTF-8, and must be shown
    return {uri.encode(errors="backslashreplace").decode(): reasons[uri] for uri in sorted(reasons)}


def _check_all_used(listings: Mapping[str, _Listing], used: Collection[str]) -> None:
    """Raise DupqError for a named URI that adds nothing, which is usually a wrong path."""
    for uri, listing in listings.items():
        if set(listing[0]).isdisjoint(used):
            reasons = _passed_over([listing], used)
            lines = [why if file == uri else f"passed over: {file} ({why})" for file, why in reasons.items()]
            raise DupqError(f"{uri}: no dump in it; " + "\n  ".join(lines or [_EXPECTED]))


def _tables_in(uri: str, is_named: bool) -> Sequence[_SiteTable | Failure]:
    """Return the posts and links in a file: none in one that is not a dump, unless --dump names it."""
    name, site = storage.name(uri).lower(), ""
    try:
        if name.endswith(".7z"):
            stem = storage.name(uri)[: -len(".7z")]
            prefix, table = _site_and_table(stem)
            site = prefix if table in _TABLES else stem
            return [] if table in OTHER_TABLES else _archived_tables(uri, site)
        if name.endswith(".parquet"):
            site, origin = _parquet_site(uri, is_named)
            held = dump_table(storage.read_schema(uri).names)
            return [] if held is None else [_SiteTable(site, held, Member(uri), origin)]
    except DupqError as error:
        return [(site, error)]
    xml_table = _xml_table(uri, is_named) if without_compression(name).endswith(".xml") else None
    return [] if xml_table is None else [xml_table]


def _xml_table(uri: str, is_named: bool) -> _SiteTable | None:
    """Return the table in `SITE/Posts.xml`, `SITE-Posts.xml` or, if --dump names it, `SITE.xml`; also of PostLinks."""
    stem = without_compression(storage.name(uri))[: -len(".xml")]
    site, table = storage.name(storage.parent(uri)), stem.lower()
    if table not in _TABLES:
        site, table = _site_and_table(stem)
    if table not in _TABLES:
        if not is_named or {stem.lower(), table} & OTHER_TABLES:
            return None
        site, table = stem, "posts"
    return _SiteTable(site, _TABLES[table], Member(uri), uri)


def _archived_tables(uri: str, site: str) -> list[_SiteTable]:
    """Return the tables in `SITE.7z`, `SITE-Posts.7z` or `SITE-PostLinks.7z`."""
    members: dict[_TableName, Member] = {}
    for name in read_header(uri):
        table = _TABLE_FILES.get(storage.name(name).lower())
        if table in members:
            raise DupqError(f"{uri}: holds {members[table].name} and {name}; expected is one site only")
        if table is not None:
            members[table] = Member(uri, name)
    return [_SiteTable(site, table, member, uri) for table, member in members.items()]


def _site_and_table(stem: str) -> tuple[str, str]:
    """Split `SITE-TABLE` and return the table in lower case; it is empty if `stem` has another form."""
    match = _SITE_AND_TABLE.fullmatch(stem)
    return (stem, "") if match is None else (match["site"], match["table"].lower())


def _links_next_to(posts: str) -> list[str]:
    """Return the files in the folder of `posts` that by name hold the links of the same site, in any form."""
    site = _site_of(posts, "posts")
    if site is None:
        return []
    folder = storage.parent(posts)
    files = (storage.join(folder, name) for name in storage.names_in(folder))
    return [uri for uri in files if _site_of(uri, "links") == site]


def _site_of(uri: str, table: _TableName) -> str | None:
    """Return the site of an XML file, or of an archive of one table, that by name holds `table`; else None."""
    name = storage.name(uri).lower()
    if without_compression(name).endswith(".xml"):
        xml_table = _xml_table(uri, is_named=table == "posts")
        return xml_table.site if xml_table is not None and xml_table.table == table else None
    site, archived = _site_and_table(storage.name(uri)[: -len(".7z")])
    return site if name.endswith(".7z") and _TABLES.get(archived) == table else None


def _parquet_site(uri: str, is_named: bool) -> tuple[str, str]:
    """Return the site of a Parquet file by its path, and the origin that it shares with other files of the table."""
    folder = storage.parent(uri)
    stem = storage.name(uri)[: -len(".parquet")]
    folders = list(filter(_may_name_site, folder.removeprefix("s3://").split("/")))
    sites = [name.removeprefix("site=") for name in folders if name.startswith("site=")]
    if sites:
        return sites[-1], "/".join(folders)
    site, table = _site_and_table(stem)
    if _PARQUET_TABLE.fullmatch(table):
        return site, folder
    if _DOMAIN.fullmatch(stem) or (is_named and not _PARQUET_TABLE.fullmatch(stem)):
        return stem, uri
    return folders[-1] if folders else "", "/".join(folders)


def _may_name_site(folder: str) -> bool:
    """Tell whether a folder is neither a table nor another hive partition than `site=…`."""
    return bool(folder) and not _PARQUET_TABLE.fullmatch(folder) and ("=" not in folder or folder.startswith("site="))


def _dump_site(site: str, tables: list[_SiteTable]) -> DumpSite:
    if not _SITE_NAME.fullmatch(site) or len(site.encode()) > _NAME_BYTES:
        rule = (
            f"a letter or digit, then letters, digits, '.', '-', '_'; one letter at least, {_NAME_BYTES} bytes at most"
        )
        uri = tables[0].member.uri
        raise DupqError(f"{uri}: '{site[:_NAME_BYTES]}' is no site name ({rule}); give one with --site")
    posts, links = _members(tables, "posts"), _members(tables, "links")
    if not posts:
        names = [storage.name(links[0].uri), storage.name(links[0].name or ""), "PostLinks"]
        name = next(name for name in names if "postlinks" in name.lower())
        missing = re.sub("postlinks", "Posts", name, flags=re.IGNORECASE)
        raise DupqError(f"{links[0].source}: links of '{site}' without its posts; {missing} is missing")
    return DumpSite(site, posts, links, all(table.origin == _FOREIGN for table in tables))


def _members(tables: Iterable[_SiteTable], name: _TableName) -> tuple[Member, ...]:
    """Return the files of one table of a site. Raises DupqError if they differ in origin: rows would be doubled."""
    files = [table for table in tables if table.table == name]
    for file in files[1:]:
        if file.origin != files[0].origin:
            first, second = sorted([files[0].member.source, file.member.source])
            raise DupqError(f"{first} and {second} both hold the {name} of '{file.site}'; ingest one of them")
    return tuple(sorted({file.member for file in files}, key=lambda member: member.source))
