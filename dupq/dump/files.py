"""The files of a dump: a site's tables, the files that are passed over and why, and the columns of a table from
elsewhere, or the fields of a GitHub issue, that hold a question's title, text, id, tags and date.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from dupq import storage
from dupq.dump.posts import ATTRIBUTES, OWN_ID, SCOPE, URL
from dupq.errors import DupqError
from dupq.system import thread_map
from dupq.text.tokens import Markup, as_html

Form = Literal["xml", "csv", "json", "parquet"]

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}  # suffix -> codec

_FORMS: dict[str, Form] = {
    ".xml": "xml",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
TABLES = tuple(suffix for suffix, form in _FORMS.items() if form != "xml")
Table = Literal["posts", "links", "table"]  # "table": questions from elsewhere

_OPTIONS = {"Title": "title", "Body": "text", "Id": "id", "Tags": "tags", "CreationDate": "date", URL: "url"}
_OPTIONS |= {SCOPE: "scope"}
_OBVIOUS = {  # names in lower case; but for title and text the first that is there counts
    "Title": ("title", "question", "subject", "headline", "summary"),
    "Body": ("text", "body", "body_html", "answer", "answer_text", "description", "content"),
    "Id": ("id", "question_id", "number", "key"),
    "Tags": ("tags", "labels"),
    "CreationDate": ("creation_date", "created_at", "createdat", "date"),
    URL: ("url", "html_url", "link"),
}
_TITLES_AND_TEXTS = (*_OBVIOUS["Title"], *_OBVIOUS["Body"])
_REQUIRED = {  # columns that a dump's own table must have; it may have the others of ATTRIBUTES
    "links": ("PostId", "RelatedPostId", "LinkTypeId"),
    "posts": ("Id", "PostTypeId"),
}
_SHOWN = 20  # names in an error


@dataclass(frozen=True)
class Member:
    """One table in one file: a file of its own, or the file `name` inside the .7z or .zip archive at `uri`."""

    uri: str
    name: str | None = None

    @property
    def source(self) -> str:
        """Its name in rejects and errors."""
        return self.uri if self.name is None else f"{self.uri}/{self.name}"

    @property
    def form(self) -> Form:
        """Its format by its name. Raises DupqError for any other file."""
        name = without_compression(self.source).lower()
        for suffix, form in _FORMS.items():
            if name.endswith(suffix):
                return form
        raise DupqError(f"{self.source}: neither {', '.join(_FORMS)}")

    @property
    def compression(self) -> str | None:
        """The codec of a compressed file; None for plain files and those in archives."""
        return None if self.name is not None else COMPRESSIONS.get(_compression_suffix(self.uri))

    @property
    def is_packed(self) -> bool:
        """Whether it must be unpacked, and so read from its beginning."""
        return self.name is not None or self.compression is not None


@dataclass(frozen=True)
class DumpSite:
    """A site and its files, sorted by source; several only for tables in Parquet or from elsewhere."""

    site: str
    posts: tuple[Member, ...]
    links: tuple[Member, ...] = ()
    is_table: bool = False  # `posts` are tables of questions from elsewhere, with columns of their own
    id: str | None = None  # the column of their ids, if its values alone tell


def is_table(name: str) -> bool:
    """Tell whether a file is a table, possibly compressed, by its name."""
    return has_ending(name, *TABLES)


def without_compression(name: str) -> str:
    """Return `name` without the suffix of its compression, if any."""
    return name[: len(name) - len(_compression_suffix(name))]


def has_ending(source: str, *endings: str) -> bool:
    """Tell whether a file, which may be compressed or in an archive, has one of these endings."""
    return without_compression(storage.name(source)).lower().endswith(endings)


def _compression_suffix(name: str) -> str:
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


# Files that look like a dump but are not read, and what to do about each.
#
# The names of all files are examined, and the first bytes of those that are not read: on S3, where that costs a request
# or two, only of files named like a site or its posts.

OTHER_TABLES = {"badges", "comments", "posthistory", "tags", "users", "votes"}

_OTHER_TABLE = re.compile(rf"(?:.+-)?(?:{'|'.join(sorted(OTHER_TABLES))})\.(?!(?:com|net|org)\b).+")
_VOLUME = re.compile(r"(?P<whole>.+\.7z)\.\d{2,}")
_DOWNLOADS = (".part", ".partial", ".filepart", ".aria2", ".crdownload", ".download", ".!qb", ".tmp")
_TO_DOWNLOAD = re.compile(r".+\.7z|(?:.+-)?post(?:link)?s\.xml(?:\.\w+)?")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".rar")
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_NAMED_LIKE_A_DUMP = re.compile(r".*(?:\.(?:com|net|org)(?![a-z])|(?<![a-z])post(?:link)?s(?![a-z])).*")

_SEVEN_ZIP = b"7z\xbc\xaf\x27\x1c"


def passed_over(files: Iterable[str], read: Collection[str]) -> dict[str, str]:
    """Return the `files` that look like a dump and are not among those `read`, each with the reason and the remedy.

    Of an archive in volumes the first volume is named, and none if the joined archive is there too.
    """
    existing = set(files)
    unread = sorted(existing.difference(read))
    reasons = dict(zip(unread, thread_map(partial(_reason, existing=existing), unread), strict=True))
    first_of = {_joined_volumes(uri) or uri: uri for uri in reversed(unread)}
    return {
        uri: why for uri, why in reasons.items() if why is not None and first_of[_joined_volumes(uri) or uri] == uri
    }


def _joined_volumes(uri: str) -> str | None:
    """Return the archive that a file is a volume of; None for other files."""
    match = _VOLUME.fullmatch(uri.lower())
    return None if match is None else uri[: match.end("whole")]


def _reason(uri: str, existing: Collection[str]) -> str | None:
    name = storage.name(uri).lower()
    whole = _joined_volumes(uri)
    if _OTHER_TABLE.fullmatch(name) or whole in existing:
        return None
    if whole is not None:
        quoted = shlex.quote(storage.name(whole))
        return f"a volume of an archive; join the volumes first: cat {quoted}.* > {quoted}"
    head = _head(uri)
    if name.endswith(_DOWNLOADS):
        done = uri.rpartition(".")[0]
        is_dump = head.startswith(_SEVEN_ZIP) or _TO_DOWNLOAD.fullmatch(storage.name(done).lower())
        return "half downloaded; finish the download" if is_dump and done not in existing else None
    if name.endswith(".7z"):
        return "holds neither Posts.xml nor PostLinks.xml; unpack it if a dump is in it"
    if head.startswith(_SEVEN_ZIP):
        return "a 7z archive by its first bytes; rename it to end in .7z"
    if without_compression(name).endswith(_ARCHIVES):
        return "packed in a format that is not read; unpack it first"
    if name.endswith(_WORKBOOKS):
        return "a spreadsheet's workbook; save the sheet as CSV (in Excel: CSV UTF-8)"
    return None


def _head(uri: str) -> bytes:
    """Return a file's first bytes; none if it cannot be read, or if its name on S3 is not worth a request."""
    if storage.is_remote(uri) and not _NAMED_LIKE_A_DUMP.fullmatch(storage.name(uri).lower()):
        return b""
    try:
        with storage.open_input(uri) as stream:
            return stream.read(len(_SEVEN_ZIP))
    except (DupqError, OSError):
        return b""


