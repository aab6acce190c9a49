"""A teacher's embeddings, site by site, and how far a student is from them."""

import numpy as np
import pytest

from dupq.text.keys import ID_BITS
from dupq.training.pairs import distillation_targets, targets_in_order


def keys_of(sizes: list[int]) -> np.ndarray:
    return np.concatenate([np.arange(size) | (site << ID_BITS) for site, size in enumerate(sizes)])


def test_targets_are_of_length_1_and_their_sites_have_nothing_in_common() -> None:
    keys, generator = keys_of([50, 1, 30]), np.random.default_rng(2)
    embeddings = (generator.normal(size=(81, 5)) + 3 * (keys >> ID_BITS)[:, None]).astype(np.float32)
    before = embeddings.copy()
    actual = distillation_targets(keys, embeddings)
    assert np.array_equal(embeddings, before)
    for site, size in ((0, 50), (2, 30)):
        of_site = keys >> ID_BITS == site
        expected = embeddings[of_site] - embeddings[of_site].sum(axis=0) / size
        expected /= np.linalg.norm(expected, axis=1)[:, None]
        assert actual.vectors[of_site] == pytest.approx(expected, abs=1e-5)
    assert not actual.vectors[keys >> ID_BITS == 1].any()


def test_batches_are_of_one_site_and_the_rest_is_mixed() -> None:
    keys = keys_of([230, 70, 260])
    targets = distillation_targets(keys, np.random.default_rng(2).normal(size=(560, 4)).astype(np.float32))
    for epoch in (1, 2):
        order = targets_in_order(targets, 1, epoch, 100).left
        assert len(order) == len(set(order.tolist()))
        sites = [set((order[start : start + 100] >> ID_BITS).tolist()) for start in range(0, len(order), 100)]
        assert [len(batch) for batch in sites[:4]] == [1, 1, 1, 1]
        assert sites[4] == {0, 1, 2}
        assert set(keys.tolist()) >= set(order.tolist())
        assert len(order) == 500  # a last batch of 60 waits
