"""What an export wrote."""

from typing import NamedTuple


class Written(NamedTuple):
    """A file, or the files of a folder; `note` says what a reader of them should know."""

    uri: str
    rows: int
    note: str = ""
