"""The evidence that two questions are duplicates, as features that mean the same for every encoder and archive.

Each training gives an encoder's scores another scale. So a score is seen relative to others: to the best scores of
other questions, to the scores of both questions' other neighbours, and by its rank in both directions. The other
features are shared words, weighted by how rare they are in the archive. Titles are also compared with the titles of
both questions' neighbours: where all of them say "How can I …", sharing it means little.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.kernel_cache import numba, read_only
from dupq.near_duplicates.shingles import Shingles, jaccard
from dupq.tables import TERMS, TITLE_CONTEXT
from dupq.text.keys import RowsByKey, are_among
from dupq.text.marks import (
    ASKER,
    ASKING,
    BAG,
    CHOICE,
    CHOSEN,
    CITED,
    FORMULA,
    HASH_BITS,
    KINDS,
    NEGATION,
    NUMBER,
    SELF,
    SPELLING,
    TEMPLATE,
    UNDATED,
    UNSIGNED,
)
from dupq.text.questions import Terms, each_once
from dupq.text.token_arrays import lists_in

UNLISTED = -1  # a rank: not among the k nearest
_SATURATION = 1.2  # k1 of BM25 (Robertson and Zaragoza 2009, section 3.4.3); b = 0: lengths make no difference
_COSINE_UNITS = 1 << 20  # cosines are summed as integers, so their order makes no difference


class Words(NamedTuple):
    """The words, tags and marks of n questions."""

    titles: Terms
    texts: Terms  # title and body
    tags: Terms
    marks: Terms  # of `marks_of`


class Shared(NamedTuple):
    """What n pairs have in common (float32). Terms are weighted by their rarity."""

    title_cosine: np.ndarray
    title_least: np.ndarray  # rarity of the shared terms, divided by the larger side's total
    text_cosine: np.ndarray
    text_least: np.ndarray
    both_ways: np.ndarray  # BM25 of the texts for each other over that for themselves: geometric means
    tags: np.ndarray  # Jaccard coefficient; NaN where neither has any
    title_swap: np.ndarray  # the rarest term of only one title, on the side where it is less rare; 1: the rarest of all
    other_numbers: np.ndarray  # 1 where both titles have numbers, but not the same ones: siblings, not duplicates
    other_date: np.ndarray  # 1 where titles ask the same of another year or month: an announcement of each year
    other_asking: np.ndarray  # 1 where the titles, without stop words, have other words or another order
    other_negation: np.ndarray  # 1 where one title denies something and the other does not
    # 1 where titles have the same words in another order (five and more), or other signs, case or small words
    other_order: np.ndarray
    other_words: np.ndarray  # 1 where titles differ only in one or two telling words in a row, on each side
    same_asking: np.ndarray  # 1 where these are the same, in the same order
    other_formulas: np.ndarray  # share of the formulas that only one side has; 0 unless both have some
    same_asker: np.ndarray  # 1 where one user asked both
    cites: np.ndarray  # 1 where one links to the other


def titles_only(table: pa.Table) -> pa.Table:
    """Return rows of TERMS without texts, tags and marks."""
    texts = TERMS.names.index("text_terms")
    empty = [pa.array([[]] * len(table), field.type) for field in list(TERMS)[texts:]]
    return pa.table([*table.columns[:texts], *empty], schema=TERMS)


def words_of(table: pa.Table) -> tuple[RowsByKey, Words]:
    """Return the index of rows of TERMS by key, and their words. Memory: a copy of the table."""
    titles, texts = (
        Terms(*lists_in(table[f"{name}_terms"]), lists_in(table[f"{name}_counts"])[1]) for name in ("title", "text")
    )
    tags, marks = (each_once(table[name]) for name in ("tags", "marks"))
    return RowsByKey(table["key"].to_numpy()), Words(titles, texts, tags, marks)


def lifts_of(scores: np.ndarray, highest: float) -> np.ndarray:
    """Return the lift (float32, (n, k)) of each neighbour of n questions: its score relative to the others'.

    That is (score - mean other score) / (`highest` possible - mean other score). `scores` (n, k) are -inf where there
    are fewer neighbours, whose lift is 0.
    """
    is_listed = np.isfinite(scores)
    counts = is_listed.sum(axis=1, keepdims=True)
    values = np.where(is_listed, scores, 0.0)
    others = (values.sum(axis=1, keepdims=True) - values) / np.maximum(counts - 1, 1)
    lifts = (values - others) / np.maximum(highest - others, 1e-6)
    return np.where(is_listed, lifts, 0.0).astype(np.float32)


def shared(words: Words, left: np.ndarray, right: np.ndarray, rarities: np.ndarray) -> Shared:
    """Return what the rows `left[i]` and `right[i]` of `words` have in common, given the `rarities` of all terms."""
    left, right = read_only(left), read_only(right)
    titles, texts, marks = (_read_only(terms) for terms in (words.titles, words.texts, words.marks))
    title_cosine, title_least, _, title_swap = _overlaps(*titles, rarities, left, right)
    text_cosine, text_least, both_ways, _ = _overlaps(*texts, rarities, left, right)
    tags = Shingles(words.tags.ids, words.tags.offsets)
    has_tags = np.diff(words.tags.offsets) > 0
    return Shared(
        title_cosine,
        title_least,
        text_cosine,
        text_least,
        both_ways,
        np.where(has_tags[left] | has_tags[right], jaccard(tags, left, right), np.nan).astype(np.float32),
        title_swap,
        *_compared_marks(marks, left, right),
    )


def title_cosines(titles: Terms, left: np.ndarray, right: np.ndarray, rarities: np.ndarray) -> np.ndarray:
    """Return `Shared.title_cosine` alone."""
    cosines: np.ndarray = _overlaps(*_read_only(titles), rarities, read_only(left), read_only(right))[0]
    return cosines


def _read_only(terms: Terms) -> Terms:
    return Terms(terms.offsets, read_only(terms.ids), read_only(terms.counts))


def title_context(keys: np.ndarray, cosines: np.ndarray) -> pa.Table:
    """Return how alike each question's title is to the titles of the questions that it lists (TITLE_CONTEXT), by key.

    `keys` (int64, (m,)) has a question once for each that it lists, `cosines` (float32, (m,)) the cosines of both
    titles. They are summed in units of 1 / _COSINE_UNITS.
    """
    questions, rows = np.unique(keys, return_inverse=True)
    sums = np.bincount(rows, _whole(cosines), len(questions)).astype(np.int64)  # exact: far below 2^53
    return pa.table([questions, sums, np.bincount(rows, minlength=len(questions))], schema=TITLE_CONTEXT)


def title_leads(pairs: pa.Table, title_context: pa.Table) -> np.ndarray:
    """Return how much more alike the titles of pairs are than the titles of either side and its other neighbours.

    `pairs` are rows of COMPARED, `title_context` rows of TITLE_CONTEXT; a question without one lists nobody. The result
    is float32.
    """
    keys, sums, counts = (np.append(column.to_numpy(), 0) for column in title_context.sort_by("key").columns)
    cosines, means = pairs["title_cosine"].to_numpy(), []
    for side in ("left", "right"):
        ends, is_listed = pairs[side].to_numpy(), pairs[f"rank_{side}"].to_numpy() > 0
        rows = np.searchsorted(keys[:-1], ends)
        rows = np.where(keys[rows] == ends, rows, len(keys) - 1)
        others = sums[rows] - np.where(is_listed, _whole(cosines), 0)
        means.append(others / _COSINE_UNITS / np.maximum(counts[rows] - is_listed, 1))
    return (cosines - (means[0] + means[1]) / 2).astype(np.float32)


def _whole(cosines: np.ndarray) -> np.ndarray:
    return np.rint(cosines.astype(np.float64) * _COSINE_UNITS).astype(np.int64)


@numba.njit(nogil=True, cache=True)
def _overlaps(
    offsets: np.ndarray, ids: np.ndarray, counts: np.ndarray, rarities: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Return cosine (a term counts (1 + ln count) x rarity), least share, BM25 both ways and swap of each pair."""
    every = np.arange(256).astype(np.float64)  # count: logarithms of each term's would take longer than all the rest
    logs, saturated = 1.0 + np.log(np.maximum(every, 1.0)), every * (_SATURATION + 1.0) / (every + _SATURATION)
    weights, squares, own = np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1)
    for text in range(len(offsets) - 1):
        for index in range(offsets[text], offsets[text + 1]):
            rarity = rarities[ids[index]]
            weights[text] += rarity
            squares[text] += (logs[counts[index]] * rarity) ** 2
            own[text] += rarity * saturated[counts[index]]
    overlaps, highest = np.zeros((4, len(left)), np.float32), max(rarities.max(), np.float32(1e-6))
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        common, product, forth, back, rarest, rarest_other = 0.0, 0.0, 0.0, 0.0, np.float32(0), np.float32(0)
        index, other = offsets[a], offsets[b]
        end, other_end = offsets[a + 1], offsets[b + 1]
        while index < end and other < other_end:
            if ids[index] == ids[other]:
                rarity = rarities[ids[index]]
                common += rarity
                product += logs[counts[index]] * logs[counts[other]] * rarity * rarity
                forth += rarity * saturated[counts[other]]
                back += rarity * saturated[counts[index]]
                index += 1
                other += 1
            elif ids[index] < ids[other]:
                rarest = max(rarest, rarities[ids[index]])
                index += 1
            else:
                rarest_other = max(rarest_other, rarities[ids[other]])
                other += 1
        for rest in range(index, end):
            rarest = max(rarest, rarities[ids[rest]])
        for rest in range(other, other_end):
            rarest_other = max(rarest_other, rarities[ids[rest]])
        if product > 0.0:
            overlaps[0, pair] = product / np.sqrt(squares[a] * squares[b])
            overlaps[1, pair] = common / max(weights[a], weights[b])
            overlaps[2, pair] = np.sqrt((forth * back) / (own[a] * own[b]))
        overlaps[3, pair] = min(rarest, rarest_other) / highest
    return overlaps


