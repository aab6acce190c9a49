"""Lists of words for some questions of each side, against the product of the two matrices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dupq.neighbours.postings import bags_of, rest_between
from dupq.neighbours.scan import complete


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.6]), st.sampled_from([1.0, -0.5]))
def test_what_lists_add_is_the_product_of_both_sides(seed: int, density: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    left, right = (
        sparse.random_array((rows, 30), density=density, rng=generator, format="csr", dtype=np.float32)
        for rows in (17, 23)
    )
    rows = np.flatnonzero(generator.random(17) < 0.5)
    columns = np.flatnonzero(generator.random(23) < 0.5)
    numbers = np.zeros(30, np.int32)
    found = rest_between(bags_of(left, scale), bags_of(right), rows, columns, numbers)
    scores = complete(np.zeros((len(rows), 64), np.float32), found)[:, : len(columns)]
    wanted = scale * left.toarray()[rows].astype(np.float64) @ right.toarray()[columns].T
    assert np.abs(scores - wanted).max(initial=0) < 1e-5
    assert not numbers.any()
