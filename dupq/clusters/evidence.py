"""The evidence that two questions are duplicates, as features that mean the same for every encoder and archive.

Scores of an encoder have a scale of their own, which changes from training to training. So a score counts relative to
others: to the best scores of other questions, to both questions' other neighbours, and by its rank in both directions.
The other features are the words that the questions share, weighted by how rare they are in this archive. Titles are
also compared with those of both questions' neighbours: where all of them say "How can I …", sharing it means little.
"""

import functools
import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import regex
import xxhash

from dupq.kernel_cache import numba as nb
from dupq.near_duplicates.asking import Asking, Title, signs_of
from dupq.near_duplicates.shingles import Shingles, jaccard
from dupq.tables import AROUND
from dupq.text.languages import numbers_in
from dupq.text.questions import BUCKETS, TERM_BITS, Terms

# What marks a question beside its words: what it asks, its numbers and formulas, its asker, the questions it cites.
#
# A mark is a kind and a hash of BUCKETS values, so that all marks of a question are one sorted list of numbers, and no
# name is kept: an asker is a hash of the user's number on the site.

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


UNLISTED = -1  # a rank: not among the k nearest
_SATURATION = 1.2  # k1 of BM25 (Robertson and Zaragoza 2009, section 3.4.3); lengths make no difference here: b = 0
_COSINE_UNITS = 1 << 20  # cosines are summed as integers, so that their order makes no difference


class Listing(NamedTuple):
    """How a question lists another one, for n pairs: its rank, and its score relative to those of other neighbours."""

    ranks: np.ndarray  # int32, 1 = nearest; UNLISTED
    lifts: np.ndarray  # float32: (score - mean other score) / (highest possible - mean other score); 0 where unlisted


class Words(NamedTuple):
    """The words and tags of n questions that are compared."""

    titles: Terms
    texts: Terms  # title and body
    tags: Terms
    marks: Terms  # see `marks_of`


class Shared(NamedTuple):
    """What n pairs have in common (float32): cosines by rarity, and shares of the rarity of the terms of each side."""

    title_cosine: np.ndarray
    title_least: np.ndarray  # shared terms' rarity over that of all terms of the side that has more
    text_cosine: np.ndarray
    text_least: np.ndarray
    both_ways: np.ndarray  # BM25 of both texts for each other, of that for themselves: geometric means
    tags: np.ndarray  # Jaccard coefficient; NaN where neither has any
    title_swap: np.ndarray  # the rarest term that only one title has, of the side where it is less rare, of the rarest
    other_numbers: np.ndarray  # 1 where both titles have numbers, and not the same ones: siblings, not duplicates
    other_asking: np.ndarray  # 1 where the titles say other things or in another order, stop words left out
    other_formulas: np.ndarray  # where both have formulas the share of all of them that one alone has, else 0
    same_asker: np.ndarray  # 1 where one user asked both
    cites: np.ndarray  # 1 where one links to the other


def listing_of(scores: np.ndarray, highest: float) -> Listing:
    """How each question of n lists its neighbours: `scores` (n, k) from the best on, -inf where there are no more."""
    inside = np.isfinite(scores)
    counts = inside.sum(axis=1, keepdims=True)
    values = np.where(inside, scores, 0.0)
    others = (values.sum(axis=1, keepdims=True) - values) / np.maximum(counts - 1, 1)
    lifts = (values - others) / np.maximum(highest - others, 1e-6)
    ranks = np.broadcast_to(np.arange(1, scores.shape[1] + 1, dtype=np.int32), scores.shape)
    return Listing(ranks, np.where(inside, lifts, 0.0).astype(np.float32))


def shared(words: Words, left: np.ndarray, right: np.ndarray, rarities: np.ndarray) -> Shared:
    """What the pairs of rows `left[i]`, `right[i]` of `words` share; `rarities` as of dupq.text.questions."""
    title_cosine, title_least, _ = _overlaps(*words.titles, rarities, left, right)
    text_cosine, text_least, both_ways = _overlaps(*words.texts, rarities, left, right)
    tags = Shingles(words.tags.ids, words.tags.offsets)
    has_tags = np.diff(words.tags.offsets) > 0
    return Shared(
        title_cosine,
        title_least,
        text_cosine,
        text_least,
        both_ways,
        np.where(has_tags[left] | has_tags[right], jaccard(tags, left, right), np.nan).astype(np.float32),
        _swaps(words.titles.offsets, words.titles.ids, rarities, left, right),
        *_marked(words.marks.offsets, words.marks.ids, left, right),
    )


