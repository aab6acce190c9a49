"""Principal components in one pass against scikit-learn's, which has all vectors in memory."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from dupq.export.projection import principal_axes


def points(blocks: list[np.ndarray], dimensions: int) -> np.ndarray:
    mean, axes = principal_axes(iter(blocks), dimensions)
    return (np.concatenate(blocks) - mean) @ axes


def test_the_components_are_those_of_scikit_learn() -> None:
    vectors = (np.random.default_rng(1).normal(size=(200, 7)) * np.arange(1, 8) + 3).astype(np.float16)
    found = points(np.array_split(vectors, 3), 7)
    expected = PCA(2, svd_solver="full").fit_transform(vectors.astype(np.float64))
    assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-6)


def test_blocks_do_not_matter() -> None:
    vectors = np.random.default_rng(2).normal(size=(90, 6)).astype(np.float16)
    whole = points([vectors], 6)
    for count in (2, 5, 90):
        assert points(np.array_split(vectors, count), 6) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_vectors_that_are_all_the_same_are_one_point(dimensions: int) -> None:
    assert points([np.ones((4, dimensions), np.float16)], dimensions) == pytest.approx(np.zeros((4, 2)))


def test_of_one_dimension_the_second_axis_is_zero() -> None:
    found = points([np.array([[1.0], [3.0]])], 1)
    assert found.tolist() == [[-1, 0], [1, 0]]


def test_no_vectors_are_no_points() -> None:
    assert points([np.zeros((0, 3))], 3).shape == (0, 2)
