"""Smooth inverse frequency: a simple but tough-to-beat baseline for sentence embeddings (Arora et al., ICLR 2017).

It is the system that Hazem et al. 2017 compare MappSent with (Arora and Arora_pca). Nothing is learned by gradients.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Embedding, Encoder, WordTable, known_words
from dupq.encoders.unpadded import sums_of_words
from dupq.settings.sections import Components, MoreThanZero
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.products import in_blocks
from dupq_papers.networks.word_sums import (
    CountedSettings,
    count_ids,
    full_precision,
    principal_components,
    vectors_of,
    weighted_sums,
    without_components,
)


class SIFSettings(CountedSettings):
    """Settings of SIF."""

    needs_links: ClassVar[bool] = False
    kind: Literal["sif"] = "sif"
    smoothing: MoreThanZero = Field(1e-3, description="a of the weight a / (a + p(w)) of a word.")
    removed_components: Components = Field(0, description="First principal components that are removed.")

    def network(self, word_vectors: np.ndarray) -> "SIF":
        """See NetworkSettings."""
        return SIF(WordTable(word_vectors, is_updated=False), self.smoothing, self.removed_components)


class SIF(Encoder):
    """Algorithm 1: v_s = 1/|s| sum_w a/(a + p(w)) v_w, then v_s - U U^T v_s.

    p(w) is the share of a word in the questions that `prepare` gets (`encoder.taken_from`), as the encoder reads them.
    The rows of U^T are the first principal components of all their v_s. Unknown words have weight 0 and count for p(w)
    and |s| only.
    """

    word_weights: torch.Tensor  # (V,)
    components: torch.Tensor  # (K, D)

    def __init__(self, words: nn.Embedding, smoothing: float, components: int) -> None:
        """Begin with a = `smoothing` (the paper's 1e-3); remove `components`: 0, or the paper's 1."""
        super().__init__()
        self.dimensions = words.embedding_dim
        self.smoothing = smoothing
        self.words = words
        self.register_buffer("word_weights", known_words(words.num_embeddings))
        self.register_buffer("components", torch.zeros(components, self.dimensions))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        with full_precision(ids.device):
            return Embedding(without_components(self._average(ids, lengths), self.components))

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        sums = sums_of_words(self.words, self.word_weights[torch.from_numpy(texts.ids)], texts)
        averages = sums / torch.from_numpy(texts.lengths).clamp_min(1)[:, None]
        return in_blocks(lambda block: without_components(block, self.components), averages)

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Compute the words' weights and the components from `texts`; `pairs` are not read."""
        counts = count_ids(texts, len(self.word_weights))
        share = torch.from_numpy(counts / max(1, counts.sum()))
        weights = (self.smoothing / (self.smoothing + share)).float()
        self.word_weights.copy_(weights * known_words(len(counts)))
        if len(self.components):
            vectors = vectors_of(self._average, texts, self.words.weight.device)
            components = principal_components(vectors, self.dimensions, len(self.components))
            self.components.copy_(torch.from_numpy(components))

    def _average(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        sums = weighted_sums(self.words, self.word_weights, ids, lengths)
        return sums / lengths.clamp_min(1)[:, None]