def title_cosines(titles: Terms, left: np.ndarray, right: np.ndarray, rarities: np.ndarray) -> np.ndarray:
    """`Shared.title_cosine` alone."""
    cosines: np.ndarray = _overlaps(*titles, rarities, left, right)[0]
    return cosines


def around(keys: np.ndarray, cosines: np.ndarray) -> pa.Table:
    """Return how alike the title of each question is to those of the questions that it lists (AROUND), by key.

    `keys` (int64, (m,)) has a question once for each that it lists, `cosines` (float32, (m,)) those of both titles.
    They are summed in units of 1 / _COSINE_UNITS.
    """
    questions, rows = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(questions), np.int64)
    np.add.at(sums, rows, _whole(cosines))
    return pa.table([questions, sums, np.bincount(rows, minlength=len(questions))], schema=AROUND)


def title_leads(pairs: pa.Table, around: pa.Table) -> np.ndarray:
    """Return how much more alike the titles of pairs are than those of either side and its other neighbours (float32).

    `pairs` are rows of COMPARED, `around` those of AROUND of their questions; one that has none lists nobody.
    """
    keys, sums, counts = (np.append(column.to_numpy(), 0) for column in around.sort_by("key").columns)
    cosines, means = pairs["title_cosine"].to_numpy(), []
    for side in ("left", "right"):
        own, is_listed = pairs[side].to_numpy(), pairs[f"rank_{side}"].to_numpy() > 0
        rows = np.searchsorted(keys[:-1], own)
        rows = np.where(keys[rows] == own, rows, len(keys) - 1)
        others = sums[rows] - np.where(is_listed, _whole(cosines), 0)
        means.append(others / _COSINE_UNITS / np.maximum(counts[rows] - is_listed, 1))
    return (cosines - (means[0] + means[1]) / 2).astype(np.float32)


def _whole(cosines: np.ndarray) -> np.ndarray:
    return np.rint(cosines.astype(np.float64) * _COSINE_UNITS).astype(np.int64)


@nb.njit(nogil=True, cache=True)
def _overlaps(
    offsets: np.ndarray, ids: np.ndarray, counts: np.ndarray, rarities: np.ndarray, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosine (a term counts (1 + ln count) x rarity), least share, and BM25 both ways of each pair."""
    found = np.zeros((3, len(left)), np.float32)
    tables = _of_counts()
    weights, squares, own = _weights(offsets, ids, counts, rarities, tables)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        common, product, forth, back = _common(offsets, ids, counts, rarities, a, b, tables)
        if product > 0.0:
            found[0, pair] = product / np.sqrt(squares[a] * squares[b])
            found[1, pair] = common / max(weights[a], weights[b])
            found[2, pair] = np.sqrt((forth * back) / (own[a] * own[b]))
    return found[0], found[1], found[2]


@nb.njit(nogil=True, cache=True)
def _of_counts() -> tuple[np.ndarray, np.ndarray]:
    """1 + ln count, and the saturated count of BM25, of each count: a logarithm a term takes longer than the rest."""
    counts = np.arange(256).astype(np.float64)
    return 1.0 + np.log(np.maximum(counts, 1.0)), counts * (_SATURATION + 1.0) / (counts + _SATURATION)


@nb.njit(nogil=True, cache=True)
def _weights(
    offsets: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    rarities: np.ndarray,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rarity of all terms of each text, the square of its length, and its BM25 for itself."""
    weights, squares, own = np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1)
    logs, saturated = tables
    for text in range(len(offsets) - 1):
        for index in range(offsets[text], offsets[text + 1]):
            rarity = rarities[ids[index]]
            weights[text] += rarity
            squares[text] += (logs[counts[index]] * rarity) ** 2
            own[text] += rarity * saturated[counts[index]]
    return weights, squares, own


