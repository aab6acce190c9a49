"""Files of what is known about pairs: verdicts of people, and the planted pairs of a made archive.

A file is written with empty verdicts and tabs, and is read again after people filled it in. A spreadsheet may save it
with commas or semicolons, sort it, and show long ids as 1.5E+14. So each row has a token that says both ids (`token`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import regex

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import ID_BITS, Sites, parse_id, sheet_lines

_COLUMNS = ("site", "question_id", "related_id", "kind")
# Texts that a spreadsheet would run as a formula, also after blanks and invisible characters. They get an apostrophe in
# front, as OWASP recommends ("CSV Injection"). So do texts that have one already: removing one restores every text.
FORMULA = r"^'*[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]"
_FORMULA_OR_QUOTED = regex.compile(rf"^'*\"|{FORMULA}")  # from an opening quote on, a spreadsheet reads on past tabs
UNJUDGED, UNSURE, DIFFERENT, SAME = -2, -1, 0, 1  # verdicts in arrays (int8)
VERDICTS = {"same": SAME, "different": DIFFERENT, "unsure": UNSURE}  # in files
UNDONE = "undone"  # in files: takes back what earlier lines say of the pair, as if nobody had judged it
VERDICTS_FILE = "verdicts.tsv"  # in a folder of runs, what people judged; in a run, all verdicts that it knew
COLUMNS = ("site_left", "question_id_left", "site_right", "question_id_right", "verdict")
OWN_IDS = ("own_id_left", "own_id_right")  # columns of files that are written, as is the next
TOKEN = "pair"  # a column of files that are written; one that is read may lack it
_QUOTED = regex.compile(r'["\t\r\n]')
_TOKEN = regex.compile(r"p([0-9a-z]{1,10})-([0-9a-z]{1,10})")
_ROUNDED = 0.01  # relative: a spreadsheet shows 1.5E+14


def read_truth(uri: str) -> list[tuple[str, tuple[str, int, int, str]]]:
    """Return the location of each line and its pair: site, the later question, its original, and how it was made.

    The first line names the columns, in any order. Raises DupqError naming a line that is wrong, and for a file without
    pairs. Memory: some 300 bytes per pair.
    """
    if storage.kind(uri) != "file":
        raise DupqError(f"{uri}: no such file")
    pairs = []
    for where, (site, *ids, kind) in sheet_rows(storage.read_bytes(uri), _COLUMNS, uri):
        left, right = (parse_id(text, where) for text in ids)
        pairs.append((where, (site, left, right, kind)))
    if not pairs:
        raise DupqError(f"{uri}: no planted pairs in it")
    return pairs


def sheet_rows(
    content: bytes | str, columns: Sequence[str], source: str, optional: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, for messages, and the fields in `columns` of each line that is not blank.

    The column `optional` comes last, "" if it is missing. The first line names the columns, in any order; others are
    ignored. Raises DupqError naming the wrong line.
    """
    lines = sheet_lines(content, source)
    where, header = next(lines, (f"{source}, line 1", []))
    for name in columns:
        if header.count(name) != 1:
            wrong = f"two columns '{name}'" if name in header else f"no column '{name}'"
            raise DupqError(f"{where}: {wrong}; a heading of {', '.join(columns)} expected, tabs between")
    for where, values in lines:
        if len(values) != len(header):
            raise DupqError(f"{where}: {len(values)} columns; {len(header)} expected, as in line 1")
        fields = dict(zip(reversed(header), reversed(values), strict=True))
        yield where, [fields[name] for name in columns] + ([fields.get(optional, "")] if optional else [])


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
    verdict: str  # same, different, unsure or UNDONE; empty before it is judged


def last_verdicts(uris: Iterable[str]) -> tuple[list[Verdict], int]:
    """Return the last verdict on each pair, in the order of the files, sorted; and how many lines a later contradicts.

    Without pairs whose last verdict takes back the others.
    Raises DupqError for a file that is not readable.
    """
    last: dict[tuple[object, ...], Verdict] = {}
    contradicted = 0
    for uri in uris:
        for verdict in parse_verdicts(storage.read_bytes(uri), uri):
            contradicted += last.get(verdict[:4], verdict) != verdict
            last[verdict[:4]] = verdict
    return sorted(verdict for verdict in last.values() if verdict.verdict != UNDONE), contradicted


