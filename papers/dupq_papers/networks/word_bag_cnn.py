"""dupq's weighted bag of words with word order: each word vector is changed by the words around it."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.on_device import DeviceTexts
from dupq.encoders.protocol import Dropout, Embedding, LearnedSettings, token_mask
from dupq.encoders.word_bag import WordBag
from dupq.settings.sections import Length
from dupq.text.questions import FIRST_WORD
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.products import Window, convolve, in_blocks, sums_of_rows, window_products, window_sums


class WordBagCNNSettings(LearnedSettings):
    """Settings of WordBagCNN."""

    kind: Literal["word_bag_cnn"] = "word_bag_cnn"
    units: Length = Field(300, description="Features of a window.")
    window: Window = Field(3, description="Words of a window, odd.")
    dropout: Dropout = Field(0.5, description="Share of the words left out of the bag in a training step.")

    def network(self, word_vectors: np.ndarray) -> "WordBagCNN":
        """See NetworkSettings."""
        return WordBagCNN(self.words(word_vectors), self.dropout, self.units, self.window)


class WordBagCNN(WordBag):
    """A WordBag whose dense vector is the sum over words of a_w n^(p - 1) (v_w + U relu(W1 z_n + b1)).

    z_n are the k word vectors around the word (dos Santos et al. 2015, section 2.3). U starts as zero, so that training
    begins with the bag. A teacher can add what a bag cannot express: who does what to whom, and phrases. Dropout
    leaves words out of the bag, not out of windows.
    """

    def __init__(self, words: nn.Embedding, dropout: float, units: int, window: int) -> None:
        """Begin with the table `words`, one row per id; `units` is the number of rows of W1, `window` is k, odd."""
        super().__init__(words, dropout)
        self.window = window
        self.convolution = nn.Linear(window * words.embedding_dim, units)
        self.change = nn.Linear(units, words.embedding_dim, bias=False)  # U
        nn.init.zeros_(self.change.weight)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        bag = super().forward(ids, lengths)
        local = torch.relu(convolve(self.words, self.convolution, self.window, ids))
        pooled = (local * self._weights(bag.bag[0], ids, lengths)[:, :, None]).sum(dim=1)
        return bag._replace(dense=bag.dense + self.change(pooled))

    def forward_unpadded(self, texts: TokenIds | DeviceTexts) -> None:
        """Return None: batches of padded texts are as fast."""

    def _weights(self, words: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return a_w n^(p - 1) (B, L) at each position, 0 for padding and unknown words; `words` are as of `bags`."""
        counts = torch.searchsorted(words, ids, right=True) - torch.searchsorted(words, ids)
        is_known = token_mask(ids, lengths) & (ids >= FIRST_WORD)
        weights = self.log_weights(ids)[:, :, 0].exp() * counts.clamp_min(1).pow(self.power - 1)
        return weights * is_known

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        weights = self.weights_unpadded(texts)
        products = window_products(self.words, self.convolution, self.window, texts)
        pooled = products.table.new_empty(len(texts), self.convolution.out_features)
        for rows, local, begins in window_sums(products):
            first = int(texts.offsets[rows.start])
            local.add_(self.convolution.bias).relu_().mul_(weights[first : first + len(local), None])
            pooled[rows] = sums_of_rows(local, begins)
        return super().dense_unpadded(texts) + in_blocks(self.change, pooled)