@dataclass(frozen=True)
class Columns:
    """The options that name a table's columns. None: guess the column by its name."""

    title: str | None = None
    text: str | None = None
    id: str | None = None
    tags: str | None = None
    date: str | None = None
    format: Markup | Literal["table"] = "auto"  # of the text; "table": a table, whatever its columns are called
    url: str | None = None
    scope: str | None = None

    @property
    def markup(self) -> Markup:
        """The format of the text."""
        return "auto" if self.format == "table" else self.format

    def with_id(self, name: str | None) -> "Columns":
        """Return them with the column of ids that `check_columns` found, if it found one."""
        return self if name is None else replace(self, id=name)


BY_NAME = Columns()  # with any other columns, the input must be tables


def dump_table(names: Sequence[str]) -> Literal["posts", "links"] | None:
    """Return the table of a dump that has these columns, in any case; None for any other table."""
    lower = {name.lower() for name in names}
    if lower.issuperset(map(str.lower, _REQUIRED["links"])):
        return "links"
    return "posts" if lower.issuperset(map(str.lower, _REQUIRED["posts"])) else None


def column_indices(columns: Columns, names: Sequence[str], table: Table, source: str) -> dict[str, int]:
    """Return the index of each attribute of a row among the columns `names` of the table `source`.

    Raises DupqError with the source and its columns if one is missing, there twice, or cannot be guessed.
    """
    options = {attribute: getattr(columns, option) for attribute, option in _OPTIONS.items()}
    indices = {attribute: _index(name, names, source) for attribute, name in options.items() if name}
    scope = {SCOPE: indices.pop(SCOPE)} if SCOPE in indices else {}  # which may be any other column too
    if table != "table":
        tables = [ATTRIBUTES["links"]] if table == "links" else [ATTRIBUTES["questions"], ATTRIBUTES["answers"]]
        known = [name for columns_of in tables for attributes in columns_of.values() for name in attributes]
        known = [name for name in known if name not in (OWN_ID, URL, SCOPE)]
        lower = [name.lower() for name in names]
        present = [*_REQUIRED[table], *(name for name in known if name.lower() in lower)]
        own = {name: _index(name.lower(), lower, source) for name in present}
        return {name: index for name, index in (own | indices).items() if options.get(name) != ""} | scope
    for attribute, obvious in _OBVIOUS.items():
        free = [index for index in range(len(names)) if index not in indices.values()]
        guessed = [index for name in obvious for index in free if names[index].lower() == name]
        if options[attribute] is None and guessed:  # "": none
            if attribute in ("Title", "Body") and len(guessed) > 1:
                option, several = _OPTIONS[attribute], quoted([names[index] for index in guessed])
                raise DupqError(f"{source}: {several} may each be the {option}; say which with --{option} COLUMN")
            indices[attribute] = guessed[0]
    # a table of nothing but texts may lack titles; of others a column that is not recognised may hold the questions
    is_open = columns.title is None and columns.text is None and len(indices) < len(names)
    if "Title" not in indices and (is_open or "Body" not in indices):
        raise DupqError(
            f"{source}: which column is the question? name it with --title COLUMN, and its text with --text; "
            f"its columns are {quoted(names)}"
        )
    return indices | scope


