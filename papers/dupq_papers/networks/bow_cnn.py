"""The convolutional networks of dos Santos et al. (ACL 2015), section 2: alone and with a bag of words."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.bags import inverse_document_frequencies
from dupq.encoders.protocol import Embedding, Encoder, LearnedSettings, Window, window_products
from dupq.encoders.word_bag import bags
from dupq.settings.sections import Length
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.windows import highest, highest_windows

_FIRST_MIX = 0.5  # start of beta_1 and beta_2, which the paper does not give: scores start between -1 and 1


class MaxCNNSettings(LearnedSettings):
    """Settings of MaxCNN."""

    kind: Literal["max_cnn"] = "max_cnn"
    units: Length = Field(300, description="Length of an embedding.")
    window: Window = Field(3, description="Words of a window, odd.")

    def network(self, word_vectors: np.ndarray) -> "MaxCNN":
        """See NetworkSettings."""
        return MaxCNN(self.words(word_vectors), self.units, self.window)


class BowCNNSettings(LearnedSettings):
    """Settings of BowCNN."""

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

    z_n are the k word vectors around word n, with the padding vector beyond the ends of the question. Alone it is the
    paper's CNN, scored by the cosine s_conv.
    """

    def __init__(self, words: nn.Embedding, units: int, window: int) -> None:
        """Begin with W0 = `words`, one row per id of the vocabulary; `units` is cl_u, `window` is k, odd."""
        super().__init__()
        self.dimensions = units
        self.window = window
        self.words = words
        self.convolution = nn.Linear(window * words.embedding_dim, units)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        maxima = highest(self.words, self.convolution, self.window, ids, lengths)
        return Embedding(torch.tanh(torch.where((lengths > 0)[:, None], maxima, 0.0)))

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        maxima = highest_windows(window_products(self.words, self.convolution, self.window, texts))
        is_empty = torch.from_numpy(texts.lengths == 0)[:, None]
        return torch.tanh(torch.where(is_empty, 0.0, maxima + self.convolution.bias))


class BowCNN(MaxCNN):
    """Both paths: s = beta_1 s_bow + beta_2 s_conv (section 2.4), both cosines, both betas learned.

    The bag of words is r_bow = q_bow * t (equation 1): the frequency of each word of the vocabulary in the question,
    times its weight in t. Unknown words are left out.
    """

    is_lexical = True

    def __init__(self, words: nn.Embedding, units: int, window: int, start: str, is_updated: bool) -> None:
        """Begin with t as `start` says, "idf" or "ones"; `is_updated` tells whether t is learned (table 5)."""
        super().__init__(words, units, window)
        self.start = start
        ones = torch.ones(words.num_embeddings, 1)
        self.word_weights = nn.Embedding.from_pretrained(ones, freeze=not is_updated, sparse=is_updated)
        self.betas = nn.Parameter(torch.full((2,), _FIRST_MIX))  # beta_1 of the bags, beta_2 of the vectors

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Start t from the archive (section 3.2): [t]_i = log(|Q| / |q in Q: w_i in q|); see Encoder.

        A word of the vocabulary that is in none of the `texts` counts as being in one.
        """
        if self.start == "idf":
            weights = inverse_document_frequencies(texts, self.words.num_embeddings)
            self.word_weights.weight.data[:, 0] = torch.from_numpy(weights)

    def mix(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return beta_2 and beta_1; see Encoder."""
        return self.betas[1], self.betas[0]

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        words, counts = bags(ids, lengths)
        return Embedding(super().forward(ids, lengths).dense, words, self.bag_weights(words, counts))

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        return counts * self.word_weights(words)[..., 0]
