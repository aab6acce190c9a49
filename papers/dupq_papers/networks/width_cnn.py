"""The Siamese CNN of Othman et al. (DKE 2021), section 4: filters of several widths in one layer."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Dropout, Embedding, LearnedSettings, token_mask
from dupq.settings.sections import Length, Widths
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.distances import DistanceEncoder, Similarity
from dupq_papers.networks.dropout import DropoutOf, FeatureDropout
from dupq_papers.networks.products import in_blocks, word_products
from dupq_papers.networks.windows import highest_windows


class WidthCNNSettings(LearnedSettings):
    """Settings of WidthCNN."""

    kind: Literal["width_cnn"] = "width_cnn"
    units: Length = Field(300, description="Length of an embedding.")
    widths: Widths = Field((2, 3, 4), description="Words of the windows of each layer.")
    filters: Length = Field(32, description="Filters of each width.")
    dropout: Dropout = Field(0.5, description="Share of the pooled features left out of a training step.")
    dropout_of: DropoutOf = Field(
        "texts",
        description="texts: others of each text are left out; step: the same of all texts of a worker's step.",
    )
    scale: Literal["sum", "mean"] = Field("sum", description="mean: an embedding is divided by its length.")
    similarity: Similarity = Field(
        "cosine", description="Of two embeddings; manhattan is exp(-L1), euclidean exp(-L2)."
    )

    def network(self, word_vectors: np.ndarray) -> "WidthCNN":
        """See NetworkSettings."""
        return WidthCNN(self.words(word_vectors), self)


class WidthCNN(DistanceEncoder):
    """Filters of several widths w, each over all positions: f_i = ReLU(T_{i:i+w-1} o F + b) (equation 11).

    T are the word vectors, t_k = 0 after the end. The maximum of each filter's f_1 ... f_N stays (section 4.2); dropout
    and a fully connected layer follow (section 4.3), which makes the embedding. That layer is linear: ReLU would leave
    half of the space empty, and the paper names none for it.
    """

    def __init__(self, words: nn.Embedding, settings: WidthCNNSettings) -> None:
        """Begin with the t_k = `words`, one row per id."""
        super().__init__()
        self.dimensions = settings.units
        self.kind = settings.similarity
        self.words = words
        filters, features = settings.filters, len(settings.widths) * settings.filters
        self.convolutions = nn.ModuleList(nn.Conv1d(words.embedding_dim, filters, width) for width in settings.widths)
        self.dropout = FeatureDropout(settings.dropout, features, settings.dropout_of)
        self.connected = nn.Linear(features, settings.units)
        self.divisor = settings.units if settings.scale == "mean" else 1  # see StackedCNN

    def begin_step(self) -> None:
        """See Encoder."""
        self.dropout.draw()

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        tokens = token_mask(ids, lengths)
        vectors = (self.words(ids) * tokens[:, :, None]).transpose(1, 2)  # (B, d, L)
        pooled = [_highest(convolution, vectors, tokens) for convolution in self.convolutions]
        features = self.dropout(torch.cat(pooled, dim=1))
        return Embedding(self.connected(features) / self.divisor * (lengths > 0)[:, None])

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor:
        """See Encoder."""
        pooled = [_highest_unpadded(convolution, self.words, texts) for convolution in self.convolutions]
        is_text = torch.from_numpy(texts.lengths > 0)[:, None]
        return in_blocks(self.connected, torch.cat(pooled, dim=1)) / self.divisor * is_text


def _highest_unpadded(convolution: nn.Module, words: nn.Embedding, texts: TokenIds) -> torch.Tensor:
    """Return the maxima of `_highest` without padding. The maximum of ReLUs is the ReLU of the maximum."""
    assert isinstance(convolution, nn.Conv1d)
    assert convolution.bias is not None
    products = word_products(words, convolution.weight.permute(2, 1, 0), 0, None, texts)
    return torch.relu(highest_windows(products) + convolution.bias)


def _highest(convolution: nn.Module, vectors: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the maximum (B, m) of each filter over the positions of (B, d, L) where `tokens` (B, L) is true."""
    assert isinstance(convolution, nn.Conv1d)
    behind = convolution.kernel_size[0] - 1
    local = torch.relu(convolution(nn.functional.pad(vectors, (0, behind))))  # (B, m, L)
    return (local * tokens[:, None, :]).amax(dim=2)  # ReLU is never below 0