def may_have_questions(columns: Columns, names: Iterable[str]) -> bool:
    """Tell whether one of the columns `names` is named by the options, or may be a title or a text by its name."""
    return any(name in (columns.title, columns.text) or name.lower() in _TITLES_AND_TEXTS for name in names)


def _index(name: str, names: Sequence[str], source: str) -> int:
    indices = [index for index, other in enumerate(names) if other == name]
    if len(indices) != 1:
        state = f"is there {len(indices)} times" if indices else "is missing"
        raise DupqError(f"{source}: column '{name}' {state}; its columns are {quoted(names)}")
    return indices[0]


def quoted(names: Sequence[str]) -> str:
    """Return column names for an error: printable, and not too many, for they may be anything."""
    shown = ", ".join(repr(name[:40]) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown or "none"


# GitHub issues, exported by `gh issue list --json number,title,body,labels,createdAt,author,url` or the REST API.
#
# A row is an issue; pull requests are other posts. Labels are tags. Comments, headings and check boxes of templates are
# removed from bodies. "Duplicate of #12" in a body or in an exported comment becomes a link and is removed too, unless
# it is denied, asked, guessed, quoted or code. An issue with its address has the id `owner/repo#12`, as issues of other
# repositories have the same numbers.

DUPLICATE_OF = "DuplicateOf"  # an attribute of all issues: the ids of others

FIELDS = (  # those that are read
    *("number", "title", "body", "labels", "comments", "pull_request"),
    *("created_at", "createdAt", "author", "user", "url", "html_url"),
)
_ISSUE_COLUMNS = {  # that options may name; "": none
    "title": ("title",),
    "text": ("body",),
    "id": ("number",),
    "tags": ("labels", ""),
    "date": ("createdAt", "created_at", ""),
    "url": ("url", "html_url"),
    "scope": (),  # labels are tags
    "format": ("auto", "plain"),
}
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TEMPLATE = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|[-*][ \t]+\[[ xX]\].*|_No response_[ \t]*)$", re.MULTILINE)
_ADDRESS = re.compile(r"([\w.-]+/[\w.-]+)/(issues|pull)/(\d+)")
_NOT_SAID = re.compile(  # but quoted, in code, or in a box that is not checked
    r"^[ \t]*(?:>|[-*][ \t]+\[ \])[^\n]*|^[ \t]*(```|~~~)[^`\n]*$.*?(?:^[ \t]*\1|\Z)|^(?: {4}|\t)[^\n]*"
    r"|`+[^`\n]*`+|<(pre|code)\b.*?(?:</\2>|\Z)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?:[^.!?\n]|[.!?](?![\s*_)]|\Z)|\n(?=[a-z]))++([.!?]*)")  # or a line, unless it goes on
