"""Tab-separated files of what is known about pairs: verdicts of people, and the planted pairs of a made archive.

A file is written with empty verdicts, which people fill in, often in a spreadsheet, and is read again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import regex

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import ID_BITS, Sites, parse_id, tabbed_lines

_COLUMNS = ("site", "question_id", "related_id", "kind")
# Texts that a spreadsheet would run as a formula, also after blanks and invisible characters. They get an apostrophe in
# front, as OWASP recommends ("CSV Injection"). So do texts that have one already: removing one restores every text.
FORMULA = r"^'*[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]"
_FORMULA_OR_QUOTED = regex.compile(rf"^'*\"|{FORMULA}")  # from an opening quote on, a spreadsheet reads on past tabs
UNJUDGED, UNSURE, DIFFERENT, SAME = -2, -1, 0, 1  # verdicts in arrays (int8)
VERDICTS = {"same": SAME, "different": DIFFERENT, "unsure": UNSURE}  # in files
VERDICTS_FILE = "verdicts.tsv"  # in a folder of runs, what people judged; in a run, all verdicts that it knew
COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "verdict")


def read_truth(uri: str) -> list[tuple[str, tuple[str, int, int, str]]]:
    """Return the location of each line and its pair: site, the later question, its original, and how it was made.

    The first line names the columns, in any order. Raises DupqError naming a line that is wrong, and for a file without
    pairs. Memory: some 300 bytes per pair.
    """
    if storage.kind(uri) != "file":
        raise DupqError(f"{uri}: no such file")
    pairs = []
    for where, (site, *ids, kind) in _rows(storage.read_bytes(uri), _COLUMNS, uri):
        left, right = (parse_id(text, where) for text in ids)
        pairs.append((where, (site, left, right, kind)))
    if not pairs:
        raise DupqError(f"{uri}: no planted pairs in it")
    return pairs


def _rows(content: bytes | str, columns: Sequence[str], source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, for messages, and the fields in `columns` of each line that is not blank.

    The first line names the columns, in any order; others are ignored. Raises DupqError naming the wrong line.
    """
    lines = tabbed_lines(content, source)
    where, header = next(lines, (f"{source}, line 1", []))
    for name in columns:
        if header.count(name) != 1:
            wrong = f"two columns '{name}'" if name in header else f"no column '{name}'"
            raise DupqError(f"{where}: {wrong}; a heading of {', '.join(columns)} expected, tabs between")
    for where, values in lines:
        if len(values) != len(header):
            raise DupqError(f"{where}: {len(values)} columns; {len(header)} expected, as in line 1")
        yield where, [values[header.index(name)] for name in columns]


def planted_keys(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """Return the planted pairs of a file by kind: keys (int64, shape (m, 2)), the later question first.

    Raises DupqError as `read_truth` does, and for a site that `sites` lacks.
    """
    numbers = {site: number << ID_BITS for number, site in enumerate(sites.names)}
    pairs = defaultdict[str, list[tuple[int, int]]](list)
    for where, (site, left, right, kind) in read_truth(uri):
        if site not in numbers:
            raise DupqError(f"{where}: site '{site[:50]}' is not among those of the questions")
        pairs[kind].append((numbers[site] | left, numbers[site] | right))
    return {kind: np.array(keys, np.int64) for kind, keys in pairs.items()}


class Verdict(NamedTuple):
    """A verdict on a pair of questions, the smaller `(site, question_id)` on the left."""

    site_left: str
    question_id_left: int
    site_right: str
    question_id_right: int
    verdict: str  # same, different or unsure; empty before it is judged


def last_verdicts(uris: Iterable[str]) -> tuple[list[Verdict], int]:
    """Return the last verdict on each pair, in the order of the files, sorted; and how many lines a later contradicts.

    Raises DupqError for a file that is not readable.
    """
    last: dict[tuple[object, ...], Verdict] = {}
    contradicted = 0
    for uri in uris:
        for verdict in parse_verdicts(storage.read_bytes(uri), uri):
            contradicted += last.get(verdict[:4], verdict) != verdict
            last[verdict[:4]] = verdict
    return sorted(last.values()), contradicted


def parse_verdicts(content: bytes | str, source: str) -> list[Verdict]:
    """Return the verdicts of a tab-separated file in the order of its lines, without lines that are not judged yet.

    The first line names the columns: those of `COLUMNS` in any order; others are ignored. Either question of a pair may
    be on the left. Raises DupqError naming `source` and the line.
    """
    verdicts = []
    for where, (*questions, word) in _rows(content, COLUMNS, source):
        ends = []
        for site, text in (questions[:2], questions[2:]):
            if not site:
                raise DupqError(f"{where}: a question without a site")
            ends.append((site, parse_id(text, where)))
        if ends[0] == ends[1]:
            raise DupqError(f"{where}: question '{questions[1]}' of {questions[0][:50]} is paired with itself")
        verdict = word.lower()  # spreadsheets may write a capital
        if verdict and verdict not in VERDICTS:
            raise DupqError(f"{where}: verdict '{verdict[:50]}'; same, different or unsure expected")
        if verdict:
            verdicts.append(Verdict(*min(ends), *max(ends), verdict))
    return verdicts


def format_verdicts(verdicts: Iterable[Verdict], more: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return a file that `parse_verdicts` reads, with further columns `more` of one string per verdict.

    Tabs and line ends in these strings become spaces. They come from users, so one that a spreadsheet would take for a
    formula, or that begins with a quote, gets an apostrophe.
    """
    more = more or {}
    lines = ["\t".join([*COLUMNS, *more])]
    for verdict, *others in zip(verdicts, *more.values(), strict=True):
        lines.append("\t".join([*map(str, verdict), *map(_plain, others)]))
    return "\n".join(lines) + "\n"


def add_verdict(uri: str, verdict: Verdict, more: Mapping[str, str]) -> None:
    """Add a line to a file of verdicts, which is created with the columns `more`. The file is replaced as a whole."""
    text = storage.read_bytes(uri).decode() if storage.exists(uri) else format_verdicts([], dict.fromkeys(more, ()))
    values = verdict._asdict() | {name: _plain(value) for name, value in more.items()}
    header = text.removeprefix("\ufeff").split("\n")[0].split("\t")
    line = "\t".join(str(values.get(name.strip(), "")) for name in header)
    storage.write_bytes(uri, (text.rstrip("\r\n") + f"\n{line}\n").encode())


def _plain(text: str) -> str:
    joined = " ".join(text.split())
    return f"'{joined}" if _FORMULA_OR_QUOTED.match(joined) else joined