@nb.njit(nogil=True, cache=True)
def _common(
    offsets: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    rarities: np.ndarray,
    a: int,
    b: int,
    tables: tuple[np.ndarray, np.ndarray],
) -> tuple[float, float, float, float]:
    """The rarity of the terms of both texts, their product, and BM25 of either one for the other."""
    logs, saturated = tables
    common, product, forth, back = 0.0, 0.0, 0.0, 0.0
    index, other = offsets[a], offsets[b]
    while index < offsets[a + 1] and other < offsets[b + 1]:
        if ids[index] == ids[other]:
            rarity = rarities[ids[index]]
            common += rarity
            product += logs[counts[index]] * logs[counts[other]] * rarity * rarity
            forth += rarity * saturated[counts[other]]
            back += rarity * saturated[counts[index]]
            index += 1
            other += 1
        elif ids[index] < ids[other]:
            index += 1
        else:
            other += 1
    return common, product, forth, back


@nb.njit(nogil=True, cache=True)
def _swaps(
    offsets: np.ndarray, ids: np.ndarray, rarities: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """See Shared.title_swap."""
    found = np.zeros(len(left), np.float32)
    highest = max(rarities.max(), np.float32(1e-6))
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        index, other = offsets[a], offsets[b]
        mine, theirs = np.float32(0), np.float32(0)
        while index < offsets[a + 1] or other < offsets[b + 1]:
            if other == offsets[b + 1] or (index < offsets[a + 1] and ids[index] < ids[other]):
                mine = max(mine, rarities[ids[index]])
                index += 1
            elif index == offsets[a + 1] or ids[other] < ids[index]:
                theirs = max(theirs, rarities[ids[other]])
                other += 1
            else:
                index += 1
                other += 1
        found[pair] = min(mine, theirs) / highest
    return found


_KINDS = SELF + 1


@nb.njit(nogil=True, cache=True)
def _marked(offsets: np.ndarray, ids: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The fields of Shared from `other_numbers` on (float32, shape (5, n)), of sorted marks."""
    found = np.zeros((5, len(left)), np.float32)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        mine, theirs, common = np.zeros(_KINDS), np.zeros(_KINDS), np.zeros(_KINDS)
        cites = False
        index, other = offsets[a], offsets[b]
        while index < offsets[a + 1] or other < offsets[b + 1]:
            if other == offsets[b + 1] or (index < offsets[a + 1] and ids[index] < ids[other]):
                mine[ids[index] >> TERM_BITS] += 1
                index += 1
            elif index == offsets[a + 1] or ids[other] < ids[index]:
                theirs[ids[other] >> TERM_BITS] += 1
                other += 1
            else:
                common[ids[index] >> TERM_BITS] += 1
                index += 1
                other += 1
        if mine[CITED] + common[CITED] > 0 and theirs[SELF] > 0:
            cites |= _has_cited(offsets, ids, a, ids[offsets[b + 1] - 1])
        if theirs[CITED] + common[CITED] > 0 and mine[SELF] > 0:
            cites |= _has_cited(offsets, ids, b, ids[offsets[a + 1] - 1])
        for row, kind in ((0, NUMBER), (1, ASKING)):
            both = mine[kind] + common[kind] > 0 and theirs[kind] + common[kind] > 0
            found[row, pair] = both and mine[kind] + theirs[kind] > 0
        if mine[FORMULA] + common[FORMULA] > 0 and theirs[FORMULA] + common[FORMULA] > 0:
            apart = mine[FORMULA] + theirs[FORMULA]
            found[2, pair] = apart / (apart + common[FORMULA])
        found[3, pair] = common[ASKER] > 0
        found[4, pair] = cites
    return found


@nb.njit(nogil=True, cache=True)
def _has_cited(offsets: np.ndarray, ids: np.ndarray, question: int, self: int) -> bool:
    """Whether a question cites the one with the mark `self`."""
    wanted = self - ((SELF - CITED) << TERM_BITS)
    return bool((ids[offsets[question] : offsets[question + 1]] == wanted).any())