_DOUBT = re.compile(  # either to the end of the sentence, or of all of it
    r"\b(?:not|never|no|if|whether|could|may|might|would|is (?:this|it|that)|looks?|seems?|appears?|near(?:ly)?|almost"
    r"|partly|partial(?:ly)?|(possibl[ey]|potential(?:ly)?|probabl[ey]|likely|maybe|perhaps))\b|n['’]t\b",
    re.IGNORECASE,
)
_ISSUE = r"(?:(?:(?:https?://)?[\w-]+(?:\.[\w-]+)+/)?([\w.-]+/[\w.-]+)(?:/issues/|#)|\bgh-|#)(\d{1,9})(?![a-z\d])"
_BETWEEN = r"(?:[\s*_,:;&()\[\]]|\b(?:and|also|the|issues?|bugs?|tickets?|reports?)\b)*+"
_ONE_ISSUE = re.compile(_ISSUE, re.IGNORECASE)
_DUPLICATE = re.compile(
    rf"[*_]*(?<![a-z\d])dup(?:es?|licate[sd]?)?[*_]* of(?:{_BETWEEN}{_ISSUE})++(?!{_BETWEEN}or\b)", re.IGNORECASE
)


def issue_indices(columns: Columns, names: Sequence[str], source: str) -> dict[str, int]:
    """Return the index of each field of an issue. Raises DupqError for options that name others than GitHub's."""
    for option, usual in _ISSUE_COLUMNS.items():
        value = getattr(columns, option)
        if value is not None and value not in usual:
            raise DupqError(
                f"{source}: GitHub issues, which --{option} {shlex.quote(value)} does not fit; leave it out, or add "
                "--format table, which reads a plain table, pull requests and all"
            )
    without = [name for option in ("tags", "date") if getattr(columns, option) == "" for name in _ISSUE_COLUMNS[option]]
    return {name: index for index, name in enumerate(names) if name in FIELDS and name not in without}


def issue_attributes(issue: Mapping[str, str]) -> dict[str, str]:
    """Return an issue as the attributes of a dump's post, with DUPLICATE_OF."""
    address = issue.get("html_url") or issue.get("url", "")
    found = _ADDRESS.search(address)
    repository, kind, number = found.groups() if found else ("", "issues", issue.get("number", ""))
    body, others = _without_remarks(issue.get("body", ""), repository)
    for comment in _values(issue, "comments", "body"):
        others |= _without_remarks(comment, repository)[1]
    attributes = {
        "Id": _issue_id(repository, number),
        "PostTypeId": "0" if "pull_request" in issue or kind == "pull" else "1",
        "Title": issue.get("title", ""),
        "Body": as_html(_TEMPLATE.sub("", body)),
        "Tags": issue.get("labels", ""),
        "CreationDate": issue.get("created_at") or issue.get("createdAt", ""),
        URL: address,
        "OwnerDisplayName": next(iter(_values(issue, "author", "login") + _values(issue, "user", "login")), ""),
    }
    others.discard(attributes["Id"])
    return {name: value for name, value in attributes.items() if value} | {DUPLICATE_OF: " ".join(sorted(others))}


def _issue_id(repository: str, number: str) -> str:
    return f"{repository}#{number}" if repository else number


def _without_remarks(text: str, repository: str) -> tuple[str, set[str]]:
    """Return a text without comments and without the remarks of what it duplicates, and the ids that these name."""
    text = _COMMENT.sub("", text)
    said = _NOT_SAID.sub(lambda match: " " * len(match[0]), text)
    remarks: list[re.Match[str]] = []
    for sentence in _SENTENCE.finditer(said):
        doubts = list(_DOUBT.finditer(said, *sentence.span()))
        if "?" not in sentence[1] and not any(doubt[1] for doubt in doubts):
            remarks += _DUPLICATE.finditer(said, sentence.start(), doubts[0].start() if doubts else sentence.end())
    named = [of_issue for remark in remarks for of_issue in _ONE_ISSUE.findall(remark[0])]
    is_own = repository.lower()  # as GitHub reads names
    others = {_issue_id(other if other.lower() not in ("", is_own) else repository, number) for other, number in named}
    borders = [0, *(border for remark in remarks for border in remark.span()), len(text)]
    return "".join(text[start:stop] for start, stop in zip(borders[::2], borders[1::2], strict=True)), others


def _values(issue: Mapping[str, str], field: str, name: str) -> list[str]:
    """Return a value of the objects in a field, which holds one or a list of them; none of others, such as a count."""
    try:
        value = json.loads(issue.get(field, "null"))
    except (ValueError, RecursionError):
        return []
    objects = value if isinstance(value, list) else [value]
    return [str(item[name]) for item in objects if isinstance(item, dict) and item.get(name) is not None]
