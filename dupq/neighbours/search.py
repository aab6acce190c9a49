"""The exact nearest neighbours of questions among all questions, block by block.

Scores of a whole block of queries against a block of targets are quick float32 ones; they only choose candidates.
What is within their error of the k-th best is scored again in float64 from the saved float16 embeddings, so that
the answer depends on the embeddings alone: not on blocks, threads or order.
"""

from collections.abc import Iterable

import numpy as np
import torch

from dupq.encoders.measure import Measure
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.scores import Scorer, scorer_for


def top_k(queries: Embeddings, targets: Iterable[Embeddings], k: int, measure: Measure) -> Neighbours:
    """The k nearest targets of each query by `measure`, ties by key; a question is no neighbour of itself.

    Zero embeddings (empty texts) have no neighbours and are nobody's. Fewer than k targets give fewer rows.
    Memory: len(queries) times the largest target block, times 4 bytes (20 with bags of words), and a few
    candidates a query.
    """
    queries = queries.take(~queries.is_empty)
    scorer = scorer_for(measure, queries)
    best = torch.full((len(queries.keys), k), -torch.inf)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for block in targets:
        target = block.take(~block.is_empty)
        if not len(target.keys) or not len(queries.keys):
            continue
        scores = scorer.quick(target)
        scores.masked_fill_(torch.from_numpy(queries.keys[:, None] == target.keys[None, :]), -torch.inf)
        block_best = scores.topk(min(k, scores.shape[1]), dim=1).values
        best = torch.cat([best, block_best], dim=1).topk(k, dim=1).values
        bound = scorer.bound(best[:, -1]).clamp_min(torch.finfo(torch.float32).min)  # over a masked score
        rows, columns = (index.numpy() for index in torch.nonzero(scores >= bound[:, None], as_tuple=True))
        exact = scorer.exact(queries, rows, target, columns)
        found.append((rows, target.keys[columns], exact.astype(np.float32)))
    return _nearest(queries.keys, found, k, scorer)


def _nearest(
    keys: np.ndarray, found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], k: int, scorer: Scorer
) -> Neighbours:
    if not found:
        return Neighbours(*(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float32, np.int32)))
    rows, neighbours, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((neighbours, -values, keys[rows]))
    rows, neighbours, values = rows[order], neighbours[order], values[order]
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    ranks = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)])) + 1
    kept = ranks <= k
    similarities = scorer.similarities(values[kept]).astype(np.float32)
    return Neighbours(keys[rows[kept]], neighbours[kept], similarities, ranks[kept].astype(np.int32))
