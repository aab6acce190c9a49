"""Lists of words: the pairs of questions that share a rare word, beside those of which one probes the other's list.

Centroids find what is alike in meaning. What is alike by words is often in lists far from each other, but as a rule
shares a word that few questions have, and of such words even all pairs are few. They are walked a question at a time.
Of each pair an upper bound of its score comes first: the rare words' part of the bags' cosine, summed up on the way,
and a product of codes, one byte a dimension, with what rounding to these may change (Cauchy and Schwarz, as in
matrices.py). The codes hold the vector and, as the search on a GPU has them (gpu/rows.py), columns that the other words
share, each with the length of what the bag has in it, so that their product is never below those words' part. What is
below both questions' bounds goes no further; of the others, one in some tens, the exact score is taken.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from dupq.kernel_cache import numba as nb
from dupq.neighbours.exact import COSINE, Rule, Scoring, Side, score_row

NO_WORD = 1 << 62  # "the questions that have it" of no word
_CODES = 127.0  # the largest code
_BITS, _UNITS = np.uint32(12), np.uint32(4095)  # of a share; a block has 2^20 questions at most
_END = np.int32(2**31 - 1)  # a column after all others
# At least so many columns of words that are not rare, and as many more as make the length of codes a multiple of the
# processor's. Fewer cost more: with 64 most pairs needed an exact score where few words are rare (measured once, on a
# tile of ten million short made questions), and that takes some 20 times as long as a product of codes.
_LEAST_COLUMNS, _AT_ONCE = 184, 64
_PIECE = 4_096  # questions whose codes are made at a time
_SLACK = 1e-5  # more than norms and sums in float32 may lack


class WordLists(NamedTuple):
    """The rare words of n questions, and what their scores are bounded by.

    Row i has `words` with `shares` of its bag's length from `starts[i]` to `starts[i + 1]`. Word w has `members` from
    `postings[w]` to `postings[w + 1]`: row * 4096 + its share there in units of 1 / 4095, rounded up, as one number is
    one look into memory. What else a score is made from, the vector and the columns of other words, each times the root
    of its weight, is within `errors[i]` of `codes[i] * scales[i]`.
    """

    starts: np.ndarray
    words: np.ndarray
    shares: np.ndarray
    postings: np.ndarray
    members: np.ndarray  # uint32
    codes: np.ndarray  # int8, (n, d + columns)
    scales: np.ndarray
    errors: np.ndarray


class Probed(NamedTuple):
    """Which pairs the lists have: of a row and a column that either probes the other's list (masks, (lists, n)).

    `of_rows` are the places of the rows' own lists, among those that `by_columns` has, and so on.
    """

    by_rows: np.ndarray
    of_rows: np.ndarray
    by_columns: np.ndarray
    of_columns: np.ndarray


class Shared(NamedTuple):
    """Room for pairs: rows and columns (int32), exact scores (float64)."""

    rows: np.ndarray
    columns: np.ndarray
    scores: np.ndarray


def word_counts(words: sparse.csr_array) -> np.ndarray:
    """How many of the questions have each word (int32), by its id."""
    return np.bincount(words.indices[words.data > 0], minlength=words.shape[1]).astype(np.int32)


def word_lists(side: Side, rule: Rule, counts: np.ndarray, most: int) -> WordLists:
    """The lists of words that at most `most` questions of the archive have; `counts`: how many have each.

    Memory: a byte a dimension and column, 8 a question, 12 for each of its rare words, 8 a word of the archive.
    """
    lengths = np.sqrt(np.where(side.bag_squares > 0, side.bag_squares, 1.0))
    of_entry = np.repeat(np.arange(len(lengths)), np.diff(side.starts))
    shares = (side.weights / lengths[of_entry]).astype(np.float32)
    is_rare = (counts <= most)[side.words] & (shares > 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_rare)])[side.starts]
    shape = len(lengths), len(counts)
    rows = sparse.csr_array((shares[is_rare], side.words[is_rare], starts), shape=shape)
    postings = rows.tocsc()
    members = (postings.indices.astype(np.uint32) << _BITS) + np.ceil(postings.data * _UNITS).astype(np.uint32)
    others = sparse.csr_array((shares[~is_rare], side.words[~is_rare], side.starts - starts), shape=shape)
    codes = _codes(side, rule, others, _columns(counts, most, side.vectors.shape[1]))
    return WordLists(starts, side.words[is_rare], rows.data, postings.indptr.astype(np.int32), members, *codes)


class _Columns(NamedTuple):
    """The columns that words which are not rare are put into."""

    number: int  # of columns
    of_words: np.ndarray  # the column of each word


def _columns(counts: np.ndarray, most: int, dimensions: int) -> _Columns:
    """The most frequent words have a column of their own, the others share the rest."""
    columns = _LEAST_COLUMNS + -(dimensions + _LEAST_COLUMNS) % _AT_ONCE
    frequent = np.flatnonzero(counts > most)
    order = frequent[np.argsort(-counts[frequent], kind="stable")]
    result = np.zeros(len(counts), np.int64)
    own = columns // 8
    result[order[:own]] = np.arange(len(order[:own]))
    result[order[own:]] = own + np.arange(len(order[own:])) % (columns - own)
    return _Columns(columns, result)


def _codes(
    side: Side, rule: Rule, others: sparse.csr_array, columns: _Columns
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`codes`, `scales` and `errors` of WordLists; `others`: the shares of words that are not rare."""
    rows, dimensions = side.vectors.shape
    codes = np.zeros((rows, dimensions + columns.number), np.int8)
    scales, errors = (np.empty(rows, np.float32) for _ in range(2))
    for start in range(0, rows, _PIECE):
        piece = slice(start, start + _PIECE)
        lengths = np.sqrt(np.where(side.squares[piece] > 0, side.squares[piece], 1.0))
        unit = side.vectors[piece] * (_weight_of_vectors(rule) ** 0.5 / lengths).astype(np.float32)[:, None]
        exact = np.concatenate([unit, _lengths(others[piece], columns) * np.float32(rule.lexical**0.5)], axis=1)
        scale = np.abs(exact).max(axis=1, initial=0.0) / np.float32(_CODES)
        rounded = np.rint(exact / np.where(scale > 0, scale, np.float32(1))[:, None])
        codes[piece], scales[piece] = rounded, scale
        off = np.linalg.norm(exact - rounded * scale[:, None], axis=1)
        errors[piece] = off * (1 + _SLACK) + _SLACK * (abs(rule.dense) + rule.lexical) ** 0.5
    return codes, scales, errors


