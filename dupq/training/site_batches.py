"""Batches of one site: questions of different sites would be told apart by their subject alone."""

import numpy as np

_LEAST_BATCH = 64  # rows: a smaller last batch would be too easy, and waits for the next epoch


def site_batches(sites: np.ndarray, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Rows in whole batches, each of one of `sites` (one a row); the remainders of all sites make mixed batches."""
    order = generator.permutation(len(sites))
    whole, rests = [], []
    for site in np.unique(sites):
        rows = order[sites[order] == site]
        end = len(rows) - len(rows) % size
        whole += [rows[start : start + size] for start in range(0, end, size)]
        rests.append(rows[end:])
    rest = generator.permutation(np.concatenate([np.zeros(0, np.int64), *rests]))
    batches = [whole[index] for index in generator.permutation(len(whole))]
    batches += [rest[start : start + size] for start in range(0, len(rest), size)]
    if len(batches) > 1 and len(batches[-1]) < min(_LEAST_BATCH, size):
        batches.pop()
    return batches
