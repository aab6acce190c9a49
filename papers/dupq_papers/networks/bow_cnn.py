"""The convolutional networks of dos Santos et al. (ACL 2015), section 2: alone and with a bag of words."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.bags import inverse_document_frequencies
from dupq.encoders.protocol import Embedding, Encoder, LearnedSettings, WordTable
from dupq.encoders.word_bag import bags
from dupq.neighbours.embeddings import Measure
from dupq.settings.sections import Length
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.products import Window, window_products
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
        self.word_weights = WordTable(np.ones((words.num_embeddings, 1), np.float32), is_updated)
        self.betas = nn.Parameter(torch.full((2,), _FIRST_MIX))  # beta_1 of the bags, beta_2 of the vectors

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Start t from the archive (section 3.2): [t]_i = log(|Q| / |q in Q: w_i in q|); see Encoder.

        A word of the vocabulary that is in none of the `texts` counts as being in one.
        """
        if self.start == "idf":
            weights = inverse_document_frequencies(texts, self.words.num_embeddings)
            self.word_weights.weight.data[:, 0] = torch.from_numpy(weights)

    @property
    def measure(self) -> Measure:
        """See Encoder."""
        return Measure(dense=self.betas[1].item(), lexical=self.betas[0].item())

    def score(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder; differentiable in the betas too."""
        return self.betas[1] * super().score(left, right) + self.betas[0] * bag_cosine(left, right)

    def score_matrix(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder."""
        return self.betas[1] * super().score_matrix(left, right) + self.betas[0] * bag_cosines(left, right)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        words, counts = bags(ids, lengths)
        return Embedding(super().forward(ids, lengths).dense, (words, self.bag_weights(words, counts)))

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        return counts * self.word_weights(words)[..., 0]


def bag_cosine(left: Embedding, right: Embedding) -> torch.Tensor:
    """Return the cosine (B,) of the bags of words of pairs of embeddings; 0 if a bag is empty."""
    (words, weights), (other_words, other_weights) = left.bag, right.bag
    indices = torch.searchsorted(other_words, words).clamp_max(other_words.shape[1] - 1)
    shared = other_words.gather(1, indices) == words
    product = (weights * other_weights.gather(1, indices) * shared).sum(dim=1)
    squares = weights.square().sum(dim=1) * other_weights.square().sum(dim=1)
    return product / torch.where(squares > 0, squares, 1.0).sqrt()


def bag_cosines(left: Embedding, right: Embedding) -> torch.Tensor:
    """Return the cosines (n, m) of bags, as a product of matrices with a column for each word that occurs."""
    words, columns_of = torch.unique(torch.cat([left.bag[0].flatten(), right.bag[0].flatten()]), return_inverse=True)
    sides = columns_of.split([left.bag[0].numel(), right.bag[0].numel()])
    units = []
    for (ids, weights), columns in zip((left.bag, right.bag), sides, strict=True):
        matrix = weights.new_zeros(len(ids), len(words)).scatter_add(1, columns.view_as(ids), weights)
        units.append(nn.functional.normalize(matrix, dim=1, eps=1e-12))
    return units[0] @ units[1].T
