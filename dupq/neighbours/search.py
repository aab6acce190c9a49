"""The exact nearest neighbours of questions among all questions, block by block.

Scores of a whole block of queries against a block of targets come from one float32 matrix product; it only
chooses candidates. What is within its error of the k-th best is scored again in float64 from the saved
float16 embeddings, so that the answer depends on the embeddings alone: not on blocks, threads or order.
"""

from collections.abc import Iterable

import numpy as np
import torch

from dupq.neighbours.embeddings import Embeddings, Neighbours


def top_k(queries: Embeddings, targets: Iterable[Embeddings], k: int) -> Neighbours:
    """The k nearest targets of each query by cosine, ties by key; a question is no neighbour of itself.

    Zero embeddings (empty texts) have no neighbours and are nobody's. Fewer than k targets give fewer rows.
    Memory: len(queries) times the largest target block, times 4 bytes, and a few candidates a query.
    """
    queries = _without_zeros(queries)
    query_units = _units(queries.vectors)
    margin = 2.0 * _product_error(queries.vectors.shape[1])
    best = torch.full((len(queries.keys), k), -torch.inf)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for block in targets:
        target = _without_zeros(block)
        if not len(target.keys) or not len(queries.keys):
            continue
        scores = torch.from_numpy(query_units.astype(np.float32)) @ _float32_units(target).T
        scores.masked_fill_(torch.from_numpy(queries.keys[:, None] == target.keys[None, :]), -torch.inf)
        block_best = scores.topk(min(k, scores.shape[1]), dim=1).values
        best = torch.cat([best, block_best], dim=1).topk(k, dim=1).values
        bound = (best[:, -1] - margin).clamp_min(-2.0)  # every cosine is above -2, a masked score is not
        rows, columns = (index.numpy() for index in torch.nonzero(scores >= bound[:, None], as_tuple=True))
        found.append((rows, target.keys[columns], _cosines(queries.vectors[rows], target.vectors[columns])))
    return _nearest(queries.keys, found, k)


def _product_error(dimensions: int) -> float:
    """A bound on the error of a float32 product of two unit vectors: Higham's gamma_n, twice for their rounding."""
    unit_roundoff = 2.0**-24
    return 2.0 * (dimensions + 2) * unit_roundoff


def _without_zeros(embeddings: Embeddings) -> Embeddings:
    nonzero = embeddings.vectors.any(axis=1)
    return Embeddings(embeddings.keys[nonzero], embeddings.vectors[nonzero])


def _units(vectors: np.ndarray) -> np.ndarray:
    exact = vectors.astype(np.float64)
    return exact / np.sqrt(np.einsum("ij,ij->i", exact, exact))[:, None]


def _float32_units(embeddings: Embeddings) -> torch.Tensor:
    return torch.from_numpy(_units(embeddings.vectors).astype(np.float32))


def _cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosines (float32) of candidate pairs, in pieces that bound memory.

    Sums of float16 products are exact, or nearly so, in float64: a cosine of zero is zero, and a pair has the
    same one in both directions.
    """
    result = np.empty(len(left), np.float32)
    for start in range(0, len(left), 65_536):
        sides = [side[start : start + 65_536].astype(np.float64) for side in (left, right)]
        squares = [np.einsum("ij,ij->i", side, side) for side in sides]
        result[start : start + 65_536] = np.einsum("ij,ij->i", *sides) / np.sqrt(squares[0] * squares[1])
    return result


def _nearest(keys: np.ndarray, found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], k: int) -> Neighbours:
    if not found:
        return Neighbours(*(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float32, np.int32)))
    rows, neighbours, similarities = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((neighbours, -similarities, keys[rows]))
    rows, neighbours, similarities = rows[order], neighbours[order], similarities[order]
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    ranks = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)])) + 1
    kept = ranks <= k
    return Neighbours(keys[rows[kept]], neighbours[kept], similarities[kept], ranks[kept].astype(np.int32))
