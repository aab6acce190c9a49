"""Whether two systems differ on the same queries or pairs."""

import numpy as np

_DRAWN_AT_ONCE = 1 << 22  # signs in memory
_CLOSE = 1e-12  # sums in another order differ by less


def randomisation_test(left: np.ndarray, right: np.ndarray, seed: int, resamples: int = 10_000) -> float:
    """How likely the means of two systems on the same queries would differ so much if it were chance which is which.

    The paired randomisation test (Fisher 1935; Smucker, Allan and Carterette 2007), two-sided: the sign of each
    query's difference is drawn. Where there are no more than `resamples` ways to choose them, all are tried, and the
    p-value is exact; else it is (1 + those as far from 0) / (1 + resamples), which is never 0. Accuracies of pairs
    are tested so too, with 1 for a pair that is called right and 0 for another: exactly, that is McNemar's exact test.
    Raises ValueError where the numbers of values differ.
    """
    if len(left) != len(right):
        raise ValueError(f"{len(left)} and {len(right)} values; those of the same queries expected")
    differences = (left - right)[left != right]  # the others are 0 with either sign
    reached = abs(differences.sum()) - _CLOSE * np.abs(differences).sum()
    if 2 ** min(len(differences), 63) <= resamples:
        ways = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        return float(np.mean(np.abs(_signed_sums(ways, differences)) >= reached))
    generator, count = np.random.default_rng(seed), 0
    most = max(1, _DRAWN_AT_ONCE // len(differences))
    for start in range(0, resamples, most):
        rows = min(most, resamples - start)
        ways = generator.integers(0, 2, (rows, len(differences)), dtype=np.int8)
        count += int(np.count_nonzero(np.abs(_signed_sums(ways, differences)) >= reached))
    return (1 + count) / (1 + resamples)


def _signed_sums(ways: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """The sums (float64, shape (w,)) of the differences, with a minus where `ways` ((w, q)) has 1."""
    return differences.sum() - 2 * (ways @ differences)
