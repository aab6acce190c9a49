"""The exact search in one process: the nearest targets of some queries, or all pairs of a whole archive."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from dupq.devices import CPU
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.exact import gpu_can_search, rule_of
from dupq.neighbours.measure import Measure
from dupq.neighbours.nearest import Nearest, empty_nearest, merge
from dupq.neighbours.tiles import Block, Pairs, Search, block, search_tile


def top_k(
    queries: Embeddings, targets: Iterable[Embeddings], k: int, measure: Measure, device: str = CPU
) -> Neighbours:
    """The k nearest targets of each query by `measure`, ties by key; a question is not its own neighbour.

    Zero embeddings (empty texts) neither have neighbours nor are any. Fewer than k targets give fewer rows. Memory:
    see `search_tile`, for the queries and the largest target block. A GPU is left alone if it cannot score so.
    """
    if device != CPU and gpu_can_search(measure):
        import torch

        from dupq.neighbours.gpu.search import nearest_targets  # with Triton, which takes 70 MB

        return as_neighbours(*nearest_targets(queries, targets, measure, k, torch.device(device)), measure)
    ready, search = block(queries, measure), Search(measure, k)
    nearest = empty_nearest(len(ready.keys), k)
    for target in targets:
        merge(nearest, search_tile(ready, block(target, measure), search, both=False)[0])
    return as_neighbours(ready.keys, nearest, measure)


def all_pairs(blocks: Sequence[Block], search: Search, threads: int = 1) -> tuple[list[Nearest], Pairs]:
    """The k best of the questions of each block among all, and all pairs above the threshold, sorted by keys.

    No two blocks have a key in common.
    """
    nearest = [empty_nearest(len(block.keys), search.k) for block in blocks]
    pairs = []
    pool = ThreadPoolExecutor(threads, initializer=threadpool_limits, initargs=(1,))  # OpenMP's limits are by thread
    with threadpool_limits(1, "blas"), pool:
        for indices in tile_places(len(blocks)):
            known = [one.worst if one.worst is None else one.worst.copy() for one in nearest]
            found = pool.map(
                lambda index, known: search_tile(
                    blocks[index[0]], blocks[index[1]], search, known=(known[index[0]], known[index[1]])
                ),
                indices,
                [known] * len(indices),
            )
            for (left, right), (of_left, of_right, over) in zip(indices, found, strict=True):
                merge(nearest[left], of_left)
                if left != right:
                    merge(nearest[right], of_right)
                pairs.append(over)
    return nearest, sorted_pairs(pairs)


def tile_places(blocks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The tiles of the upper triangle: each block with itself, then all others, by rows.

    What the first find raises the bounds of the others, and spares them most of their candidates.
    """
    ordered = [(left, right) for left in range(blocks) for right in range(left + 1, blocks)]
    return [(number, number) for number in range(blocks)], ordered


def sorted_pairs(pairs: Sequence[Pairs]) -> Pairs:
    """All pairs, sorted by their keys."""
    left, right, similarities = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    order = np.lexsort((right, left))
    return Pairs(left[order], right[order], similarities[order])


def as_neighbours(keys: np.ndarray, nearest: Nearest, measure: Measure) -> Neighbours:
    """The lists of the questions `keys` as rows, sorted by query and rank."""
    rows, ranks = np.nonzero(nearest.others >= 0)
    similarities = rule_of(measure).similarities(nearest.scores[rows, ranks])
    return Neighbours(keys[rows], nearest.others[rows, ranks], similarities, (ranks + 1).astype(np.int32))
