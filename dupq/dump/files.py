"""The sites of a dump, and the files that hold their tables."""

from dataclasses import dataclass
from typing import Literal

from dupq.errors import DupqError

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


@dataclass(frozen=True)
class Member:
    """One table in one file: a file of its own, or the file `name` inside the .7z or .zip archive at `uri`."""

    uri: str
    name: str | None = None

    @property
    def source(self) -> str:
        """What rejects and errors call it."""
        return self.uri if self.name is None else f"{self.uri}/{self.name}"

    @property
    def form(self) -> Form:
        """How its rows are written. Raises DupqError for a file that nothing here can read."""
        plain = without_compression(self.source).lower()
        for suffix, form in _FORMS.items():
            if plain.endswith(suffix):
                return form
        raise DupqError(f"{self.source}: neither {', '.join(_FORMS)}")

    @property
    def compression(self) -> str | None:
        """The codec of a file that is compressed by itself; None for plain files and those in archives."""
        return None if self.name is not None else _compression(self.uri)

    @property
    def is_packed(self) -> bool:
        """Whether it can only be read from its beginning, for it has to be unpacked."""
        return self.name is not None or self.compression is not None


@dataclass(frozen=True)
class DumpSite:
    """A site and its files, each sorted by source; several only for tables that come in part files."""

    site: str
    posts: tuple[Member, ...]
    links: tuple[Member, ...] = ()
    is_table: bool = False  # posts are questions from elsewhere, with columns of their own


def is_table(name: str) -> bool:
    """Whether a file is a table by its name, which may say that it is compressed."""
    return without_compression(name).lower().endswith(TABLES)


def without_compression(name: str) -> str:
    """`name` without the suffix that says how it is compressed, if it has one."""
    suffix = _compression_suffix(name)
    return name if suffix is None else name[: -len(suffix)]


def _compression(name: str) -> str | None:
    suffix = _compression_suffix(name)
    return None if suffix is None else COMPRESSIONS[suffix]


def _compression_suffix(name: str) -> str | None:
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), None)
