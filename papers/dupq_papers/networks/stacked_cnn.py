"""The Siamese CNN of Othman et al. (DKE 2021) with the layers of section 5.4."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Dropout, Embedding, LearnedSettings, token_mask
from dupq.settings.sections import Length, Words
from dupq_papers.networks.distances import DistanceEncoder, Similarity
from dupq_papers.networks.dropout import DropoutOf, FeatureDropout


class StackedCNNSettings(LearnedSettings):
    """Settings of StackedCNN."""

    kind: Literal["stacked_cnn"] = "stacked_cnn"
    units: Length = Field(50, description="Length of an embedding.")
    layers: Words = Field(3, description="Layers of convolution and pooling.")
    window: Words = Field(3, description="Places of a window, of words or of the layer before.")
    filters: Length = Field(32, description="Filters of each layer.")
    pool: Words = Field(2, description="Places that are pooled to one after each convolution.")
    dropout: Dropout = Field(0.5, description="Share of the pooled features left out of a training step.")
    dropout_of: DropoutOf = Field(
        "step",
        description="texts: others of each text are left out; step: the same of all texts of a worker's step.",
    )
    scale: Literal["mean", "sum"] = Field(
        "mean", description="mean: an embedding is divided by its length, so that exp(-L1) starts near 1, not at 0."
    )
    similarity: Similarity = Field(
        "cosine", description="Of two embeddings; manhattan is exp(-L1), euclidean exp(-L2)."
    )

    def network(self, word_vectors: np.ndarray) -> "StackedCNN":
        """See NetworkSettings."""
        return StackedCNN(self.words(word_vectors), self)


class StackedCNN(DistanceEncoder):
    """`layers` times convolution, ReLU and max-pooling, then dropout and a fully connected layer (sections 4, 5.4).

    f_i = ReLU(T_{i:i+w-1} o F + b), equation 11; T are the word vectors or the output of the layer before, 0 after
    the end. The highest of every `pool` positions stays, so three layers of pool 2 shorten the text to an eighth. Then
    the highest position of each filter is taken: the paper says neither this nor to which length it pads. "A dropout
    layer after both a convolution and max-pooling layer" (section 4.2) is one layer after them; see FeatureDropout.

    The outputs of the fully connected layer are divided by their number, so they start and change 1/units as large.
    exp(-|a - b|_1) sums over all outputs: for 50 outputs that differ by 1 it is exp(-50), and so is its gradient. Long
    texts would start there. The equations stay those of the paper.
    """

    def __init__(self, words: nn.Embedding, settings: StackedCNNSettings) -> None:
        """Begin with the t_k = `words`, one row per id."""
        super().__init__()
        self.dimensions = settings.units
        self.kind = settings.similarity
        self.words = words
        sizes = [words.embedding_dim, *[settings.filters] * settings.layers]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, settings.filters, settings.window) for size in sizes[: settings.layers]
        )
        self.window, self.pool = settings.window, settings.pool
        self.dropout = FeatureDropout(settings.dropout, settings.filters, settings.dropout_of)
        self.connected = nn.Linear(settings.filters, settings.units)
        self.divisor = settings.units if settings.scale == "mean" else 1

    def begin_step(self) -> None:
        """See Encoder."""
        self.dropout.draw()

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        tokens, sizes = token_mask(ids, lengths), lengths
        layer = (self.words(ids) * tokens[:, :, None]).transpose(1, 2)  # (B, d, L)
        for convolution in self.convolutions:
            local = torch.relu(convolution(nn.functional.pad(layer, (0, self.window - 1))))  # (B, m, L)
            local = local * (torch.arange(local.shape[2], device=ids.device) < sizes[:, None])[:, None]
            layer, sizes = nn.functional.max_pool1d(local, self.pool, ceil_mode=True), -(-sizes // self.pool)
        features = self.dropout(layer.amax(dim=2))  # padding is 0, and ReLU is never below it
        embedding = self.connected(features) / self.divisor
        return Embedding(embedding * (lengths > 0)[:, None])
