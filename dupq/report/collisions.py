"""How often texts of the run's own questions meet in a band, by their exact Jaccard coefficient.

The pairs that the run found in its bands say nothing of those that it missed. So a sample of its pairs is signed anew,
with other permutations than the run's: whether they meet then depends neither on what the bands found nor on what only
the encoder did. Few archives have pairs of every coefficient; so some texts are also paired with their own beginnings,
which have about the share of their shingles.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.errors import DupqError
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.bands import band_keys
from dupq.near_duplicates.shingles import shingle_sets
from dupq.near_duplicates.signatures import SEED, text_signatures
from dupq.near_duplicates.verification import jaccard
from dupq.runs.reader import Key, Run
from dupq.settings import config
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.text.questions import texts_table

PAIRS = 1_000  # of the near duplicates, and of the encoder's pairs
SEEDS = 16  # how often each is signed
TEXTS = 50  # that are paired with their beginnings, of
_BEGINNINGS = [share / 20 for share in range(6, 20)]  # of their words
_EDGES = np.linspace(0, 1, 21)


class Point(NamedTuple):
    """The pairs of a range of coefficients."""

    similarity: float  # the mean of their coefficients
    share: float  # of the times that they were signed, how often they met in a band
    pairs: int


def measured(run: Run, pairs: list[tuple[Key, Key]], whole: dict[Key, tuple[str, str]]) -> list[Point]:
    """The points of `pairs`, of questions whose titles and bodies (HTML) are `whole`; pairs of others are left out.

    None are told if the run's settings are not those of this version.
    """
    try:
        settings = config.from_dict(run.config)
    except DupqError:
        return []
    there = [pair for pair in pairs if pair[0] in whole and pair[1] in whole]
    if not there:
        return []
    rows = {key: row for row, key in enumerate(whole)}
    titles, bodies = (pa.array(column, pa.string()) for column in zip(*whole.values(), strict=True))
    texts = texts_table(pa.array(range(len(whole)), pa.int64()), titles, bodies, settings.text)["text"].to_pylist()
    ends = [(rows[one], rows[other]) for one, other in there]
    for row in range(min(TEXTS, len(texts))):
        ends += [(row, len(texts) + number) for number in range(len(_BEGINNINGS))]
        texts += _beginnings(texts[row])
    left, right = np.array(ends).T
    return points(pa.array(texts, pa.string()), left, right, settings.near_duplicates)


def _beginnings(text: str) -> list[str]:
    words = text.split(" ")
    return [" ".join(words[: round(share * len(words))]) for share in _BEGINNINGS]


def points(texts: pa.StringArray, left: np.ndarray, right: np.ndarray, near: NearDuplicateSettings) -> list[Point]:
    """The points of pairs of rows of `texts` (tokens joined by single spaces)."""
    coefficients = jaccard(shingle_sets(texts, near.shingle_size), left, right)
    met = np.zeros(len(left))
    for seed in range(SEED + 1, SEED + 1 + SEEDS):
        keys = band_keys(text_signatures(texts, near, seed), *bands_of(near))
        met += (keys[left] == keys[right]).any(axis=1)
    bins = np.clip(np.searchsorted(_EDGES, coefficients, "right") - 1, 0, len(_EDGES) - 2)
    pairs, shares, sums = (np.bincount(bins, weights, len(_EDGES) - 1) for weights in (None, met / SEEDS, coefficients))
    return [Point(sums[at] / pairs[at], shares[at] / pairs[at], int(pairs[at])) for at in np.flatnonzero(pairs)]
