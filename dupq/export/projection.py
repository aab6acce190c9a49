"""Principal components of embeddings that memory does not hold."""

from collections.abc import Iterable

import numpy as np


def principal_axes(blocks: Iterable[np.ndarray], dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean (shape (d,)) and the two axes of most variance (shape (d, 2)) of vectors in blocks (n, d).

    They come from the covariances, so one pass and d x d numbers are enough, and, up to rounding, the blocks do not
    matter; those of scikit-learn's IncrementalPCA would change with them. An axis points to where its largest component
    is positive, the first of equal ones. With one dimension the second axis is zero.
    """
    count, total, products = 0, np.zeros(dimensions), np.zeros((dimensions, dimensions))
    for block in blocks:
        wide = block.astype(np.float64)
        count += len(wide)
        total += wide.sum(axis=0)
        products += wide.T @ wide
    mean = total / max(1, count)
    _, vectors = np.linalg.eigh(products / max(1, count) - np.outer(mean, mean))
    axes = np.zeros((dimensions, 2))
    axes[:, : min(2, dimensions)] = vectors[:, ::-1][:, :2]
    largest = np.abs(axes).argmax(axis=0)
    return mean, np.where(axes[largest, [0, 1]] < 0, -axes, axes)
