"""Which pairs a judge is asked about, and how far it is trusted: from its answers to what they add to the log-odds.

A judge's yes is evidence, not a verdict: where one candidate in ten is a duplicate, a reader that says yes to 8 % of
the others is right about half the time. So an answer counts by its likelihood ratio, how often duplicates get such an
answer and how often others do. Both are estimated for each site and each answering model from all its answers at once:
the known mixture, p of each pair before it was asked, is held, and the two distributions of answers are fitted by EM
(as Fellegi and Sunter 1969 do for agreement patterns). Pairs that people judged count as what they said. A judge that
says yes more often than p expects is found out by that, without any label.

p itself may be off on a site: all log-odds may move together by up to 1.5 down and 0.5 up, if the answers say so.

The prior is a reader's measured answers about 200 pairs with labels by people, where the others were hard negatives
(docs/judge.md). It weighs as much as 60 duplicates, but only as 10 other pairs: a site has hundreds of these.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import betaincinv, expit, logit

from dupq.text.keys import ID_BITS

EDGES = np.array([10, 30, 50, 70, 85, 95])  # of the bins of `same`
CERTAIN = 0.985  # probability from which on no answer keeps a pair from being joined: nobody asks
LEAST_SURE = 0.65  # probability below which no pair joins for a precision once a judge is used
YES = 50  # from which on an answer is a yes
_SAME = np.array([0.08, 0.10, 0.13, 0.17, 0.22, 0.20, 0.10])  # share of duplicates that gets such an answer
_OTHER = np.array([0.52, 0.24, 0.11, 0.06, 0.04, 0.02, 0.01])  # share of other pairs
_SAME_PAIRS, _OTHER_PAIRS = 60.0, 10.0  # that the prior weighs
_SHIFT, _SHIFT_SPREAD = (-1.5, 0.5), 0.5  # of log-odds: least and most, and how far they usually move
_ROUNDS = 100
_MOST = 4.0  # log-odds, at most: one answer is never certain
_FALSE_YES = 0.12  # share of other pairs with a yes, from which on a judge is not used
_WRONG_CONTROLS = 0.25  # share of control pairs of a kind with the wrong answer, beyond which it is not used
_LEAST_CONTROLS = 4
_FEWEST = 5  # answers, of which one can say that they are all the same
_SURE = 0.95


class Trust(NamedTuple):
    """What the answers of a model about a site's pairs are worth, as JSON."""

    log_ratios: list[float]  # what an answer in each bin adds to the log-odds; zeros if it is not used
    shift: float  # what every answer adds
    found: float  # share of the duplicates with a yes, estimated
    false_yes: float  # share of the other pairs with a yes, estimated
    reason: str = ""  # why the judge is not used

    def added(self, same: np.ndarray) -> np.ndarray:
        """Return what answers (0 to 100, NaN: none) add to the log-odds."""
        known = np.isfinite(same)
        added = self.shift + np.array(self.log_ratios)[_bins(np.where(known, same, 0.0))]
        return np.where(known, added, 0.0)


def _bins(same: np.ndarray) -> np.ndarray:
    return np.searchsorted(EDGES, same, side="right")


def to_ask(pairs: np.ndarray, p: np.ndarray, is_judged: np.ndarray, most: int) -> np.ndarray:
    """Return the rows of pairs (int64, (m, 2)) that a judge is asked about, in the order of asking.

    They are `most` that people judged, then the `most` likeliest of each site that are not certain, sites by turns.
    """
    rows = np.flatnonzero((p < CERTAIN) | is_judged)
    rows = rows[np.lexsort((pairs[rows, 1], pairs[rows, 0], -p[rows], ~is_judged[rows]))]
    groups = np.where(is_judged[rows], -1, pairs[rows, 0] >> ID_BITS)
    ranks = np.zeros(len(rows), np.int64)
    for group in np.unique(groups):
        own = groups == group
        ranks[own] = np.arange(own.sum())
    kept = np.flatnonzero(ranks < most)
    return np.asarray(rows[kept][np.lexsort((groups[kept], ranks[kept], groups[kept] >= 0))])


