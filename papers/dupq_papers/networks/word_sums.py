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
    """A network that takes sums over texts, and learns nothing by gradients."""

    taken_from: Literal["archive", "training"] = Field(
        "archive", description="The texts of the sums; training: not those of the development and test parts."
    )


def weighted_sums(words: nn.Embedding, weights: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The sums (B, D) of the vectors of the first `lengths` (B,) words of each row of `ids` (B, L), times `weights`.

    `weights` has one entry an id of the vocabulary.
    """
    return (words(ids) * (weights[ids] * token_mask(ids, lengths))[:, :, None]).sum(dim=1)


def count_ids(texts: Iterable[np.ndarray], size: int) -> np.ndarray:
    """How often each id of a vocabulary of `size` occurs in `texts` (int64)."""
    counts = np.zeros(size, np.int64)
    for some in in_batches(texts):
        counts += np.bincount(np.concatenate(some), minlength=size)
    return counts


def vectors_of(
    embed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], texts: Iterable[np.ndarray], device: torch.device
) -> Iterator[np.ndarray]:
    """The vectors that `embed` (ids, lengths → (B, D)) gives for texts, some rows at a time (float64), in order."""
    with torch.inference_mode():
        for some in in_batches(texts):
            rows: np.ndarray | None = None
            for batch in batches(TokenIds.of(some), _ROWS):
                found = embed(torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.lengths).to(device))
                if rows is None:
                    rows = np.zeros((len(some), found.shape[1]))
                rows[batch.texts] = found[: len(batch.texts)].double().cpu().numpy()
            if rows is not None:
                yield rows


def principal_components(vectors: Iterable[np.ndarray], dimensions: int, number: int) -> np.ndarray:
    """The first `number` principal components (float64, shape (number, D)) of vectors that come some rows at a time.

    They are the first right singular vectors of all rows together, not centred, as in the code of Arora et al.
    2017: the eigenvectors of the D x D matrix of second moments, which is all that is held. Components beyond the
    rank of the vectors are zero.
    """
    moment = np.zeros((dimensions, dimensions))
    for rows in vectors:
        moment += rows.T @ rows
    values, components = np.linalg.eigh(moment)
    first = components[:, ::-1][:, :number].T.copy()
    first[values[::-1][:number] <= values[-1] * 1e-12] = 0.0
    return np.concatenate([first, np.zeros((number - len(first), dimensions))])


def without_components(vectors: torch.Tensor, components: torch.Tensor) -> torch.Tensor:
    """`vectors` (B, D) less their projections on `components` (K, D), which are orthonormal or zero."""
    if not len(components):
        return vectors
    return vectors - (vectors @ components.T) @ components


def full_precision(device: torch.device) -> torch.autocast:
    """A context without half-precision products: a component that most vectors share must go to its last digit."""
    return torch.autocast(device.type, enabled=False)
