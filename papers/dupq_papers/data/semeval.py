"""Reading the data of SemEval-2016 and 2017 Task 3, subtask B: questions, and the ten that a search engine found each.

The questions are those of the forum Qatar Living (Nakov et al. 2016, section 3; Nakov et al. 2017). Comments are not
read. A candidate is relevant if people said PerfectMatch or Relevant, as in the official scorer.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lxml import etree

from dupq.errors import DupqError
from dupq_papers.data.text_files import read_text

_RELEVANT = {"PerfectMatch": True, "Relevant": True, "Irrelevant": False}
_BINARY = {"1": "Relevant", "0": "Irrelevant"}
Value = TypeVar("Value")
_CSV_COLUMNS = ("question1_id", "question2_id", "question1", "question2", "relevance")


@dataclass(frozen=True)
class Candidate:
    """A question that the search engine found for another."""

    id: str
    subject: str
    body: str
    rank: int  # among all that the search engine found, from 1 on; of the ten that were kept some are far behind
    label: str  # PerfectMatch, Relevant or Irrelevant

    @property
    def is_relevant(self) -> bool:
        """Whether it counts as relevant."""
        return _RELEVANT[self.label]


@dataclass(frozen=True)
class Original:
    """A question and its candidates, in the order of the search engine."""

    id: str
    subject: str
    body: str
    candidates: tuple[Candidate, ...]


class _Row(NamedTuple):
    """One candidate, beside the original that it belongs to."""

    place: str
    original: tuple[str, str, str]  # id, subject, body
    candidate: Candidate


def read_xml(uri: str) -> list[Original]:
    """The originals of an official XML file, plain or packed by xz, in its order.

    Entities are never declared, files and addresses never opened. Raises DupqError naming file and line for what is
    not of the official form: a missing or unknown attribute's value, an original whose text changes between its
    threads, a candidate that comes twice.
    """
    text = read_text(uri)
    if "<!ENTITY" in text:
        raise DupqError(f"{uri}: refused, for the files of SemEval have no ENTITY declaration")
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True
    )
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise DupqError(f"{uri}: not well-formed ({error})") from error
    threads = [(original, thread) for original in root.iter("OrgQuestion") for thread in _all(original, "Thread", uri)]
    return _grouped((_row(original, thread, uri) for original, thread in threads), uri)


def read_csv(uri: str) -> list[Original]:
    """The originals of a CSV file with binary labels, in its order.

    It has a subject and a body in one text, which is the body here, and labels 1 (Relevant) and 0 (Irrelevant); the
    rank is the number that ends a candidate's id. Raises DupqError naming file and line, as `read_xml` does.
    """
    lines = csv.DictReader(io.StringIO(read_text(uri), newline=""), strict=True)
    rows = []
    try:
        for line in lines:
            where = f"{uri}, line {lines.line_num}"
            if None in line or any(line.get(name) is None for name in _CSV_COLUMNS):
                raise DupqError(f"{where}: the columns {', '.join(_CSV_COLUMNS)} expected")
            left, right, one, other, relevance = (line[name] for name in _CSV_COLUMNS)
            rank = rank_of(right.rpartition("_R")[2], where)
            label = meaning_of(relevance, _BINARY, where)
            rows.append(_Row(where, (left, "", one), Candidate(right, "", other, rank, label)))
    except csv.Error as error:
        raise DupqError(f"{uri}, line {lines.line_num}: no CSV ({error})") from error
    return _grouped(rows, uri)


def _row(original: etree._Element, thread: etree._Element, uri: str) -> _Row:
    (candidate,) = _all(thread, "RelQuestion", uri)[:1]
    where = _where(candidate, uri)
    label = _attribute(candidate, "RELQ_RELEVANCE2ORGQ", uri)
    meaning_of(label, _RELEVANT, where)
    return _Row(
        where,
        (_attribute(original, "ORGQ_ID", uri), _text(original, "OrgQSubject", uri), _text(original, "OrgQBody", uri)),
        Candidate(
            _attribute(candidate, "RELQ_ID", uri),
            _text(candidate, "RelQSubject", uri),
            _text(candidate, "RelQBody", uri),
            rank_of(_attribute(candidate, "RELQ_RANKING_ORDER", uri), where),
            label,
        ),
    )


def _grouped(rows: Iterable[_Row], uri: str) -> list[Original]:
    """The originals in order of their first candidate."""
    texts: dict[str, tuple[str, str, str]] = {}
    candidates: dict[str, dict[str, Candidate]] = {}
    for row in rows:
        name = row.original[0]
        if texts.setdefault(name, row.original) != row.original:
            raise DupqError(f"{row.place}: original '{name[:50]}' has another text than above")
        if candidates.setdefault(name, {}).setdefault(row.candidate.id, row.candidate) is not row.candidate:
            raise DupqError(f"{row.place}: candidate '{row.candidate.id[:50]}' comes twice")
    if not texts:
        raise DupqError(f"{uri}: no questions in it")
    return [
        Original(*texts[name], tuple(sorted(found.values(), key=lambda one: (one.rank, one.id))))
        for name, found in candidates.items()
    ]


def _all(element: etree._Element, tag: str, uri: str) -> list[etree._Element]:
    found = element.findall(tag)
    if not found:
        raise DupqError(f"{_where(element, uri)}: <{element.tag}> has no <{tag}>")
    return found


def _text(element: etree._Element, tag: str, uri: str) -> str:
    (found,) = _all(element, tag, uri)[:1]
    if len(found):
        raise DupqError(f"{_where(found, uri)}: <{tag}> holds more than text")
    return (found.text or "").strip()


def _attribute(element: etree._Element, name: str, uri: str) -> str:
    value = element.get(name)
    if value is None:
        raise DupqError(f"{_where(element, uri)}: <{element.tag}> has no {name}")
    return value


def _where(element: etree._Element, uri: str) -> str:
    return f"{uri}, line {element.sourceline}"


def rank_of(text: str, where: str) -> int:
    """A rank as a number; raises DupqError naming `where` for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise DupqError(f"{where}: rank '{text[:50]}'; a whole number expected")
    return int(text)


def meaning_of(label: str, meanings: Mapping[str, Value], where: str) -> Value:
    """What a label means; raises DupqError naming `where` for an unknown one."""
    if label not in meanings:
        raise DupqError(f"{where}: label '{label[:50]}'; {' or '.join(meanings)} expected")
    return meanings[label]
