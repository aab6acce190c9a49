"""What people say of pairs of questions: their verdicts, in tab-separated files, and the planted pairs of a made
archive.

A file is written with its verdicts empty, filled in by people, often with a spreadsheet, and read again.
"""

import io
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import ID_BITS, Sites, parse_id

_COLUMNS = ("site", "question_id", "related_id", "kind")


def check_truth(uri: str) -> None:
    """Raise DupqError as `read_truth` does."""
    for _ in read_truth(uri):
        pass


def read_truth(uri: str) -> Iterator[tuple[str, tuple[str, int, int, str]]]:
    """The pairs of a file with the locations of their lines; the first line names the columns, in any order.

    A pair is its site, the later question, its original, and how it was made of that. Raises DupqError that names the
    line that is wrong, and for a file without pairs. Memory: the file's bytes.
    """
    if storage.kind(uri) != "file":
        raise DupqError(f"{uri}: no such file")
    lines, is_empty = io.TextIOWrapper(io.BytesIO(storage.read_bytes(uri)), "utf-8-sig", newline="\n"), True
    for where, (site, *ids, kind) in _rows(lines, _COLUMNS, uri):
        left, right = (parse_id(text, where) for text in ids)
        is_empty = False
        yield where, (site, left, right, kind)
    if is_empty:
        raise DupqError(f"{uri}: no planted pairs in it")


def _rows(lines: Iterator[str], columns: Sequence[str], place: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, for messages, and the fields in `columns` of each line that is not blank.

    The first line names the columns, in any order; others are ignored. Raises DupqError that names the wrong line.
    """
    try:
        header = [name.strip() for name in next(lines, "").split("\t")]
        for name in columns:
            if header.count(name) != 1:
                wrong = f"two columns '{name}'" if name in header else f"no column '{name}'"
                heading = f"a heading of {', '.join(columns)} expected, tabs between"
                raise DupqError(f"{place}, line 1: {wrong}; {heading}")
        indices = [header.index(name) for name in columns]
        for number, line in enumerate(lines, 2):
            if not line.strip():
                continue
            values, where = line.split("\t"), f"{place}, line {number}"
            if len(values) != len(header):
                raise DupqError(f"{where}: {len(values)} columns; {len(header)} expected, as in line 1")
            yield where, [values[index].strip() for index in indices]
    except UnicodeDecodeError as error:
        raise DupqError(f"{place}: not a text in UTF-8 ({error})") from error


def planted_keys(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """The planted pairs of a file by their kind: keys (int64, shape (m, 2)), the later question first.

    Raises DupqError as `read_truth` does, and for a site that `sites` lacks. Memory: the file's bytes, and 16 a pair.
    """
    numbers = {site: number << ID_BITS for number, site in enumerate(sites.names)}
    rows: dict[str, array[int]] = {}
    for where, (site, left, right, kind) in read_truth(uri):
        if site not in numbers:
            raise DupqError(f"{where}: site '{site[:50]}' is not among those of the questions")
        rows.setdefault(kind, array("q")).extend(numbers[site] | number for number in (left, right))
    return {kind: np.array(keys, np.int64).reshape(-1, 2) for kind, keys in rows.items()}


UNJUDGED, UNSURE, DIFFERENT, SAME = -2, -1, 0, 1  # verdicts in arrays (int8)
VERDICTS = {"same": SAME, "different": DIFFERENT, "unsure": UNSURE}  # and in files
VERDICTS_FILE = "verdicts.tsv"  # in a folder of runs what people judged; in a run all verdicts that it knew of
COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "verdict")


class Verdict(NamedTuple):
    """A verdict on a pair of questions, the smaller `(site, question_id)` on the left."""

    site_left: str
    question_id_left: int
    site_right: str
    question_id_right: int
    verdict: str  # same, different or unsure; empty in a file that is yet to be judged


def last_verdicts(uris: Iterable[str]) -> tuple[list[Verdict], int]:
    """The last verdict on each pair, in files one after the other, sorted; and how many lines a later one contradicts.

    Raises DupqError for a file that is not readable.
    """
    found: dict[tuple[object, ...], Verdict] = {}
    contradicted = 0
    for uri in uris:
        try:
            text = storage.read_bytes(uri).decode()
        except UnicodeDecodeError as error:
            raise DupqError(f"{uri}: not UTF-8 ({error})") from error
        for verdict in parse_verdicts(text, uri):
            contradicted += found.get(verdict[:4], verdict) != verdict
            found[verdict[:4]] = verdict
    return sorted(found.values()), contradicted


def parse_verdicts(text: str, place: str) -> list[Verdict]:
    """The verdicts of a tab-separated file, in the order of the lines; of a pair that comes again the last one counts.

    The first line names the columns: those of `COLUMNS` in any order, others are ignored. Either question of a pair
    may be on the left. A line whose verdict is empty is not judged yet and is left out. Raises DupqError that names
    `place` and the line.
    """
    rows = _rows(io.StringIO(text.removeprefix("\ufeff"), newline="\n"), COLUMNS, place)
    found = (_verdict(values, where) for where, values in rows)
    return [verdict for verdict in found if verdict is not None]


def _verdict(values: list[str], where: str) -> Verdict | None:
    """The verdict of a line, None if it is empty."""
    site_left, id_left, site_right, id_right, verdict = values
    left, right = (_question(site, text, where) for site, text in ((site_left, id_left), (site_right, id_right)))
    if left == right:
        raise DupqError(f"{where}: question '{id_left}' of {site_left[:50]} is paired with itself")
    if not verdict:
        return None
    if verdict not in VERDICTS:
        raise DupqError(f"{where}: verdict '{verdict[:50]}'; same, different or unsure expected")
    return Verdict(*min(left, right), *max(left, right), verdict)


def _question(site: str, text: str, where: str) -> tuple[str, int]:
    if not site:
        raise DupqError(f"{where}: a question without a site")
    return site, parse_id(text, where)


def format_verdicts(verdicts: Iterable[Verdict], more: Mapping[str, Sequence[str]] | None = None) -> str:
    """The text of a file that `parse_verdicts` reads; `more` are further columns, one string a verdict in each.

    Tabs and ends of lines within these strings become spaces. They come from users, so one that a spreadsheet would
    take for a formula begins with an apostrophe.
    """
    more = more or {}
    lines = ["\t".join([*COLUMNS, *more])]
    for verdict, *others in zip(verdicts, *more.values(), strict=True):
        lines.append("\t".join([*map(str, verdict), *map(_plain, others)]))
    return "\n".join(lines) + "\n"


def add_verdict(uri: str, verdict: Verdict, more: Mapping[str, str]) -> None:
    """Add a line to a file of verdicts, or begin it with the columns `more`; whatever happens, it is whole."""
    text = storage.read_bytes(uri).decode() if storage.exists(uri) else format_verdicts([], dict.fromkeys(more, ()))
    values = verdict._asdict() | {name: _plain(value) for name, value in more.items()}
    header = text.removeprefix("\ufeff").split("\n")[0].split("\t")
    line = "\t".join(str(values.get(name.strip(), "")) for name in header)
    storage.write_bytes(uri, (text.rstrip("\r\n") + f"\n{line}\n").encode())


def _plain(text: str) -> str:
    joined = " ".join(text.split())
    return f"'{joined}" if joined.startswith(("=", "+", "-", "@")) else joined
