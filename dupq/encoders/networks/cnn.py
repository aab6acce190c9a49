"""The convolutional networks of Bogdanova et al. (CoNLL 2015), sections 4.2 and 4.3, and of dos Santos et al. (ACL
2015), section 2.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.bags import inverse_document_frequencies
from dupq.encoders.protocol import (
    Embedding,
    Encoder,
    LearnedSettings,
    Window,
    convolve,
    highest,
    inside,
    window_products,
)
from dupq.encoders.unpadded import highest_windows, sums_of_rows, window_sums
from dupq.settings.sections import Length
from dupq.text.questions import FIRST_WORD, PADDING
from dupq.text.token_arrays import TokenIds


class CNNSettings(LearnedSettings):
    """Of CNN."""

    kind: Literal["cnn"] = "cnn"
    units: Length = Field(300, description="Length of an embedding.")
    window: Window = Field(3, description="Words of a window, odd.")
    pooling: Literal["sum", "max"] = Field("max", description="Over the windows of a text.")

    def network(self, word_vectors: np.ndarray) -> "CNN":
        """See NetworkSettings."""
        return CNN(self.words(word_vectors), self.units, self.window, self.pooling)


class CNN(Encoder):
    """Equation 2: [r]_j = f(sum_n [f(W1 z_n + b1)]_j), f = tanh, z_n the k word vectors around word n.

    With pooling "max" the maximum over n takes the place of the sum. Windows that reach over the ends of the
    question see the common padding vector (footnote 6). Scored by cosine.
    """

    def __init__(self, words: nn.Embedding, units: int, window: int, pooling: str) -> None:
        """`words` is W0, one row an id of the vocabulary; `window` is k, odd."""
        super().__init__()
        self.dimensions = units
        self.window = window
        self.pooling = pooling
        self.words = words
        self.convolution = nn.Linear(window * words.embedding_dim, units)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        if self.pooling == "max":  # tanh rises, so it may as well be taken of the maximum
            found = highest(self.words, self.convolution, self.window, ids, lengths)
            return Embedding(torch.tanh(torch.tanh(torch.where((lengths > 0)[:, None], found, 0.0))))
        local = torch.tanh(convolve(self.words, self.convolution, self.window, ids))
        return Embedding(torch.tanh((local * inside(ids, lengths)[:, :, None]).sum(dim=1)))

    def dense_of(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder. As tanh(x) = 2 sigmoid(2 x) - 1, which is six times as fast in torch, is summed as that."""
        products = window_products(self.words, self.convolution, self.window, texts)
        lengths = torch.from_numpy(texts.lengths)[:, None]
        if self.pooling == "max":
            found = torch.tanh(highest_windows(products) + self.convolution.bias)
            return torch.tanh(torch.where(lengths > 0, found, 0.0))
        pooled = products.table.new_empty(len(texts), self.dimensions)
        for some, local, begins in window_sums(products):
            sigmoids = local.add_(self.convolution.bias).mul_(2).sigmoid_()
            pooled[some] = sums_of_rows(sigmoids, begins)
        return torch.tanh(2 * pooled - lengths)


_FIRST_MIX = 0.5  # of beta_1 and beta_2, which the paper does not give: the score starts between -1 and 1


class MaxCNNSettings(LearnedSettings):
    """Of MaxCNN."""

    kind: Literal["max_cnn"] = "max_cnn"
    units: Length = Field(300, description="Length of an embedding.")
    window: Window = Field(3, description="Words of a window, odd.")

    def network(self, word_vectors: np.ndarray) -> "MaxCNN":
        """See NetworkSettings."""
        return MaxCNN(self.words(word_vectors), self.units, self.window)


class BowCNNSettings(LearnedSettings):
    """Of BowCNN."""

    kind: Literal["bow_cnn"] = "bow_cnn"
    units: Length = Field(300, description="Length of an embedding.")
    window: Window = Field(3, description="Words of a window, odd.")
    first_word_weights: Literal["idf", "ones"] = Field("idf", description="The weights that words start with.")
    word_weights: Literal["learned", "fixed"] = Field("learned", description="What becomes of them in training.")

    def network(self, word_vectors: np.ndarray) -> "BowCNN":
        """See NetworkSettings."""
        is_updated = self.word_weights == "learned"
        return BowCNN(self.words(word_vectors), self.units, self.window, self.first_word_weights, is_updated)


class MaxCNN(Encoder):
    """The CNN path, section 2.3, equation 2: [r_conv]_j = f(max_n [W1 z_n + b1]_j), f = tanh.

    z_n are the k word vectors around word n; those beyond the ends of the question are the padding vector.
    Alone it is the paper's CNN, scored by the cosine s_conv.
    """

    def __init__(self, words: nn.Embedding, units: int, window: int) -> None:
        """`words` is W0, one row an id of the vocabulary; `units` is cl_u; `window` is k, odd."""
        super().__init__()
        self.dimensions = units
        self.window = window
        self.words = words
        self.convolution = nn.Linear(window * words.embedding_dim, units)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        found = highest(self.words, self.convolution, self.window, ids, lengths)
        return Embedding(torch.tanh(torch.where((lengths > 0)[:, None], found, 0.0)))

    def dense_of(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        found = highest_windows(window_products(self.words, self.convolution, self.window, texts))
        is_empty = torch.from_numpy(texts.lengths == 0)[:, None]
        return torch.tanh(torch.where(is_empty, 0.0, found + self.convolution.bias))


class BowCNN(MaxCNN):
    """Both paths: s = beta_1 s_bow + beta_2 s_conv (section 2.4), both cosines, both betas learned.

    The bag of words is r_bow = q_bow * t (equation 1): the frequency of each word of the vocabulary in the
    question, times its weight in t. Unknown words are in no bag.
    """

    is_lexical = True

    def __init__(self, words: nn.Embedding, units: int, window: int, start: str, is_updated: bool) -> None:
        """`start` is the initial t, "idf" or "ones"; `is_updated` whether t is learned (table 5)."""
        super().__init__(words, units, window)
        self.start = start
        ones = torch.ones(words.num_embeddings, 1)
        self.word_weights = nn.Embedding.from_pretrained(ones, freeze=not is_updated, sparse=is_updated)
        self.betas = nn.Parameter(torch.full((2,), _FIRST_MIX))  # beta_1 of the bags, beta_2 of the vectors

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Start t from the archive (section 3.2): [t]_i = log(|Q| / |q in Q: w_i in q|); see Encoder.

        A word of the vocabulary that no text of `texts` holds counts as being in one.
        """
        if self.start == "idf":
            weights = inverse_document_frequencies(texts, self.words.num_embeddings)
            self.word_weights.weight.data[:, 0] = torch.from_numpy(weights)

    def mix(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See Encoder: beta_2 and beta_1."""
        return self.betas[1], self.betas[0]

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        words, counts = bags(ids, lengths)
        return Embedding(super().forward(ids, lengths).dense, words, self.bag_weights(words, counts))

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        return counts * self.word_weights(words)[..., 0]


def bags(ids: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """q_bow: the words (B, L) of each text in ascending order, and their frequencies (B, L).

    The frequency is at the first position of a word, and 0 at its others and at padding, which comes first. Unknown
    words count as padding.
    """
    known = inside(ids, lengths) & (ids >= FIRST_WORD)
    words = torch.where(known, ids, PADDING).sort(dim=1).values
    first = torch.searchsorted(words, words)
    frequencies = torch.searchsorted(words, words, right=True) - first
    is_first = first == torch.arange(ids.shape[1], device=ids.device)
    return words, frequencies * (is_first & (words != PADDING))
