"""Parts that SIF and MappSent share: sums of word vectors, and removing their principal components."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.bags import in_batches
from dupq.encoders.protocol import NetworkSettings, batches, token_mask
from dupq.text.token_arrays import TokenIds

_ROWS = 64


class CountedSettings(NetworkSettings):
    """Settings of a network that counts over texts and learns nothing by gradients."""

    taken_from: Literal["archive", "training"] = Field(
        "archive", description="The texts of the sums; training: not those of the development and test parts."
    )


def weighted_sums(words: nn.Embedding, weights: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums (B, D) of the vectors of the first `lengths` (B,) words of each row of `ids` (B, L).

    `weights` has one entry per id of the vocabulary.
    """
    return (words(ids) * (weights[ids] * token_mask(ids, lengths))[:, :, None]).sum(dim=1)


def count_ids(texts: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Return how often each id of a vocabulary of `size` occurs in `texts` (int64)."""
    counts = np.zeros(size, np.int64)
    for batch in in_batches(texts):
        counts += np.bincount(np.concatenate(batch), minlength=size)
    return counts


def vectors_of(
    embed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], texts: Iterable[np.ndarray], device: torch.device
) -> Iterator[np.ndarray]:
    """Yield the vectors (float64) that `embed` (ids, lengths → (B, D)) gives for texts, in order and in batches."""
    with torch.inference_mode():
        for batch_of_texts in in_batches(texts):
            rows: np.ndarray | None = None
            for batch in batches(TokenIds.of(batch_of_texts), _ROWS, device):
                vectors = embed(batch.ids, batch.lengths)
                if rows is None:
                    rows = np.zeros((len(batch_of_texts), vectors.shape[1]))
                rows[batch.texts] = vectors[: len(batch.texts)].double().cpu().numpy()
            if rows is not None:
                yield rows


def principal_components(vectors: Iterable[np.ndarray], dimensions: int, number: int) -> np.ndarray:
    """Return the first `number` principal components (float64, shape (number, D)) of batches of vectors.

    They are the first right singular vectors of all rows, not centred, as in the code of Arora et al. 2017: the
    eigenvectors of the D x D matrix of second moments. Only this matrix is held in memory. Components beyond the rank
    of the vectors are zero.
    """
    moment = np.zeros((dimensions, dimensions))
    for rows in vectors:
        moment += rows.T @ rows
    values, components = np.linalg.eigh(moment)
    first = components[:, ::-1][:, :number].T.copy()
    first[values[::-1][:number] <= values[-1] * 1e-12] = 0.0
    return np.concatenate([first, np.zeros((number - len(first), dimensions))])


def without_components(vectors: torch.Tensor, components: torch.Tensor) -> torch.Tensor:
    """Return `vectors` (B, D) less their projections on `components` (K, D), which are orthonormal or zero."""
    if not len(components):
        return vectors
    return vectors - (vectors @ components.T) @ components


def full_precision(device: torch.device) -> torch.autocast:
    """Return a context without half-precision products, so that a common component is removed to its last digit."""
    return torch.autocast(device.type, enabled=False)
