"""dupq's own encoder with word order: the weighted bag of words, each word changed by the words beside it."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.network_settings import Dropout, LearnedSettings, Window
from dupq.encoders.networks.word_bag import WordBag
from dupq.encoders.protocol import Embedding
from dupq.encoders.unpadded import frequencies, in_blocks, sums_of_rows, window_sums
from dupq.encoders.words import convolve, inside, known, window_products
from dupq.settings.section import Length
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import FIRST_WORD


class WordBagCNNSettings(LearnedSettings):
    """Of WordBagCNN."""

    kind: Literal["word_bag_cnn"] = "word_bag_cnn"
    units: Length = Field(300, description="Features of a window.")
    window: Window = Field(3, description="Words of a window, odd.")
    dropout: Dropout = Field(0.5, description="Share of the words left out of the bag in a training step.")

    def network(self, word_vectors: np.ndarray) -> "WordBagCNN":
        """See NetworkSettings."""
        return WordBagCNN(self.words(word_vectors), self.dropout, self.units, self.window)


class WordBagCNN(WordBag):
    """WordBag, and in its dense vector each word v_w becomes v_w + U relu(W1 z_n + b1): sum_n a_w n^(p - 1) of these.

    z_n are the k word vectors around the word (dos Santos et al. 2015, section 2.3). U starts as zero, so that training
    begins with the bag. What a bag cannot express (who does what to whom, phrases) is what a teacher can add. Dropout
    leaves words out of the bag, not out of windows.
    """

    def __init__(self, words: nn.Embedding, dropout: float, units: int, window: int) -> None:
        """`words` has one row an id of the vocabulary; `units` is the number of rows of W1, `window` is k, odd."""
        super().__init__(words, dropout)
        self.window = window
        self.convolution = nn.Linear(window * words.embedding_dim, units)
        self.change = nn.Linear(units, words.embedding_dim, bias=False)  # U
        nn.init.zeros_(self.change.weight)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        found = super().forward(ids, lengths)
        local = torch.relu(convolve(self.words, self.convolution, self.window, ids))
        pooled = (local * self._weights(found.bag[0], ids, lengths)[:, :, None]).sum(dim=1)
        return found._replace(dense=found.dense + self.change(pooled))

    def flat(self, texts: TokenIds) -> None:
        """See Encoder."""

    def _weights(self, words: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """a_w n^(p - 1) (B, L) of each word at its position; 0 for padding and unknown words. `words`: see bags."""
        counts = torch.searchsorted(words, ids, right=True) - torch.searchsorted(words, ids)
        is_known = inside(ids, lengths) & (ids >= FIRST_WORD)
        weights = self.log_weights(ids)[:, :, 0].exp() * counts.clamp_min(1).pow(self.power - 1)
        return weights * is_known

    def dense_of(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        counts = torch.from_numpy(frequencies(texts, self.words.num_embeddings))
        factors = self.log_weights.weight[:, 0].exp() * known(self.words.num_embeddings)
        weights = factors[torch.from_numpy(texts.ids)] * counts.to(factors).pow(self.power - 1)
        products = window_products(self.words, self.convolution, self.window, texts)
        pooled = products.table.new_empty(len(texts), self.convolution.out_features)
        for some, local, begins in window_sums(products):
            first = int(texts.offsets[some.start])
            local.add_(self.convolution.bias).relu_().mul_(weights[first : first + len(local), None])
            pooled[some] = sums_of_rows(local, begins)
        return super().dense_of(texts) + in_blocks(self.change, pooled)
