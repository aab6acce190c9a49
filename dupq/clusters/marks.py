"""What marks a question beside its words: what it asks, its numbers and formulas, its asker, the questions it cites.

A mark is a kind and a hash of BUCKETS values, so that all marks of a question are one sorted list of numbers, and no
name is kept: an asker is a hash of the user's number on the site.
"""

import functools
import html
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import regex
import xxhash

from dupq.near_duplicates.asking import Asking, Title, signs_of
from dupq.text.number_words import numbers_in
from dupq.text.terms import BUCKETS, TERM_BITS, Terms

ASKING, NUMBER, FORMULA, ASKER, CITED, SELF = range(6)  # kinds; a question has exactly one mark SELF

# a dollar sign before a space, or behind one, is money or a shell's
_FORMULA = regex.compile(r"(?<!\\)(?:\$\$(.+?)\$\$|\$(?![\s$])([^$]{0,300}?[^$\s\\])\$)", regex.DOTALL)
_CITED = regex.compile(
    r"(?:(?:https?:)?//(?:www\.)?([^/:\"'<>\s]+)(?::[0-9]+)?|[\"'])/(?:questions|q)/([0-9]{1,15})(?![0-9])"
)
_OLD_META = regex.compile(r"meta\.([^.]+)(?=\.stackexchange\.com$)")  # cs.meta. since 2018


def marks_of(
    questions: pa.Table | pa.RecordBatch, titles: pa.ChunkedArray, sites: Sequence[str], language: str
) -> Terms:
    """The marks of questions (rows of QUESTIONS with `question_id`, `title`, `body_html`, `owner`).

    `titles` are the tokens of their titles, `sites` the sites of their rows. Each mark counts once.
    """
    columns = (questions[name].to_pylist() for name in ("question_id", "title", "body_html", "owner"))
    signs = signs_of(questions["title"]).to_pylist()
    asking = functools.cache(Asking(language, lambda word: False).said)
    found = []
    rows = zip(titles.to_pylist(), signs, sites, *columns, strict=True)
    for words, sign, site, number, title, body, owner in rows:
        marks = {_mark(SELF, f"{site}/{number}"), *(_mark(NUMBER, each) for each in numbers_in(words))}
        if said := asking(Title(words, sign)):
            marks.add(_mark(ASKING, said))
        marks.update(_mark(FORMULA, each) for each in formulas_in(title) | formulas_in(html.unescape(body)))
        marks.update(_mark(CITED, f"{site}/{each}") for each in cited_in(body, site))
        if owner and owner.isdecimal():  # else the name of a user who is gone
            marks.add(_mark(ASKER, f"{site}/{owner}"))
        found.append(sorted(marks))
    offsets = np.cumsum([0, *map(len, found)], dtype=np.int64)
    ids = np.array([mark for marks in found for mark in marks], np.int32)
    return Terms(offsets, ids, np.ones(len(ids), np.uint8))


def _mark(kind: int, text: str) -> int:
    return kind << TERM_BITS | xxhash.xxh3_64_intdigest(text.encode()) & (BUCKETS - 1)


def formulas_in(text: str) -> set[str]:
    """What stands between dollar signs, without white space."""
    return {"".join("".join(formula).split()) for formula in _FORMULA.findall(text)} if "$" in text else set()


def cited_in(body: str, site: str) -> set[str]:
    """The ids of the questions of `site` that a body's HTML links to."""
    found = ((_OLD_META.sub(r"\1.meta", host.lower()), number) for host, number in _CITED.findall(body))
    return {number for host, number in found if host in ("", site)}
