"""dupq's own encoder: a weighted bag of words, dense and lexical at once, designed to learn from titles and bodies."""

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.bag_sums import rows_of, weighted_sums
from dupq.encoders.bags import (
    FIRST_POWER,
    LEAST_RARITY,
    USUAL_LEXICAL_WEIGHT,
    flat_bags,
    inverse_document_frequencies,
)
from dupq.encoders.network_settings import Dropout, LearnedSettings
from dupq.encoders.networks.bow_cnn import bags
from dupq.encoders.protocol import Embedding, Encoder
from dupq.encoders.unpadded import frequencies, sums_of_words
from dupq.encoders.words import known
from dupq.text.token_ids import TokenIds

_LEXICAL_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2)  # candidates for beta


class WordBagSettings(LearnedSettings):
    """Of WordBag."""

    kind: Literal["word_bag"] = "word_bag"
    dropout: Dropout = Field(0.5, description="Share of the words left out of a training step.")

    def network(self, word_vectors: np.ndarray) -> "WordBag":
        """See NetworkSettings."""
        return WordBag(self.words(word_vectors), self.dropout)


class WordBag(Encoder):
    """A text is the bag of its words; n is how often a word w occurs there.

    The dense vector is the sum of a_w n^p v_w, the lexical part the bag of the weights r_w n^p:
    s = cos(dense) + beta cos(bags), the sum of dos Santos et al. 2015, section 2.4. r_w is the archive's inverse
    document frequency (their equation 1). Learned are the vectors v_w, a_w (from r_w on) and p (from 1/2 on; BM25
    dampens n likewise); beta is the candidate that ranks the development questions best, as a gradient for it is not
    worth its cost. Unknown words are left out.

    In training each word is left out with probability `dropout`, so that no single one decides.
    """

    is_lexical = True
    of_archive = frozenset({"rarities", "lexical"})
    lexical: torch.Tensor  # beta, a scalar
    rarities: torch.Tensor  # r_w, one an id of the vocabulary

    def __init__(self, words: nn.Embedding, dropout: float) -> None:
        """`words` has one row an id of the vocabulary."""
        super().__init__()
        self.dimensions = words.embedding_dim
        self.words = words
        self.dropout = dropout
        self.log_weights = nn.Embedding.from_pretrained(
            torch.zeros(words.num_embeddings, 1), freeze=not words.weight.requires_grad, sparse=True
        )
        self.power = nn.Parameter(torch.tensor(FIRST_POWER), requires_grad=words.weight.requires_grad)
        self.register_buffer("lexical", torch.tensor(_LEXICAL_WEIGHTS[0]))
        self.register_buffer("rarities", torch.ones(words.num_embeddings))

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Count r_w, as which a_w starts; see Encoder."""
        frequencies = inverse_document_frequencies(texts, self.words.num_embeddings)
        self.rarities.copy_(torch.from_numpy(np.maximum(frequencies, LEAST_RARITY)))
        self.log_weights.weight.data[:, 0] = self.rarities.log()

    def mix(self) -> tuple[float, float]:
        """See Encoder."""
        return 1.0, self.lexical.item()

    def tune(self, quality: Callable[[], float] | None) -> None:
        """See Encoder: choose beta."""
        if quality is None:
            self.lexical.fill_(USUAL_LEXICAL_WEIGHT)
            return
        measured = []
        for weight in _LEXICAL_WEIGHTS:
            self.lexical.fill_(weight)
            measured.append(quality())
        self.lexical.fill_(_LEXICAL_WEIGHTS[int(np.argmax(measured))])

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        words, counts = bags(ids, lengths)
        dampened = self._dampened(counts)
        if self.training and self.dropout:
            dampened = dampened * (torch.rand_like(dampened) >= self.dropout)
        is_there = dampened > 0
        weights = self.log_weights(words)[:, :, 0].exp() * dampened
        return Embedding(
            self._sums(words[is_there], weights[is_there], is_there), words, self.rarities[words] * dampened
        )

    def flat(self, texts: TokenIds) -> Embedding | None:
        """See Encoder."""
        if self.lexical.item():
            return None
        words, counts = flat_bags(texts)
        if self.training and self.dropout:
            words, counts = _kept(words, counts, torch.rand(len(words.ids)) >= self.dropout)
        weights = rows_of(self.log_weights.weight, words)[:, 0].exp()
        weights = weights * torch.from_numpy(counts).to(weights, non_blocking=True).pow(self.power)
        return Embedding(weighted_sums(self.words.weight, words, weights))

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        return self.rarities[words] * self._dampened(counts)

    def _dampened(self, counts: torch.Tensor) -> torch.Tensor:
        """n^p, and 0 for 0."""
        return counts.clamp_min(1).pow(self.power) * (counts > 0)

    def dense_of(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder. Each of a word's n occurrences weighs a_w n^(p - 1)."""
        counts = torch.from_numpy(frequencies(texts, self.words.num_embeddings))
        weights = self.log_weights.weight[:, 0].exp() * known(self.words.num_embeddings)
        return sums_of_words(self.words, weights, texts, counts.to(weights).pow(self.power - 1))

    def _sums(self, words: torch.Tensor, weights: torch.Tensor, is_there: torch.Tensor) -> torch.Tensor:
        """The weighted sums (B, D) of the vectors of the words of each text, without padding."""
        sizes = is_there.sum(dim=1)
        with torch.autocast(words.device.type, enabled=False):
            return nn.functional.embedding_bag(
                words,
                self.words.weight,
                sizes.cumsum(0) - sizes,
                mode="sum",
                sparse=self.words.sparse,
                per_sample_weights=weights.to(self.words.weight),
            )


def _kept(words: TokenIds, counts: np.ndarray, is_kept: torch.Tensor) -> tuple[TokenIds, np.ndarray]:
    """The words that are kept, and their counts."""
    kept = is_kept.numpy()
    before = np.concatenate([[0], np.cumsum(kept)])
    return TokenIds(words.ids[kept], before[words.offsets]), counts[kept]
