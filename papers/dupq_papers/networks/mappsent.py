"""MappSent: a textual mapping approach for question-to-question similarity (Hazem, Boussaha, Hernandez, RANLP 2017).

Nothing is learned by gradients. The mapping is Artetxe, Labaka and Agirre's (EMNLP 2016), in closed form.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Embedding, Encoder, WordTable, known_words
from dupq.encoders.unpadded import sums_of_words
from dupq.settings.sections import Components
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.products import in_blocks
from dupq_papers.networks.word_sums import (
    CountedSettings,
    full_precision,
    principal_components,
    vectors_of,
    weighted_sums,
    without_components,
)


class MappSentSettings(CountedSettings):
    """Settings of MappSent."""

    kind: Literal["mappsent"] = "mappsent"
    mapping: Literal["orthogonal", "none"] = Field("orthogonal", description="none: the paper's MappSent-.")
    removed_components: Components = Field(0, description="First principal components that are removed.")

    def network(self, word_vectors: np.ndarray) -> "MappSent":
        """See NetworkSettings."""
        words = WordTable(word_vectors, is_updated=False)
        return MappSent(words, self.mapping == "orthogonal", self.removed_components)


class MappSent(Encoder):
    """Section 3: s = sum_w v_w; u = s/|s|; m = (u - mean) R; then m less its projections on principal components.

    The mean is that of u over the questions that `prepare` gets, as Artetxe et al. centre whole spaces: the whole
    archive, or with `encoder.taken_from` = "training" (section 3: "PCA on the training dataset") all questions that are
    not held out. R minimises the sum over the known duplicates of |(u_left - mean) R - (u_right - mean)|^2 among
    orthogonal matrices. Left is the older question of a pair: the paper maps original questions onto related ones, and
    then, as here, both by the same R. Components are those of m over the questions of the mean. Without mapping this is
    the paper's MappSent-: the plain sum less components.

    An orthogonal map of both questions does not change their cosine. So MappSent differs from MappSent- by centring and
    by components of centred vectors of length 1; R itself changes no score. Unknown words are left out.
    """

    word_weights: torch.Tensor  # (V,)
    mean: torch.Tensor  # (D,)
    mapping: torch.Tensor  # (D, D)
    components: torch.Tensor  # (K, D)

    def __init__(self, words: nn.Embedding, mapped: bool, components: int) -> None:
        """Use unit length, centring and R if `mapped`; remove `components`: 0, or the paper's 1 or 2."""
        super().__init__()
        self.dimensions = words.embedding_dim
        self.mapped = mapped
        self.words = words
        self.register_buffer("word_weights", known_words(words.num_embeddings), persistent=False)
        self.register_buffer("mean", torch.zeros(self.dimensions))
        self.register_buffer("mapping", torch.eye(self.dimensions))
        self.register_buffer("components", torch.zeros(components, self.dimensions))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder. A text without a known word counts as empty."""
        with full_precision(ids.device):
            return Embedding(without_components(self._mapped(ids, lengths), self.components))

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        sums = sums_of_words(self.words, self.word_weights[torch.from_numpy(texts.ids)], texts)
        return in_blocks(lambda block: without_components(self._map(block), self.components), sums)

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take the mean and the components from `texts`, the mapping from `pairs`."""
        device = self.words.weight.device
        self.mean.zero_()
        self.mapping.copy_(torch.eye(self.dimensions))
        if self.mapped:
            self.mean.copy_(torch.from_numpy(_mean(vectors_of(self._mapped, texts, device), self.dimensions)))
            sides = vectors_of(self._mapped, (side for pair in pairs for side in pair), device)
            self.mapping.copy_(torch.from_numpy(orthogonal_map(sides, self.dimensions)))
        if len(self.components):
            vectors = vectors_of(self._mapped, texts, device)
            components = principal_components(vectors, self.dimensions, len(self.components))
            self.components.copy_(torch.from_numpy(components))

    def _mapped(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self._map(weighted_sums(self.words, self.word_weights, ids, lengths))

    def _map(self, sums: torch.Tensor) -> torch.Tensor:
        if not self.mapped:
            return sums
        norms = torch.linalg.vector_norm(sums, dim=1, keepdim=True)
        unit = sums / torch.where(norms > 0, norms, 1.0)
        return ((unit - self.mean) @ self.mapping) * (norms > 0)


def _mean(vectors: Iterator[np.ndarray], dimensions: int) -> np.ndarray:
    """Return the mean of the rows that are not zero."""
    total, number = np.zeros(dimensions), 0
    for rows in vectors:
        total += rows.sum(axis=0)
        number += int(rows.any(axis=1).sum())
    return total / max(1, number)


def orthogonal_map(vectors: Iterable[np.ndarray], dimensions: int) -> np.ndarray:
    """Return the orthogonal R (D, D) that minimises sum |x R - z|^2 (Schönemann 1966): U V^T of the SVD of X^T Z.

    Rows of `vectors` are x, z, x, z …, in batches of whole pairs; only X^T Z is held in memory. Where the pairs leave R
    open, it is some orthogonal completion.
    """
    product = np.zeros((dimensions, dimensions))
    for rows in vectors:
        product += rows[0::2].T @ rows[1::2]
    left, _, right = np.linalg.svd(product)
    return left @ right
