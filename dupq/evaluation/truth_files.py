"""Reading the planted pairs of a made archive: a tab-separated file of site, question_id, related_id and kind."""

from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import Sites, parse_id

_COLUMNS = ("site", "question_id", "related_id", "kind")


class PlantedPair(NamedTuple):
    """A line of the file: the later question, its original, and how it was made of that."""

    site: str
    question_id: int
    related_id: int
    kind: str


def read_truth(uri: str) -> list[PlantedPair]:
    """The pairs of a file, in the order of its lines; its first line names the columns, in any order.

    Raises DupqError that names the line that is wrong, and for a file without pairs.
    """
    if storage.kind(uri) != "file":
        raise DupqError(f"{uri}: no such file")
    try:
        lines = storage.read_bytes(uri).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DupqError(f"{uri}: not a text in UTF-8 ({error})") from error
    header = lines[0].rstrip("\r").split("\t")
    if any(header.count(name) != 1 for name in _COLUMNS):
        raise DupqError(f"{uri}, line 1: a heading of {', '.join(_COLUMNS)} expected, with tabs between")
    places = [header.index(name) for name in _COLUMNS]
    pairs = []
    for number, line in enumerate(lines[1:], 2):
        values = line.rstrip("\r").split("\t")
        if not line.strip():
            continue
        if len(values) != len(header):
            raise DupqError(f"{uri}, line {number}: {len(values)} columns; {len(header)} expected, as in line 1")
        site, *ids, kind = (values[place] for place in places)
        left, right = (parse_id(text, f"{uri}, line {number}") for text in ids)
        pairs.append(PlantedPair(site, left, right, kind))
    if not pairs:
        raise DupqError(f"{uri}: no planted pairs in it")
    return pairs


def planted_keys(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """The planted pairs of a file by their kind: keys (int64, shape (m, 2)), the later question first.

    Raises DupqError as `read_truth` does, and for a site that `sites` lacks.
    """
    rows: dict[str, list[list[int]]] = {}
    for pair in read_truth(uri):
        if pair.site not in sites.names:
            raise DupqError(f"{uri}: site '{pair.site[:50]}' is not among those of the questions")
        ids = np.array([pair.question_id, pair.related_id])
        rows.setdefault(pair.kind, []).append(sites.pack(pair.site, ids, uri).tolist())
    return {kind: np.array(keys) for kind, keys in rows.items()}
