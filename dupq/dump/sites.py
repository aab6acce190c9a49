"""Finding the sites in the files, folders and prefixes that --dump names, in any form, local or on S3.

Dumps are found by the names of their files; Parquet conversions, which may have any names, by the
names of their columns. What has no dump in it, but tables, is a site of questions from elsewhere. Only names, headers
and footers are read here, several files at a time because on S3 each is a request or two.
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
from dupq.system import side_by_side

_TableName = Literal["posts", "links"]

_TABLES: dict[str, _TableName] = {"posts": "posts", "postlinks": "links"}
_TABLE_FILES = {f"{table}.xml": held for table, held in _TABLES.items()}
_SITE_AND_TABLE = re.compile(r"(?P<site>.+)-(?P<table>[a-z_]+)", re.IGNORECASE)
_FOREIGN = "a table of questions"  # the origin of those from elsewhere, which belong together
_PARQUET_TABLE = re.compile(r"(post_?links|links|posts|questions|answers)([-_.]?\d.*)?", re.IGNORECASE)
_DOMAIN = re.compile(r".+\.(com|net|org)", re.IGNORECASE)
_SITE_NAME = re.compile(r"(?=.*[^\W\d_])\w[\w.-]*")  # without a letter, readers of partitions take it for a number
_ODD = re.compile(r"[^\w.-]+")
_NAME_BYTES = 100  # it becomes a part of names of files, which may have 255

_WANTED = (
    "looked for .7z archives with Posts.xml, for Posts.xml, and for tables: .csv, .tsv, .json, .jsonl, .ndjson or "
    ".parquet; all but .7z plain, .gz, .bz2, .xz or .zst, tables also in a .zip"
)


class Found(NamedTuple):
    """The sites that can be read, sorted by name, and those that cannot, with the first reason found.

    And the files that look like a dump but are not read, each with why and what to do.
    """

    sites: list[DumpSite]
    failed: list[tuple[str, DupqError]]
    passed_over: dict[str, str]


class _Listed(NamedTuple):
    """What there is below one of the URIs that --dump names."""

    files: list[str]
    broken_links: list[str]


class _SiteTable(NamedTuple):
    """A table of a site. Two of one site belong together only if they are parts in the same `origin`."""

    site: str
    table: _TableName
    member: Member
    origin: str


class _BadFile(NamedTuple):
    """A file that cannot be read, of a site by its name."""

    site: str
    error: DupqError


def find_sites(
    uris: Sequence[str], site: str | None = None, has_columns: bool = False, left_out: Sequence[str] = ()
) -> Found:
    """The sites in the files and folders `uris`, at any depth; no file whose URI begins with one of `left_out`.

    A site is called like its archive, like the folder of its Posts.xml, like its part of `SITE-Posts.…`, or
    like its `site=…` folder; `site` overrides that for a dump of one site. Where one of `uris` has no dump in it, all
    tables in it are questions of one site, which is called like it; with `has_columns` also where it has one. A file
    that several `uris` name counts once.
    A site fails if one of its files is damaged, two files have the same table of it, its links come without
    their posts, or its name is not fit. Raises DupqError if all fail, or one does and `site` is given, and if one
    of `uris` is missing or has no dump in it; SettingError if `site` is given for several.
    """
    listed = {uri: _listed(uri, tuple(left_out)) for uri in dict.fromkeys(map(storage.absolute, uris))}
    have_tables = {
        uri for uri, (files, _) in listed.items() if any(is_table(f) or f.lower().endswith(".zip") for f in files)
    }
    dumps = _tables({uri: there for uri, there in listed.items() if not (has_columns and uri in have_tables)})
    by_site: dict[str, list[_SiteTable]] = {}
    failed: dict[str, DupqError] = {}
    for table in itertools.chain.from_iterable(dumps.values()):
        if isinstance(table, _SiteTable):
            by_site.setdefault(table.site, []).append(table)
        else:
            failed.setdefault(table.site, table.error)
    used = {uri for uri, tables in dumps.items() if tables}
    for uri, there in listed.items():
        if used.isdisjoint(there.files):
            for table in _foreign(uri, there.files, site):
                used.add(table.member.uri)
                by_site.setdefault(table.site, []).append(table)
    _check_all_used(listed, used)
    if site is not None and not failed:
        if len(by_site) > 1:
            names = ", ".join(sorted(by_site))
            raise SettingError(f"the dump holds several sites ({names}), which cannot all be called '{site}'")
        by_site = {site: next(iter(by_site.values()))}
    sites, failures = _dump_sites(by_site, failed)
    if failures and (site is not None or not sites):
        if len(failures) == 1:
            raise failures[0][1]
        lines = [f"{len(failures)} sites cannot be read:", *(str(error) for _, error in failures)]
        raise DupqError("\n  ".join(lines))
    return Found(sites, failures, _passed_over(listed.values(), used))


def _listed(uri: str, left_out: tuple[str, ...]) -> _Listed:
    kind = storage.kind(uri)
    if kind == "missing":
        raise DupqError(f"{uri}: {LOST if os.path.islink(uri) else 'no such file or folder'}")
    files = [uri] if kind == "file" else [file.uri for file in storage.list_files(uri)]
    lost = [] if kind == "file" else storage.broken_links(uri)
    return _Listed(
        [file for file in files if not file.startswith(left_out)],
        [link for link in lost if not link.startswith(left_out)],
    )


def _tables(listed: Mapping[str, _Listed]) -> dict[str, Sequence[_SiteTable | _BadFile]]:
    """The tables of dumps in all listed files, in the order of the files, and the links beside posts that are named."""
    named = {uri for uri, (files, _) in listed.items() if files == [uri]}
    files = sorted({file for files, _ in listed.values() for file in files}.union(*map(_links_beside, named)))
    return dict(zip(files, side_by_side(lambda file: _tables_in(file, file in named), files), strict=True))


def _foreign(uri: str, files: Sequence[str], site: str | None) -> list[_SiteTable]:
    """The tables among the files below `uri` as the posts of one site, also those in .zip archives."""
    stem = without_compression(storage.name(uri))
    if files == [uri]:
        stem = stem.rpartition(".")[0]
    members = []
    for file in sorted(files):
        if file.lower().endswith(".zip"):
            members += [Member(file, name) for name in names_in_zip(file) if _is_read(name)]
        elif is_table(file):
            members.append(Member(file))
    return [_SiteTable(site or _ODD.sub("-", stem).strip("-"), "posts", member, _FOREIGN) for member in members]


def _is_read(name: str) -> bool:
    """Whether a file in a .zip is a table, and no leftover of macOS."""
    return is_table(name) and name == without_compression(name) and not storage.name(name).startswith((".", "_"))


def _passed_over(listed: Iterable[_Listed], used: Collection[str]) -> dict[str, str]:
    """The files and links that look like a dump, yet are not `used`, each with why and what to do."""
    found = passed_over([file for files, _ in listed for file in files], used)
    found |= {link: LOST for _, lost in listed for link in lost}
    # a name may be no UTF-8, and must be shown
    return {uri.encode(errors="backslashreplace").decode(): found[uri] for uri in sorted(found)}


def _check_all_used(listed: Mapping[str, _Listed], used: Collection[str]) -> None:
    """Raise DupqError for what was named and adds nothing, the sign of a wrong path."""
    for uri, there in listed.items():
        if set(there.files).isdisjoint(used):
            passed = _passed_over([there], used)
            said = [why if file == uri else f"passed over: {file} ({why})" for file, why in passed.items()]
            raise DupqError(f"{uri}: no dump in it; " + "\n  ".join(said or [_WANTED]))


def _tables_in(uri: str, is_named: bool) -> Sequence[_SiteTable | _BadFile]:
    """The posts and links in a file; none in files that are no dump, unless --dump names them."""
    name = storage.name(uri).lower()
    try:
        if name.endswith(".7z"):
            return _archived(uri)
        if name.endswith(".parquet"):
            table = dump_table(storage.read_schema(uri).names)
            site, origin = _parquet_site(uri, is_named)
            return [] if table is None else [_SiteTable(site, table, Member(uri), origin)]
    except DupqError as error:
        return [_BadFile(_archive_site(uri) if name.endswith(".7z") else _parquet_site(uri, is_named)[0], error)]
    found = _xml(uri, is_named) if without_compression(name).endswith(".xml") else None
    return [] if found is None else [found]


def _xml(uri: str, is_named: bool) -> _SiteTable | None:
    """`SITE/Posts.xml`, `SITE-Posts.xml`, or, if --dump names it, `SITE.xml`; the same for PostLinks."""
    folder = storage.parent(uri)
    stem = without_compression(storage.name(uri))[: -len(".xml")]
    if stem.lower() in _TABLES:
        return _SiteTable(storage.name(folder), _TABLES[stem.lower()], Member(uri), uri)
    site, table = _split(stem)
    if table in _TABLES:
        return _SiteTable(site, _TABLES[table], Member(uri), uri)
    if not is_named or {stem.lower(), table} & OTHER_TABLES:
        return None
    return _SiteTable(stem, "posts", Member(uri), uri)


def _archived(uri: str) -> list[_SiteTable]:
    """The tables in `SITE.7z`, or in one of `SITE-Posts.7z` and `SITE-PostLinks.7z`."""
    if _split(storage.name(uri)[: -len(".7z")])[1] in OTHER_TABLES:
        return []
    members: dict[_TableName, Member] = {}
    for file in read_header(uri):
        held = _TABLE_FILES.get(file.name.rsplit("/", 1)[-1].lower())
        if held in members:
            raise DupqError(f"{uri}: holds {members[held].name} and {file.name}; expected is one site only")
        if held is not None:
            members[held] = Member(uri, file.name)
    return [_SiteTable(_archive_site(uri), held, member, uri) for held, member in members.items()]


def _archive_site(uri: str) -> str:
    stem = storage.name(uri)[: -len(".7z")]
    site, table = _split(stem)
    return site if table in _TABLES else stem


def _split(stem: str) -> tuple[str, str]:
    """The site and the lower-case table in `SITE-TABLE`; the table is empty if `stem` is not of that form."""
    match = _SITE_AND_TABLE.fullmatch(stem)
    return (stem, "") if match is None else (match["site"], match["table"].lower())


def _links_beside(posts: str) -> list[str]:
    """The files in the folder of `posts` that have the links of the same site by name, in any form."""
    site = _site_by_name(posts, "posts")
    if site is None:
        return []
    folder = storage.parent(posts)
    beside = (storage.join(folder, name) for name in storage.names_in(folder))
    return [uri for uri in beside if _site_by_name(uri, "links") == site]


def _site_by_name(uri: str, wanted: _TableName) -> str | None:
    """The site of an XML file or of an archive of one table, if it holds the table `wanted`."""
    name = storage.name(uri).lower()
    if without_compression(name).endswith(".xml"):
        found = _xml(uri, is_named=wanted == "posts")
        return found.site if found is not None and found.table == wanted else None
    site, table = _split(storage.name(uri)[: -len(".7z")])
    return site if name.endswith(".7z") and _TABLES.get(table) == wanted else None


def _parquet_site(uri: str, is_named: bool) -> tuple[str, str]:
    """The site of a Parquet file by its path, and the origin that it shares with other parts of the table."""
    folder = storage.parent(uri)
    stem = storage.name(uri)[: -len(".parquet")]
    folders = list(filter(_says_where, folder.removeprefix("s3://").split("/")))
    partitions = [part.removeprefix("site=") for part in folders if part.startswith("site=")]
    if partitions:
        return partitions[-1], "/".join(folders)
    site, table = _split(stem)
    if _PARQUET_TABLE.fullmatch(table):
        return site, folder
    if _DOMAIN.fullmatch(stem) or (is_named and not _PARQUET_TABLE.fullmatch(stem)):
        return stem, uri
    return folders[-1] if folders else "", "/".join(folders)


def _says_where(folder: str) -> bool:
    """Whether a folder is more than a table or a partition of one."""
    return bool(folder) and not _PARQUET_TABLE.fullmatch(folder) and ("=" not in folder or folder.startswith("site="))


def _dump_sites(
    by_site: Mapping[str, list[_SiteTable]], failed: Mapping[str, DupqError]
) -> tuple[list[DumpSite], list[tuple[str, DupqError]]]:
    """The sites but those that have `failed` already, which are added to those that fail now."""
    sites, errors = [], dict(failed)
    for name in sorted(by_site.keys() - failed.keys()):
        try:
            sites.append(_dump_site(name, by_site[name]))
        except DupqError as error:
            errors[name] = error
    return sites, [(name, errors[name]) for name in sorted(errors)]


def _dump_site(site: str, found: list[_SiteTable]) -> DumpSite:
    if not _SITE_NAME.fullmatch(site) or len(site.encode()) > _NAME_BYTES:
        rule = f"letters, of which there must be one, digits, '.', '-', '_'; at most {_NAME_BYTES} bytes"
        uri = found[0].member.uri
        raise DupqError(f"{uri}: '{site[:_NAME_BYTES]}' is no site name ({rule}); give one with --site")
    if all(table.origin == _FOREIGN for table in found):
        return DumpSite(site, tuple(sorted({table.member for table in found}, key=lambda it: it.source)), (), True)
    posts, links = _members(found, "posts"), _members(found, "links")
    if not posts:
        raise DupqError(f"{links[0].source}: links of '{site}' without its posts; {_missing_file(links[0])} is missing")
    return DumpSite(site, posts, links)


def _members(found: Iterable[_SiteTable], table: _TableName) -> tuple[Member, ...]:
    """The files of one table of a site; several must be parts of one, or rows would be there twice."""
    parts = [part for part in found if part.table == table]
    for part in parts[1:]:
        if part.origin != parts[0].origin:
            first, second = sorted([parts[0].member.source, part.member.source])
            raise DupqError(f"{first} and {second} both hold the {table} of '{part.site}'; ingest one of them")
    return tuple(sorted((part.member for part in parts), key=lambda member: member.source))


def _missing_file(links: Member) -> str:
    """What the file with the posts to `links` would be called."""
    names = [storage.name(links.uri), storage.name(links.name or ""), "PostLinks"]
    name = next(name for name in names if "postlinks" in name.lower())
    return re.sub("postlinks", "Posts", name, flags=re.IGNORECASE)