def _lengths(shares: sparse.csr_array, columns: _Columns) -> np.ndarray:
    """The length of what each row has in each column (float32)."""
    rows = len(shares.indptr) - 1
    places = np.repeat(np.arange(rows), np.diff(shares.indptr)) * columns.number + columns.of_words[shares.indices]
    squares = np.bincount(places, shares.data**2, minlength=rows * columns.number)
    return np.sqrt(squares).astype(np.float32).reshape(rows, columns.number)


def _weight_of_vectors(rule: Rule) -> float:
    """The weight of vectors in codes: only products of no negative weight are there."""
    return max(rule.dense, 0.0) if rule.kind == COSINE else 0.0


@nb.njit(nogil=True, cache=True)
def rarest_shared(left: Side, right: Side, counts: np.ndarray) -> np.ndarray:
    """How many questions have the rarest word (int64) that row i of both sides has, for each i; NO_WORD: they have none
    in common.
    """
    result = np.full(len(left.bag_squares), NO_WORD, np.int64)
    for row in range(len(result)):
        place, stop = left.starts[row], left.starts[row + 1]
        other, other_stop = right.starts[row], right.starts[row + 1]
        while place < stop and other < other_stop:
            if left.words[place] < right.words[other]:
                place += 1
            elif left.words[place] > right.words[other]:
                other += 1
            else:
                if left.weights[place] > 0 and right.weights[other] > 0:
                    result[row] = min(result[row], counts[left.words[place]])
                place += 1
                other += 1
    return result


class Walk(NamedTuple):
    """The walk through `theirs` of each rare word of `mine`: its next place in `members`, the end of its places, and
    the column at the next one.
    """

    mine: WordLists
    theirs: WordLists
    places: np.ndarray
    ends: np.ndarray
    columns: np.ndarray


def walk_of(mine: WordLists, theirs: WordLists) -> Walk:
    """At the first column of each word. Memory: 12 bytes a rare word of `mine`."""
    places, ends = theirs.postings[mine.words], theirs.postings[mine.words + 1]
    columns = np.full(len(places), _END, np.int32)
    columns[places < ends] = theirs.members[places[places < ends]] >> _BITS
    return Walk(mine, theirs, places, ends, columns)


