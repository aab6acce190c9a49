"""Telling which files look like a dump, yet are not read, and what to do about each.

All names are looked at, and how files begin: on the local disk that of every file that is not read; on S3, where it
costs a request or two, only of those named like a site or its posts.
"""

import re
import shlex
from collections.abc import Collection, Iterable
from functools import partial

from dupq import storage
from dupq.dump.files import without_compression
from dupq.errors import DupqError
from dupq.side_by_side import side_by_side

OTHER_TABLES = {"badges", "comments", "posthistory", "tags", "users", "votes"}

_OTHER_TABLE = re.compile(rf"(?:.+-)?(?:{'|'.join(sorted(OTHER_TABLES))})\.(?!(?:com|net|org)\b).+")
_VOLUME = re.compile(r"(?P<whole>.+\.7z)\.\d{2,}")
_DOWNLOADS = (".part", ".partial", ".filepart", ".aria2", ".crdownload", ".download", ".!qb", ".tmp")
_TO_DOWNLOAD = re.compile(r".+\.7z|(?:.+-)?post(?:link)?s\.xml(?:\.\w+)?")
_OTHER_COMPRESSION = re.compile(r"(?:.+-)?post(?:link)?s\.xml\.(?:br|lz|lz4|lzma|lzo|z)")
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".rar")
_TABLE = re.compile(r"(?:.+-)?post(?:link)?s\.(?:csv|tsv|parquet)")
_NAMED_LIKE_A_DUMP = re.compile(r".*(?:\.(?:com|net|org)(?![a-z])|(?<![a-z])post(?:link)?s(?![a-z])).*")

_HEAD = 512  # bytes
_SEVEN_ZIP = b"7z\xbc\xaf\x27\x1c"
_ZIP_OR_RAR = (b"PK\x03\x04", b"Rar!\x1a\x07")
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>)?\s*<post(?:link)?s[\s>]")


def passed_over(files: Iterable[str], read: Collection[str]) -> dict[str, str]:
    """Return those of `files` that look like a dump and are not among those `read`, each with why and the remedy.

    Of the volumes of one archive the first is named. Nothing is said of what a file that is read was made from.
    """
    there = set(files)
    rest = sorted(there.difference(read))
    reasons = dict(zip(rest, side_by_side(partial(_reason, there=there), rest), strict=True))
    first_of = {_whole(uri) or uri: uri for uri in reversed(rest)}
    return {uri: why for uri, why in reasons.items() if why is not None and first_of[_whole(uri) or uri] == uri}


def _whole(uri: str) -> str | None:
    """The archive that a file is a volume of."""
    match = _VOLUME.fullmatch(uri.lower())
    return None if match is None else uri[: match.end("whole")]


def _reason(uri: str, there: Collection[str]) -> str | None:
    name = storage.name(uri).lower()
    whole = _whole(uri)
    if _OTHER_TABLE.fullmatch(name) or whole in there:
        return None
    if whole is not None:
        quoted = shlex.quote(storage.name(whole))
        return f"a volume of an archive; join the volumes first: cat {quoted}.* > {quoted}"
    head = _head(uri)
    if name.endswith(_DOWNLOADS):
        done = uri.rpartition(".")[0]
        is_dump = head.startswith(_SEVEN_ZIP) or _TO_DOWNLOAD.fullmatch(storage.name(done).lower())
        return "half downloaded; finish the download" if is_dump and done not in there else None
    if name.endswith(".7z"):
        return "holds neither Posts.xml nor PostLinks.xml; unpack it if a dump is in it"
    if head.startswith(_SEVEN_ZIP):
        return "a 7z archive by its first bytes; rename it to end in .7z"
    if _ROOT.match(head):
        table = "PostLinks" if b"<postlinks" in head else "Posts"
        return f"a site's {table}.xml by its first bytes; rename it to SITE-{table}.xml"
    if name.endswith(".zip") or (head.startswith(_ZIP_OR_RAR) and _NAMED_LIKE_A_DUMP.fullmatch(name)):
        return "an archive that is not read; unzip it first"
    if without_compression(name).endswith(_ARCHIVES):
        return "an archive that is not read; unpack it first"
    if _OTHER_COMPRESSION.fullmatch(name):
        return "compressed in a way that is not read; unpack it first"
    if _TABLE.fullmatch(without_compression(name)):
        return "a table without a dump's columns; give it alone, with --title and --text"
    return None


def _head(uri: str) -> bytes:
    """How a file begins; nothing of one that cannot be read, or whose name on S3 is not worth a request."""
    if storage.is_remote(uri) and not _NAMED_LIKE_A_DUMP.fullmatch(storage.name(uri).lower()):
        return b""
    try:
        with storage.open_input(uri) as stream:
            return stream.read(_HEAD)
    except (DupqError, OSError):
        return b""