def fit_trust(same: np.ndarray, p: np.ndarray, labels: np.ndarray, copies: np.ndarray, different: np.ndarray) -> Trust:
    """Fit what answers are worth.

    `same` are those about pairs with the probabilities `p`, and `labels` what people said (1, 0, NaN: nothing).
    `copies` and `different` are the answers about control pairs: a question and itself, and two that have nothing in
    common. NaN in any of these is a missing answer, which tells nothing.
    """
    known = np.isfinite(same)
    same, p, labels = same[known], np.clip(p[known], 1e-6, 1 - 1e-6), labels[known]
    copies, different = (values[np.isfinite(values)] for values in (copies, different))
    if not len(same):
        return _unused("none can be used")
    if len(same) + len(copies) + len(different) >= _FEWEST and np.ptp(np.concatenate([same, copies, different])) < 1:
        return _unused("it gave one answer to all pairs")
    said = {"a question and itself are different": copies < YES, "unrelated questions are the same": different >= YES}
    for name, wrong in said.items():
        if len(wrong) >= _LEAST_CONTROLS and wrong.mean() > _WRONG_CONTROLS:
            return _unused(f"it said {int(wrong.sum())} of {len(wrong)} times that {name}")
    bins, count = _bins(same), len(_SAME)
    of_same, of_other, shift, before = _SAME, _OTHER, 0.0, logit(p)
    for _ in range(_ROUNDS):
        prior = expit(before + shift)
        right, wrong = prior * of_same[bins], (1 - prior) * of_other[bins]
        share = np.where(np.isfinite(labels), labels, right / (right + wrong))
        of_same = np.bincount(bins, share, count) + _SAME_PAIRS * _SAME
        of_other = np.bincount(bins, 1 - share, count) + _OTHER_PAIRS * _OTHER
        of_same, of_other = of_same / of_same.sum(), of_other / of_other.sum()
        precision = _SHIFT_SPREAD**-2
        slope, curve = (share - prior).sum() - precision * shift, (prior * (1 - prior)).sum() + precision
        shift = float(np.clip(shift + slope / curve, *_SHIFT))
    yes = np.searchsorted(EDGES, YES, side="right")
    found, false_yes = float(of_same[yes:].sum()), float(of_other[yes:].sum())
    if false_yes > _FALSE_YES:
        why = f"it says yes to about {false_yes:.0%} of the wrong pairs, by {len(same)} answers"
        return _unused(why, found, false_yes)
    from scipy.optimize import isotonic_regression  # slow to import, and most runs have no judge

    # a higher answer never counts for less
    weights = np.bincount(bins, minlength=count) + _SAME_PAIRS * _SAME + _OTHER_PAIRS * _OTHER
    ratios = isotonic_regression(np.log(of_same / of_other), weights=weights).x
    return Trust(np.clip(ratios, -_MOST, _MOST).tolist(), shift, found, false_yes)


def _unused(reason: str, found: float = 0.0, false_yes: float = 0.0) -> Trust:
    return Trust([0.0] * len(_SAME), 0.0, found, false_yes, reason)


def with_answers(p: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Return the probabilities (float64) after answers added so much to the log-odds."""
    return np.asarray(expit(logit(np.clip(p.astype(np.float64), 1e-6, 1 - 1e-6)) + added))


def with_answers_of(scored: pa.Table, rows: np.ndarray, added: np.ndarray) -> pa.Table:
    """Return SCORED after answers about some `rows` (int64, (m,)) added so much to their log-odds."""
    p = scored["probability"].to_numpy().copy()
    p[rows] = with_answers(p[rows], added)
    index = scored.schema.get_field_index("probability")
    return scored.set_column(index, scored.schema.field(index), pa.array(p))


def least_share(right: int, pairs: int) -> float:
    """Return the least share of duplicates among pairs of which people found `right` right: 95 times in 100.

    This is the exact bound (Clopper and Pearson 1934). It holds for pairs like those that were judged.
    """
    return float(betaincinv(right, pairs - right + 1, 1 - _SURE)) if right else 0.0
