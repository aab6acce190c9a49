"""Pairs of questions from a file: two ids a line, and whether they are duplicates."""

from collections.abc import Iterator

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import Sites, parse_id

_LABELS = {"1": True, "0": False}


def read_pairs(content: bytes, sites: Sites, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The duplicates and the others (int64, shape (m, 2), left < right, sorted, each pair once) of `read_lines`."""
    pairs, labels = read_lines(content, sites, place)
    return np.unique(pairs[labels], axis=0), np.unique(pairs[~labels], axis=0)


def check_pairs(uri: str, sites: Sites) -> bool:
    """Whether any pair of the file `uri` is labelled 0; raises DupqError as `read_lines` does, and for no pairs."""
    _, labels = read_lines(storage.read_bytes(uri), sites, uri)
    if not len(labels):
        raise DupqError(f"{uri}: no pairs in it; lines of two questions and 1 or 0 expected, with tabs between")
    return not labels.all()


def read_lines(content: bytes, sites: Sites, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (int64, shape (m, 2), left < right) of tab-separated lines, and which are duplicates (bool, (m,)).

    A line is two questions and 1 (duplicates, also if it is missing) or 0. A question is
    `site/question_id`, or with a single site its id alone. A first line of names is a heading. Raises DupqError
    naming `place` and the line.
    """
    pairs, labels = [], []
    for where, fields in _lines(content, place):
        if len(fields) not in (2, 3):
            raise DupqError(f"{where}: {len(fields)} columns; two questions and 1 or 0 expected, with tabs between")
        label = fields[2] if len(fields) == 3 else "1"
        if label not in _LABELS:
            raise DupqError(f"{where}: label '{label[:50]}'; 1 (duplicates) or 0 expected")
        left, right = (_key(field, sites, where) for field in fields[:2])
        if left == right:
            raise DupqError(f"{where}: question '{fields[0][:50]}' is paired with itself")
        pairs.append((min(left, right), max(left, right)))
        labels.append(_LABELS[label])
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(labels, bool)


def _lines(content: bytes, place: str) -> Iterator[tuple[str, list[str]]]:
    """The location (for messages) and the fields of every line that is not blank, without the heading."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DupqError(f"{place}: not a text in UTF-8 ({error})") from error
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split("\t")]
        is_heading = number == 1 and all(field.isidentifier() for field in fields)  # no id is: those begin with a digit
        if line.strip() and not is_heading:
            yield f"{place}, line {number}", fields


def _key(text: str, sites: Sites, where: str) -> int:
    site, slash, question_id = text.rpartition("/")
    if not slash and len(sites.names) > 1:
        raise DupqError(f"{where}: question '{text[:50]}' has no site, and there are {len(sites.names)}")
    site = site if slash else sites.names[0]
    if site not in sites.names:
        raise DupqError(f"{where}: site '{site[:50]}' is not among those of the questions")
    return int(sites.pack(site, np.array([parse_id(question_id, where)]), where)[0])