def _compared_marks(marks: Terms, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the fields of Shared from `other_numbers` on (float32, shape (10, m)); the marks are sorted."""
    count, kinds = len(marks.offsets) - 1, marks.ids >> HASH_BITS
    owners = np.repeat(np.arange(count), np.diff(marks.offsets))
    counts = np.bincount(kinds * count + owners, minlength=KINDS * count).reshape(KINDS, count)
    mine, theirs = counts[:, left], counts[:, right]
    common = _common_marks(marks.offsets, marks.ids, kinds, KINDS, left, right)
    apart = mine + theirs - 2 * common
    are_others = (mine > 0) & (theirs > 0) & (apart > 0)
    contradict = (common[UNSIGNED] > 0) & (common[CHOICE] > common[CHOSEN])

    own = np.full(count, -1)
    own[owners[kinds == SELF]] = marks.ids[kinds == SELF]
    owned = (owners << 32) + marks.ids  # ascending
    cited = own - ((SELF - CITED) << HASH_BITS)
    are_cited = are_among(owned, (left << 32) + cited[right]) | are_among(owned, (right << 32) + cited[left])
    fields = (
        are_others[NUMBER],
        (common[UNDATED] > 0) & (mine[NUMBER] > common[NUMBER]) & (theirs[NUMBER] > common[NUMBER]),
        are_others[ASKING],
        mine[NEGATION] != theirs[NEGATION],
        (((common[BAG] > 0) & (common[SPELLING] == 0)) | (common[UNSIGNED] > 0)) & are_others[ASKING] | contradict,
        (common[TEMPLATE] > 0) & are_others[ASKING] & (common[SPELLING] == 0),
        (common[ASKING] > 0) & ~contradict,
        np.where(are_others[FORMULA], apart[FORMULA] / np.maximum(apart[FORMULA] + common[FORMULA], 1), 0),
        common[ASKER] > 0,
        are_cited & (own[left] != own[right]),
    )
    return np.stack(fields).astype(np.float32)


@numba.njit(nogil=True, cache=True)
def _common_marks(
    offsets: np.ndarray, ids: np.ndarray, kinds: np.ndarray, count: int, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Return how many marks of each of `count` kinds the questions of each pair have in common (int64, (count, m))."""
    common = np.zeros((count, len(left)), np.int64)
    for pair in range(len(left)):
        index, other = offsets[left[pair]], offsets[right[pair]]
        while index < offsets[left[pair] + 1] and other < offsets[right[pair] + 1]:
            mine, theirs = ids[index], ids[other]
            if mine == theirs:
                common[kinds[index], pair] += 1
            index += mine <= theirs
            other += theirs <= mine
    return common
