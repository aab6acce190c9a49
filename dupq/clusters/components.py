"""Connected components of a graph of questions, on verified edges only."""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components


def components(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The questions that `edges` touch, and for each the smallest key of its component.

    `edges` is int64 of shape (m, 2). Both results are int64 and sorted by question. The answer does not
    depend on the order of the edges.
    """
    members, ends = np.unique(edges, return_inverse=True)
    ends = ends.reshape(edges.shape)
    graph = sparse.coo_matrix(
        (np.ones(len(edges), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(members), len(members))
    )
    count, labels = connected_components(graph, directed=False)
    smallest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(smallest, labels, members)
    return members, smallest[labels]
