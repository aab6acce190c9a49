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
    lines = text.removeprefix("\ufeff").split("\n")
    header = [name.strip() for name in lines[0].split("\t")]
    columns = _places_of_columns(header, f"{place}, line 1")
    found = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        values = line.rstrip("\r").split("\t")
        where = f"{place}, line {number}"
        if len(values) != len(header):
            raise DupqError(f"{where}: {len(values)} columns; {len(header)} expected, as in line 1")
        verdict = _verdict([values[column].strip() for column in columns], where)
        if verdict is not None:
            found.append(verdict)
    return found


def _places_of_columns(header: list[str], where: str) -> list[int]:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise DupqError(f"{where}: no column '{missing[0]}'; a heading of {', '.join(COLUMNS)} expected, tabs between")
    repeated = [name for name in COLUMNS if header.count(name) > 1]
    if repeated:
        raise DupqError(f"{where}: two columns '{repeated[0]}'; one expected")
    return [header.index(name) for name in COLUMNS]


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
