"""The sites in what --dump names, and their files as streams, whether packed or plain, local or on S3."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from dupq import storage
from dupq.dump import seven_zip
from dupq.errors import DupqError, SettingError

_SPLIT_ARCHIVE = re.compile(r"(?P<site>.+)-(?P<table>[a-z]+)\.7z", re.IGNORECASE)
_OTHER_TABLES = {"badges", "comments", "posthistory", "postlinks", "tags", "users", "votes"}
_BUFFER = 1 << 20  # bytes; on S3 each refill is a request
_SITE_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Member:
    """One XML file of a dump: a file of its own, or the file `name` inside the archive at `uri`."""

    uri: str
    name: str | None = None

    @property
    def source(self) -> str:
        """What rejects and errors call it."""
        return self.uri if self.name is None else f"{self.uri}/{self.name}"


@dataclass(frozen=True)
class DumpSite:
    """A site and its files; `links` is None where the dump has no PostLinks.xml."""

    site: str
    posts: Member
    links: Member | None


def find_sites(uri: str, site: str | None = None) -> list[DumpSite]:
    """The sites in a .7z archive, a Posts.xml, or a folder with any of them at any depth, sorted by name.

    A site is called like its archive, or like the folder of its Posts.xml; `site` overrides that for a dump
    of one site. Big sites come as an archive for each file (`SITE-Posts.7z` beside `SITE-PostLinks.7z`).
    Raises DupqError if there is none, an archive is damaged, or two are called the same; SettingError if
    `site` is given for several.
    """
    found = [dump for file in _files(storage.absolute(uri)) if (dump := _dump_in(file)) is not None]
    if not found:
        raise DupqError(f"{uri}: no dump in it; name a Posts.xml, a .7z that holds one, or a folder of them")
    if site is not None:
        found = [_renamed(found, site, uri)]
    return _distinct(found)


@contextlib.contextmanager
def open_member(member: Member) -> Iterator[IO[bytes]]:
    """The uncompressed bytes of `member`, in memory a buffer at a time.

    A reader may stop early. On leaving, raises DupqError if it came to the end of an archive that is
    damaged or cut short, in place of any error that the reader had with such bytes.
    """
    if member.name is None:
        with storage.open_input(member.uri) as stream:
            yield io.BufferedReader(stream, _BUFFER)
        return
    with (
        storage.local_file(member.uri) as archive,
        seven_zip.open_file(archive, member.name, member.source) as stream,
    ):
        yield stream


def _files(uri: str) -> list[str]:
    kind = storage.kind(uri)
    if kind == "missing":
        raise DupqError(f"{uri}: no such file or folder")
    return [uri] if kind == "file" else [file.uri for file in storage.list_files(uri)]


def _dump_in(uri: str) -> DumpSite | None:
    """The site whose posts are in the file `uri`; None for any other file."""
    name = storage.name(uri)
    if name.lower() == "posts.xml":
        return _plain_dump(uri)
    split = _SPLIT_ARCHIVE.fullmatch(name)
    if split is not None and split["table"].lower() in _OTHER_TABLES:
        return None
    return _archived_dump(uri) if name.lower().endswith(".7z") else None


def _plain_dump(uri: str) -> DumpSite:
    folder = storage.parent(uri)
    links = _first_file(folder, ["PostLinks.xml", "postlinks.xml"])
    return DumpSite(storage.name(folder), Member(uri), None if links is None else Member(links))


def _archived_dump(uri: str) -> DumpSite | None:
    members = _members_by_name(uri)
    if "posts.xml" not in members:
        return None
    name = storage.name(uri)
    split = _SPLIT_ARCHIVE.fullmatch(name)
    if split is None or split["table"].lower() != "posts":
        return DumpSite(name[: -len(".7z")], members["posts.xml"], members.get("postlinks.xml"))
    site = split["site"]
    sibling = _first_file(storage.parent(uri), [f"{site}-PostLinks.7z", f"{site}-postlinks.7z"])
    links = members if sibling is None else _members_by_name(sibling)
    return DumpSite(site, members["posts.xml"], links.get("postlinks.xml"))


def _members_by_name(archive: str) -> dict[str, Member]:
    """Posts.xml and PostLinks.xml of an archive by lower-case base name, wherever in it they are."""
    members: dict[str, Member] = {}
    for path in seven_zip.file_names(archive):
        name = path.rsplit("/", 1)[-1].lower()
        if name in members:
            raise DupqError(f"{archive}: holds {members[name].name} and {path}; expected is one site only")
        if name in ("posts.xml", "postlinks.xml"):
            members[name] = Member(archive, path)
    return members


def _first_file(folder: str, names: list[str]) -> str | None:
    files = (storage.join(folder, name) for name in names)
    return next((file for file in files if storage.kind(file) == "file"), None)


def _renamed(found: list[DumpSite], site: str, uri: str) -> DumpSite:
    if len(found) > 1:
        names = ", ".join(sorted(dump.site for dump in found))
        raise SettingError(f"{uri}: holds several sites ({names}), which cannot all be called '{site}'")
    return dataclasses.replace(found[0], site=site)


def _distinct(found: list[DumpSite]) -> list[DumpSite]:
    """`found`, sorted; each name must be fit for a partition folder and used once."""
    by_site: dict[str, DumpSite] = {}
    for dump in found:
        if not _SITE_NAME.fullmatch(dump.site):
            raise DupqError(f"{dump.posts.uri}: '{dump.site}' is no site name (letters, digits, '.', '-')")
        other = by_site.setdefault(dump.site, dump)
        if other is not dump:
            raise DupqError(f"{other.posts.uri} and {dump.posts.uri} are both called '{dump.site}'")
    return [by_site[site] for site in sorted(by_site)]
