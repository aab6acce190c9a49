"""The convolutional network of Bogdanova et al. (CoNLL 2015), sections 4.2 and 4.3."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Embedding, Encoder, LearnedSettings, token_mask
from dupq.settings.sections import Length
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.products import Window, convolve, sums_of_rows, window_products, window_sums
from dupq_papers.networks.windows import highest, highest_windows


class CNNSettings(LearnedSettings):
    """Settings of CNN."""

    kind: Literal["cnn"] = "cnn"
    units: Length = Field(300, description="Length of an embedding.")
    window: Window = Field(3, description="Words of a window, odd.")
    pooling: Literal["sum", "max"] = Field("max", description="Over the windows of a text.")

    def network(self, word_vectors: np.ndarray) -> "CNN":
        """See NetworkSettings."""
        return CNN(self.words(word_vectors), self.units, self.window, self.pooling)


class CNN(Encoder):
    """Equation 2: [r]_j = f(sum_n [f(W1 z_n + b1)]_j), f = tanh, z_n the k word vectors around word n.

    With pooling "max" the maximum over n replaces the sum. Windows beyond the ends of the question see the common
    padding vector (footnote 6). Scored by cosine.
    """

    def __init__(self, words: nn.Embedding, units: int, window: int, pooling: str) -> None:
        """Begin with W0 = `words`, one row per id of the vocabulary; `window` is k, odd."""
        super().__init__()
        self.dimensions = units
        self.window = window
        self.pooling = pooling
        self.words = words
        self.convolution = nn.Linear(window * words.embedding_dim, units)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        if self.pooling == "max":  # tanh is monotonic, so it can be applied to the maximum
            maxima = highest(self.words, self.convolution, self.window, ids, lengths)
            return Embedding(torch.tanh(torch.tanh(torch.where((lengths > 0)[:, None], maxima, 0.0))))
        local = torch.tanh(convolve(self.words, self.convolution, self.window, ids))
        return Embedding(torch.tanh((local * token_mask(ids, lengths)[:, :, None]).sum(dim=1)))

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder. tanh(x) is computed as 2 sigmoid(2 x) - 1, which is six times as fast in torch."""
        products = window_products(self.words, self.convolution, self.window, texts)
        lengths = torch.from_numpy(texts.lengths)[:, None]
        if self.pooling == "max":
            maxima = torch.tanh(highest_windows(products) + self.convolution.bias)
            return torch.tanh(torch.where(lengths > 0, maxima, 0.0))
        pooled = products.table.new_empty(len(texts), self.dimensions)
        for rows, local, begins in window_sums(products):
            sigmoids = local.add_(self.convolution.bias).mul_(2).sigmoid_()
            pooled[rows] = sums_of_rows(sigmoids, begins)
        return torch.tanh(2 * pooled - lengths)
