"""The marks of a question next to its words: what it asks, its numbers and formulas, its asker, what it cites.

A mark is a kind and a hash of HASH_BITS, so the marks of a question are one sorted list of numbers. No names are
stored: an asker is a hash of the user's number on the site.
"""

import html

import numpy as np
import pyarrow as pa
import regex
import xxhash

from dupq.text.languages import numbers_in
from dupq.text.questions import Terms, each_once
from dupq.text.title_intent import TitleComparer
from dupq.text.tokens import without_notes
from dupq.text.written import title_of

HASH_BITS = 22
# a question has one mark SELF
ASKING, UNDATED, NEGATION, BAG, UNSIGNED, SPELLING, TEMPLATE, NUMBER, FORMULA, ASKER, CITED = range(11)
CHOICE, CHOSEN, SELF = range(11, 14)
KINDS = SELF + 1
# a dollar sign before a space, or behind one, is money or a shell prompt
_FORMULA = regex.compile(r"(?<!\\)(?:\$\$(.+?)\$\$|\$(?![\s$])([^$]{0,300}?[^$\s\\])\$)", regex.DOTALL)
_DOLLAR = regex.compile(r"\$|&(?:#0*36|#[xX]0*24|dollar)")
_CITED = regex.compile(
    r"(?:(?:https?:)?//(?:www\.)?([^/:\"'<>\s]+)(?::[0-9]+)?|[\"'])/(?:questions|q)/([0-9]{1,15})(?![0-9])"
)
_OLD_META = regex.compile(r"meta\.([^.]+)(?=\.stackexchange\.com$)")  # meta.cs became cs.meta in 2018


def marks_of(
    questions: pa.Table | pa.RecordBatch, titles: pa.ChunkedArray, written: pa.Array, comparer: TitleComparer
) -> Terms:
    """Return the marks, each once, of questions (rows with `site`, `question_id`, `title`, `body_html`), but for their
    askers. `titles` are the tokens of their titles, `written` the `written_titles`. `comparer` remembers words.
    """
    columns = (questions[name].to_pylist() for name in ("site", "question_id", "title", "body_html"))
    kinds = (
        (ASKING, comparer.question_of),
        (UNDATED, comparer.undated),
        (BAG, comparer.bag),
        (UNSIGNED, comparer.unsigned),
    )
    marks_of_rows = []
    rows = zip(map(title_of, written.to_pylist(), titles.to_pylist()), *columns, strict=True)
    for asked, site, number, title, body in rows:
        marks = {_mark(SELF, f"{site}/{number}"), *(_mark(NUMBER, each) for each in numbers_in(asked.words))}
        marks.update(_mark(kind, request) for kind, read in kinds if (request := read(asked)))
        marks.update([_mark(NEGATION, "")] if comparer.negates(asked) else ())
        marks.update(_mark(TEMPLATE, each) for each in comparer.templates(asked))
        marks.update(_mark(SPELLING, each) for each in comparer.spellings(asked))
        for choice, chosen in comparer.choices(asked).items():
            marks.update((_mark(CHOICE, choice), _mark(CHOSEN, f"{choice}: {chosen}")))
        formulas = formulas_in(html.unescape(body)) if _DOLLAR.search(body) else set()  # few have any, and this is slow
        marks.update(_mark(FORMULA, each) for each in formulas | formulas_in(title))
        marks.update(_mark(CITED, f"{site}/{each}") for each in cited_in(body, site))
        marks_of_rows.append(sorted(marks))
    return each_once(pa.chunked_array([marks_of_rows], pa.list_(pa.int32())))


def askers_of(owners: pa.Array, sites: pa.Array) -> pa.Array:
    """Return the marks (int32) of askers; null for the name of a user who is gone."""
    rows = zip(owners.to_pylist(), sites.to_pylist(), strict=True)
    marks = (_mark(ASKER, f"{site}/{owner}") if owner and owner.isdecimal() else None for owner, site in rows)
    return pa.array(list(marks), pa.int32())


def with_askers(marks: Terms, askers: pa.Array) -> Terms:
    """Return the marks of questions with those of their askers."""
    is_known = askers.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.diff(marks.offsets)
    owners = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), np.flatnonzero(is_known)])
    ids = np.concatenate([marks.ids, askers.drop_null().to_numpy()])
    offsets = np.concatenate([[0], np.cumsum(lengths + is_known)])
    return Terms(offsets, ids[np.lexsort((ids, owners))], np.ones(len(ids), np.uint8))


def _mark(kind: int, text: str) -> int:
    return kind << HASH_BITS | xxhash.xxh3_64_intdigest(text.encode()) & ((1 << HASH_BITS) - 1)


def formulas_in(text: str) -> set[str]:
    """Return what is between dollar signs, without white space."""
    return {"".join("".join(formula).split()) for formula in _FORMULA.findall(text)} if "$" in text else set()


def cited_in(body: str, site: str) -> set[str]:
    """Return the ids of the questions of `site` that a body's HTML links to, not counting links in notes.

    Who cites a question mostly asks something else; a "Possible Duplicate" note says that this is the same.
    """
    linked = _linked_in(body, site)
    return linked & _linked_in(without_notes(body), site) if linked else linked  # few link to any, and parsing is slow


def _linked_in(body: str, site: str) -> set[str]:
    links = ((_OLD_META.sub(r"\1.meta", host.lower()), number) for host, number in _CITED.findall(body))
    return {number for host, number in links if host in ("", site)}