@nb.njit(nogil=True, cache=True)
def shared_pairs(
    walk: Walk,
    rows: tuple[int, int],
    columns: tuple[int, int],
    bounds: tuple[np.ndarray, np.ndarray],
    probed: Probed,
    pairs: Scoring,
    is_diagonal: bool,
    room: Shared,
) -> tuple[int, int]:
    """The pairs that share a word, are not `probed`, and may reach the bound of their row or of their column.

    Of `rows` (from, to) with `columns`, which come in ascending pieces that the cache holds. Returns how many were
    found, and the row to continue at: `room` is for as many pairs as there are columns at least. On the diagonal only
    columns after the row count.
    """
    rule, (first, stop), mine, theirs = pairs.rule, columns, walk.mine, walk.theirs
    length = np.float32(np.sqrt(abs(rule.dense) + rule.lexical))
    not_in_codes = 0.0 if rule.kind == COSINE and rule.dense >= 0 else abs(rule.dense)  # what vectors add at most there
    # of each column what its rare words add, its scale, its error and its bound: one look into memory for all
    terms = np.empty((stop - first, 4), np.float32)
    terms[:, 0] = 0.0
    terms[:, 1], terms[:, 2] = theirs.scales[first:stop], theirs.errors[first:stop]
    terms[:, 3] = bounds[1][first:stop]
    touched, chosen = np.empty(stop - first, np.int32), np.empty(stop - first, np.int32)
    codes = theirs.codes  # taken out of its tuple before the loop: a reference is counted each time
    found, dimensions = 0, codes.shape[1]
    for row in range(*rows):
        if found + stop - first > len(room.rows):
            return found, row
        count = _add_words(walk, row, columns, rule.lexical, terms, touched)
        my_codes, my_scale, my_error = mine.codes[row], mine.scales[row], mine.errors[row]
        bound, beyond_words = np.float32(bounds[0][row]), np.float32(not_in_codes + my_error * length)
        kept = 0
        for place in range(count):
            other = touched[place]
            highest, scale, error, bound_there = terms[other, 0], terms[other, 1], terms[other, 2], terms[other, 3]
            terms[other, 0] = 0.0
            other += first
            if is_diagonal and other <= row:
                continue
            product = np.int32(0)
            for dimension in range(dimensions):  # numba makes 64 bits of sums of 32: several times as slow
                step = np.int32(np.int32(my_codes[dimension]) * np.int32(codes[other, dimension]))
                product = np.int32(product + step)
            highest += beyond_words + error * (length + my_error) + my_scale * scale * product
            if highest < min(bound, bound_there):
                continue
            if not (probed.by_rows[probed.of_columns[other], row] or probed.by_columns[probed.of_rows[row], other]):
                chosen[kept] = other
                kept += 1
        score_row(pairs, row, chosen[:kept], room.scores[found : found + kept])
        room.rows[found : found + kept] = row
        room.columns[found : found + kept] = chosen[:kept]
        found += kept
    return found, rows[1]


@nb.njit(nogil=True, cache=True)
def _add_words(
    walk: Walk, row: int, columns: tuple[int, int], lexical: float, terms: np.ndarray, touched: np.ndarray
) -> int:
    """Add what a row's rare words have in common with `columns` to their `terms`; how many are `touched`, and which.

    The walk of each word stops at the first column after them.
    """
    first, stop = columns
    starts, shares, members = walk.mine.starts, walk.mine.shares, walk.theirs.members
    places, ends, at = walk.places, walk.ends, walk.columns
    count = 0
    for place in range(starts[row], starts[row + 1]):
        column = at[place]
        if column >= stop:
            continue
        entry, end, share = places[place], ends[place], np.float32(lexical) * shares[place] / np.float32(_UNITS)
        while column < stop:
            if column >= first:  # on the diagonal rows begin late
                other = column - first
                if terms[other, 0] == 0.0:
                    touched[count] = other
                    count += 1
                terms[other, 0] += share * np.float32(members[entry] & _UNITS)
            entry += 1
            column = np.int32(members[entry] >> _BITS) if entry < end else _END
        places[place], at[place] = entry, column
    return count
