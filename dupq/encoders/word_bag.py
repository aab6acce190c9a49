"""dupq's own encoder: a weighted bag of words, dense and lexical at once, that learns from titles and bodies."""

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders import protocol, unpadded
from dupq.encoders.bags import FIRST_POWER, LEAST_RARITY, USUAL_LEXICAL_WEIGHT, flat_bags, inverse_document_frequencies
from dupq.encoders.on_device import Bags, DeviceTexts, bags_on_device, counts_of
from dupq.neighbours.embeddings import Measure
from dupq.text.questions import FIRST_WORD, PADDING
from dupq.text.token_arrays import TokenIds

_LEXICAL_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2)  # candidates for beta


class WordBagSettings(protocol.LearnedSettings):
    """Settings of WordBag."""

    kind: Literal["word_bag"] = "word_bag"
    dropout: protocol.Dropout = Field(0.5, description="Share of the words left out of a training step.")

    def network(self, word_vectors: np.ndarray) -> "WordBag":
        """See NetworkSettings."""
        return WordBag(self.words(word_vectors), self.dropout)


class WordBag(protocol.Encoder):
    """An encoder of a text as the bag of its words; n is how often a word w occurs in the text.

    The dense vector is the sum of a_w n^p v_w, and the lexical part is the bag of the weights r_w n^p:
    s = cos(dense) + beta cos(bags), the sum of dos Santos et al. 2015, section 2.4. r_w is the archive's inverse
    document frequency (their equation 1). The vectors v_w, the weights a_w (starting as r_w) and p (starting as 1/2)
    are learned; p dampens n as BM25 does. beta is the candidate that ranks the development questions best: a gradient
    for it is not worth its cost. Unknown words are left out.

    In training each word is left out with probability `dropout`, so that no single word decides.
    """

    is_lexical = True
    archive_weights = frozenset({"rarities", "lexical"})
    lexical: torch.Tensor  # beta, a scalar
    rarities: torch.Tensor  # r_w, one per id of the vocabulary

    def __init__(self, words: nn.Embedding, dropout: float) -> None:
        """Begin with the table `words`, one row per id of the vocabulary."""
        super().__init__()
        self.dimensions = words.embedding_dim
        self.words = words
        self.dropout = dropout
        self.log_weights = protocol.WordTable(
            np.zeros((words.num_embeddings, 1), np.float32), words.weight.requires_grad
        )
        self.power = nn.Parameter(torch.tensor(FIRST_POWER), requires_grad=words.weight.requires_grad)
        self.register_buffer("lexical", torch.tensor(_LEXICAL_WEIGHTS[0]))
        self.register_buffer("rarities", torch.ones(words.num_embeddings))

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Count r_w, and let a_w start as r_w; see Encoder."""
        frequencies = inverse_document_frequencies(texts, self.words.num_embeddings)
        self.rarities.copy_(torch.from_numpy(np.maximum(frequencies, LEAST_RARITY)))
        self.log_weights.weight.data[:, 0] = self.rarities.log()

    @property
    def measure(self) -> Measure:
        """See Encoder."""
        return Measure(lexical=self.lexical.item())

    def tune(self, quality: Callable[[], float] | None) -> None:
        """Choose beta; see Encoder."""
        if quality is None:
            self.lexical.fill_(USUAL_LEXICAL_WEIGHT)
            return
        qualities = []
        for weight in _LEXICAL_WEIGHTS:
            self.lexical.fill_(weight)
            qualities.append(quality())
        self.lexical.fill_(_LEXICAL_WEIGHTS[int(np.argmax(qualities))])

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> protocol.Embedding:
        """See Encoder."""
        words, counts = bags(ids, lengths)
        dampened = self._dampened(counts)
        if self.training and self.dropout:
            dampened = dampened * (torch.rand_like(dampened) >= self.dropout)
        is_present = dampened > 0
        weights = (self.log_weights(words)[:, :, 0].exp() * dampened)[is_present].to(self.words.weight)
        sizes = is_present.sum(dim=1)
        begins, table = sizes.cumsum(0) - sizes, self.words.weight
        with torch.autocast(words.device.type, enabled=False):
            sums = nn.functional.embedding_bag(
                words[is_present], table, begins, mode="sum", sparse=self.words.sparse, per_sample_weights=weights
            )
        return protocol.Embedding(sums, (words, self.rarities[words] * dampened))

    def forward_unpadded(self, texts: TokenIds | DeviceTexts) -> protocol.Embedding | None:
        """See Encoder."""
        dropout = self.dropout if self.training else 0.0
        words, counts = bags_on_device(texts, dropout) if isinstance(texts, DeviceTexts) else _bags(texts, dropout)
        weights = unpadded.rows_of(self.log_weights.weight, words)[:, 0].exp()
        weights = weights * self._dampened(counts.to(weights))
        return protocol.Embedding(unpadded.weighted_sums(self.words.weight, words, weights))

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        return self.rarities[words] * self._dampened(counts)

    def _dampened(self, counts: torch.Tensor) -> torch.Tensor:
        """Return n^p, and 0 for n = 0."""
        return counts.clamp_min(1).pow(self.power) * (counts > 0)

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        return unpadded.sums_of_words(self.words, self.weights_unpadded(texts), texts)

    def weights_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """Return the weight a_w n^(p - 1) of each of a word's n occurrences in a text (T,), 0 of unknown words."""
        size = self.words.num_embeddings
        counts = torch.from_numpy(unpadded.frequencies(texts.ids, texts.offsets, size))
        weights = self.log_weights.weight[:, 0].exp() * protocol.known_words(size)
        return weights[torch.from_numpy(texts.ids)] * counts.to(weights).pow(self.power - 1)


def bags(ids: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q_bow: the words (B, L) of each text in ascending order, and their frequencies (B, L).

    The frequency of a word is at its first position, and its other positions have 0. Padding and unknown words have
    0 and come first.
    """
    known = protocol.token_mask(ids, lengths) & (ids >= FIRST_WORD)
    words = torch.where(known, ids, PADDING).sort(dim=1).values
    return words, counts_of(words) * (words != PADDING)


def _bags(texts: TokenIds, dropout: float) -> tuple[Bags, torch.Tensor]:
    """Return what `flat_bags` does, without the words that are left out, which happens with probability `dropout`."""
    words, counts = flat_bags(texts)
    if dropout:
        is_kept = (torch.rand(len(words.ids)) >= dropout).numpy()
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        words, counts = TokenIds(words.ids[is_kept], kept_before[words.offsets]), counts[is_kept]
    ids, begins = torch.from_numpy(words.ids), torch.from_numpy(words.offsets[:-1].astype(words.ids.dtype))
    return Bags(ids, begins), torch.from_numpy(counts)
