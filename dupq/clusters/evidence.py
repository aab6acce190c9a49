"""What speaks for two questions being duplicates, in figures that mean the same for every encoder and archive.

Scores of an encoder have a scale of their own, which changes from training to training. So a score counts by its place:
among the best scores of other questions, against both questions' own neighbours, and by its rank in both directions.
Beside it are the words that the questions share, each weighed by how rare it is in this archive.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from dupq.text.terms import Terms

UNLISTED = -1  # a rank: not among the k nearest


class Listing(NamedTuple):
    """How a question lists another one, for n pairs: rank, and the score beside those of its other neighbours.

    The scores of a question are compared as shares of what is possible, so that their scale is of no account.
    """

    ranks: np.ndarray  # int32, 1 = nearest; UNLISTED
    leads: np.ndarray  # float32: (score - best other score) / highest possible; 0 where unlisted
    lifts: np.ndarray  # float32: (score - mean other score) / (highest possible - mean other score); likewise


class Words(NamedTuple):
    """What is compared of n questions."""

    titles: Terms
    texts: Terms  # title and body
    tags: Terms
    numbers: Terms  # the words of the title that have a digit


class Shared(NamedTuple):
    """What n pairs have in common (float32): cosines by rarity, and shares of the rarity of the terms of each side."""

    title_cosine: np.ndarray
    title_least: np.ndarray  # shared terms' rarity over that of all terms of the side that has more
    title_most: np.ndarray  # ... that has less
    text_cosine: np.ndarray
    text_least: np.ndarray
    text_most: np.ndarray
    text_ratio: np.ndarray  # rarity of the terms of the shorter text over that of the longer one
    text_weight: np.ndarray  # rarity of the terms of the shorter text
    tags: np.ndarray  # Jaccard coefficient; NaN where neither has any
    title_swap: np.ndarray  # the rarest term that only one title has, of the side where it is less rare, of the rarest
    other_numbers: np.ndarray  # 1 where both titles have numbers, and not the same ones: siblings, not duplicates


def listing_of(scores: np.ndarray, highest: float) -> Listing:
    """How each question of n lists its neighbours: `scores` (n, k) from the best on, -inf where there are no more."""
    inside = np.isfinite(scores)
    counts = inside.sum(axis=1, keepdims=True)
    values = np.where(inside, scores, 0.0)
    best_other = np.where(
        np.arange(scores.shape[1]) == 0, scores[:, 1:2] if scores.shape[1] > 1 else -np.inf, scores[:, :1]
    )
    best_other = np.where(np.isfinite(best_other), best_other, 0.0)
    others = (values.sum(axis=1, keepdims=True) - values) / np.maximum(counts - 1, 1)
    leads = (values - best_other) / highest
    lifts = (values - others) / np.maximum(highest - others, 1e-6)
    ranks = np.broadcast_to(np.arange(1, scores.shape[1] + 1, dtype=np.int32), scores.shape)
    return Listing(ranks, *(np.where(inside, column, 0.0).astype(np.float32) for column in (leads, lifts)))


def shared(words: Words, left: np.ndarray, right: np.ndarray, rarities: np.ndarray) -> Shared:
    """What the pairs of rows `left[i]`, `right[i]` of `words` share; `rarities` as of dupq.text.terms."""
    titles = _overlaps(*words.titles, rarities, left, right)
    cosine, least, most, ratio, weight = _overlaps(*words.texts, rarities, left, right)
    tags = _jaccards(words.tags.offsets, words.tags.ids, left, right)
    swaps = _swaps(words.titles.offsets, words.titles.ids, rarities, left, right)
    numbers = have_other_numbers(words.numbers, left, right)
    return Shared(titles[0], titles[1], titles[2], cosine, least, most, ratio, weight, tags, swaps, numbers)


def have_other_numbers(numbers: Terms, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """1 (float32) for each pair of rows that both have numbers, and not the same ones; else 0."""
    has_any = np.diff(numbers.offsets) > 0
    shares = _jaccards(numbers.offsets, numbers.ids, left, right)
    return (has_any[left] & has_any[right] & (shares < 1)).astype(np.float32)


@nb.njit(nogil=True, cache=True)
def _overlaps(offsets, ids, counts, rarities, left, right):  # type: ignore[no-untyped-def]
    """Cosine, least and most share, ratio and least weight of each pair; a term counts (1 + ln count) x rarity."""
    found = np.zeros((5, len(left)), np.float32)
    weights, squares = _weights(offsets, ids, counts, rarities)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        common, product = _common(offsets, ids, counts, rarities, a, b)
        least, most = min(weights[a], weights[b]), max(weights[a], weights[b])
        if product > 0.0:
            found[0, pair] = product / np.sqrt(squares[a] * squares[b])
            found[1, pair], found[2, pair] = common / most, common / least
        found[3, pair] = least / most if most > 0.0 else 1.0
        found[4, pair] = least
    return found[0], found[1], found[2], found[3], found[4]


@nb.njit(nogil=True, cache=True)
def _weights(offsets, ids, counts, rarities):  # type: ignore[no-untyped-def]
    """The rarity of all terms of each text, and the square of its length."""
    weights, squares = np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1)
    for text in range(len(offsets) - 1):
        for place in range(offsets[text], offsets[text + 1]):
            rarity = rarities[ids[place]]
            weights[text] += rarity
            squares[text] += ((1.0 + np.log(counts[place])) * rarity) ** 2
    return weights, squares


@nb.njit(nogil=True, cache=True)
def _common(offsets, ids, counts, rarities, a, b):  # type: ignore[no-untyped-def]
    """The rarity of the terms of both texts, and their product."""
    common, product = 0.0, 0.0
    place, other = offsets[a], offsets[b]
    while place < offsets[a + 1] and other < offsets[b + 1]:
        if ids[place] == ids[other]:
            rarity = rarities[ids[place]]
            common += rarity
            product += (1.0 + np.log(counts[place])) * (1.0 + np.log(counts[other])) * rarity * rarity
            place += 1
            other += 1
        elif ids[place] < ids[other]:
            place += 1
        else:
            other += 1
    return common, product


@nb.njit(nogil=True, cache=True)
def _jaccards(offsets, ids, left, right):  # type: ignore[no-untyped-def]
    found = np.full(len(left), np.nan, np.float32)
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        place, other, common = offsets[a], offsets[b], 0
        total = offsets[a + 1] - place + offsets[b + 1] - other
        while place < offsets[a + 1] and other < offsets[b + 1]:
            if ids[place] == ids[other]:
                common += 1
                place += 1
                other += 1
            elif ids[place] < ids[other]:
                place += 1
            else:
                other += 1
        if total:
            found[pair] = common / (total - common)
    return found


@nb.njit(nogil=True, cache=True)
def _swaps(offsets, ids, rarities, left, right):  # type: ignore[no-untyped-def]
    """See Shared.title_swap."""
    found = np.zeros(len(left), np.float32)
    highest = max(rarities.max(), np.float32(1e-6))
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        place, other = offsets[a], offsets[b]
        mine, theirs = np.float32(0), np.float32(0)
        while place < offsets[a + 1] or other < offsets[b + 1]:
            if other == offsets[b + 1] or (place < offsets[a + 1] and ids[place] < ids[other]):
                mine = max(mine, rarities[ids[place]])
                place += 1
            elif place == offsets[a + 1] or ids[other] < ids[place]:
                theirs = max(theirs, rarities[ids[other]])
                other += 1
            else:
                place += 1
                other += 1
        found[pair] = min(mine, theirs) / highest
    return found
