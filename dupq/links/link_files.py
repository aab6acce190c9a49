"""Reading what is known of pairs: the links table as pairs of keys, and files of two ids a line, labelled or not."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.archive import link_files
from dupq.errors import DupqError
from dupq.tables import KEY_PAIRS, LINKS
from dupq.text.keys import Sites, parse_id


def known_duplicates(links: str, sites: Sites) -> np.ndarray:
    """The links of type duplicate between two questions of one site (int64, shape (m, 2), left < right).

    Sorted, each pair once; a question linked to itself, and a site that the run lacks, are left out. Links are
    far fewer than questions, so that any task may hold them all.
    """
    found = [np.zeros((0, 2), np.int64)]
    for uri, site in link_files(links):
        if site not in sites.names:
            continue
        table = storage.read_table(uri, LINKS, ["question_id", "related_id", "link_type"])
        table = table.filter(pc.equal(table["link_type"], "duplicate"))
        ends = [sites.pack(site, table[column].to_numpy(), uri) for column in ("question_id", "related_id")]
        found.append(np.sort(np.stack(ends, axis=1), axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def links_table(links: str | None, site_names: list[str], _: int = 0) -> pa.Table:
    """Return `known_duplicates` (KEY_PAIRS), none without `links`. Memory: some 60 bytes each."""
    found = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, Sites(site_names))
    return pa.table([*found.T], schema=KEY_PAIRS)


def link_targets(links: str, sites: Sites) -> np.ndarray:
    """The question (int64 key) that each duplicate link names as the original, a row a link."""
    found = [np.zeros(0, np.int64)]
    for uri, site in link_files(links):
        if site in sites.names:
            table = storage.read_table(uri, LINKS, ["related_id", "link_type"])
            table = table.filter(pc.equal(table["link_type"], "duplicate"))
            found.append(sites.pack(site, table["related_id"].to_numpy(), uri))
    return np.concatenate(found)


_LABELS = {"1": True, "0": False}


def read_pairs(content: bytes, sites: Sites, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The duplicates and the others (int64, shape (m, 2), left < right, sorted, each pair once) of `read_lines`."""
    pairs, labels = read_lines(content, sites, place)
    return np.unique(pairs[labels], axis=0), np.unique(pairs[~labels], axis=0)


def check_pairs(uri: str, sites: Sites) -> None:
    """Raise DupqError as `read_lines` does for the file `uri`, and if it has no pairs."""
    _, labels = read_lines(storage.read_bytes(uri), sites, uri)
    if not len(labels):
        raise DupqError(f"{uri}: no pairs in it; lines of two questions and 1 or 0 expected, with tabs between")


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
