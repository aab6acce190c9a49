"""Reading the planted pairs of a made archive: a tab-separated file of site, question_id, related_id and kind."""

import io
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import ID_BITS, Sites, parse_id

_COLUMNS = ("site", "question_id", "related_id", "kind")


class PlantedPair(NamedTuple):
    """A line of the file: the later question, its original, and how it was made of that."""

    site: str
    question_id: int
    related_id: int
    kind: str


def check_truth(uri: str) -> None:
    """Raise DupqError as `read_truth` does."""
    for _ in read_truth(uri):
        pass


def read_truth(uri: str) -> Iterator[tuple[int, PlantedPair]]:
    """The pairs of a file with the numbers of their lines; the first line names the columns, in any order.

    Raises DupqError that names the line that is wrong, and for a file without pairs. Memory: the file's bytes.
    """
    if storage.kind(uri) != "file":
        raise DupqError(f"{uri}: no such file")
    lines = io.TextIOWrapper(io.BytesIO(storage.read_bytes(uri)), "utf-8-sig", newline="\n")
    try:
        header = next(lines, "").rstrip("\r\n").split("\t")
        if any(header.count(name) != 1 for name in _COLUMNS):
            raise DupqError(f"{uri}, line 1: a heading of {', '.join(_COLUMNS)} expected, with tabs between")
        places, is_empty = [header.index(name) for name in _COLUMNS], True
        for number, line in enumerate(lines, 2):
            values = line.removesuffix("\n").rstrip("\r").split("\t")
            if not line.strip():
                continue
            if len(values) != len(header):
                raise DupqError(f"{uri}, line {number}: {len(values)} columns; {len(header)} expected, as in line 1")
            site, *ids, kind = (values[place] for place in places)
            left, right = (parse_id(text, f"{uri}, line {number}") for text in ids)
            is_empty = False
            yield number, PlantedPair(site, left, right, kind)
    except UnicodeDecodeError as error:
        raise DupqError(f"{uri}: not a text in UTF-8 ({error})") from error
    if is_empty:
        raise DupqError(f"{uri}: no planted pairs in it")


def planted_keys(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """The planted pairs of a file by their kind: keys (int64, shape (m, 2)), the later question first.

    Raises DupqError as `read_truth` does, and for a site that `sites` lacks. Memory: the file's bytes, and 16 a pair.
    """
    numbers = {site: number << ID_BITS for number, site in enumerate(sites.names)}
    rows: dict[str, array[int]] = {}
    for line, (site, *ids, kind) in read_truth(uri):
        if site not in numbers:
            raise DupqError(f"{uri}, line {line}: site '{site[:50]}' is not among those of the questions")
        rows.setdefault(kind, array("q")).extend(numbers[site] | number for number in ids)
    return {kind: np.array(keys, np.int64).reshape(-1, 2) for kind, keys in rows.items()}