def parse_verdicts(content: bytes | str, source: str) -> list[Verdict]:
    """Return the verdicts of a file in the order of its lines, without lines that are not judged yet.

    The first line names the columns: all `COLUMNS` in any order, and perhaps TOKEN, which counts before ids;
    others are ignored. Either question of a pair may be on the left. Raises DupqError naming `source` and the line.
    """
    verdicts = []
    for where, (*questions, word, pair) in sheet_rows(content, COLUMNS, source, TOKEN):
        named = _named_by(pair, where) if pair else (None, None)
        ends = []
        for (site, text), number in zip((questions[:2], questions[2:]), named, strict=True):
            if not site:
                raise DupqError(f"{where}: a question without a site")
            ends.append((site, parse_id(text, where) if number is None else _unrounded(text, number, where)))
        if ends[0] == ends[1]:
            raise DupqError(f"{where}: question '{questions[1]}' of {questions[0][:50]} is paired with itself")
        verdict = word.lower()  # spreadsheets may write a capital
        if verdict and verdict not in (*VERDICTS, UNDONE):
            raise DupqError(f"{where}: verdict '{verdict[:50]}'; same, different or unsure expected")
        if verdict:
            verdicts.append(Verdict(*min(ends), *max(ends), verdict))
    return verdicts


def token(left: int, right: int) -> str:
    """Return the token of a pair: its ids in base 36, in a form that no spreadsheet takes for a number or a date."""
    return f"p{np.base_repr(left, 36)}-{np.base_repr(right, 36)}".lower()


def _named_by(pair: str, where: str) -> tuple[int, int]:
    """Return the ids in a token. Raises DupqError that begins with `where` for another text."""
    match = _TOKEN.fullmatch(pair.lower())
    if match is None:
        raise DupqError(f"{where}: {TOKEN} '{pair[:50]}' is not as dupq wrote it; restore it, or leave it empty")
    return int(match[1], 36), int(match[2], 36)


def _unrounded(text: str, number: int, where: str) -> int:
    """Return the id `number` of a token. Raises DupqError if `text` is another id, not just rounded."""
    try:
        is_near = abs(float(text.replace(",", ".")) - number) <= _ROUNDED * number
    except ValueError:
        is_near = True  # such as ###, or with spaces between thousands
    if not is_near:
        raise DupqError(f"{where}: question '{text[:50]}' is not that of its {TOKEN}; empty it to judge another pair")
    return number


def format_verdicts(verdicts: Iterable[Verdict], more: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return a file that `parse_verdicts` reads, with further columns `more` of one string per verdict.

    They come from users. Ids (OWN_IDS) stay as they are, in quotes if they must be. In other strings tabs and line ends
    become spaces, and one that a spreadsheet would take for a formula, or that begins with a quote, gets an apostrophe.
    """
    more = more or {}
    lines = ["\t".join([TOKEN, *COLUMNS, *more])]
    for verdict, *others in zip(verdicts, *more.values(), strict=True):
        pair = token(verdict.question_id_left, verdict.question_id_right)
        lines.append("\t".join([pair, *map(str, verdict), *map(_cell, more, others)]))
    return "\n".join(lines) + "\n"


def add_verdict(uri: str, verdict: Verdict, more: Mapping[str, str]) -> None:
    """Add a line to a file of verdicts, which is created with the columns `more`. The file is replaced as a whole."""
    text = storage.read_bytes(uri).decode() if storage.exists(uri) else format_verdicts([], dict.fromkeys(more, ()))
    pair = token(verdict.question_id_left, verdict.question_id_right)
    values = {TOKEN: pair} | verdict._asdict() | {name: _cell(name, value) for name, value in more.items()}
    header = text.removeprefix("\ufeff").split("\n")[0].split("\t")
    line = "\t".join(str(values.get(name.strip(), "")) for name in header)
    storage.write_bytes(uri, (text.rstrip("\r\n") + f"\n{line}\n").encode())


def _cell(name: str, text: str) -> str:
    if name in OWN_IDS:
        return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
    joined = " ".join(text.split())
    return f"'{joined}" if _FORMULA_OR_QUOTED.match(joined) else joined
