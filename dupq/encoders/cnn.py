"""The convolutional network of Bogdanova et al. (CoNLL 2015), sections 4.2 and 4.3."""

import torch
from torch import nn

from dupq.encoders.protocol import Encoder
from dupq.text.vocabulary import PADDING


class CNN(Encoder):
    """Equation 2: [r]_j = f(sum_n [f(W1 z_n + b1)]_j), f = tanh, z_n the k word vectors around word n.

    With pooling "max" the maximum over n takes the place of the sum. Windows that reach over the ends of the
    question see the common padding vector (footnote 6).
    """

    def __init__(self, word_vectors: torch.Tensor, units: int, window: int, pooling: str) -> None:
        """`word_vectors` is W0, one row an id of the vocabulary; `window` is k, odd."""
        super().__init__()
        self.dimensions = units
        self.window = window
        self.pooling = pooling
        self.words = nn.Embedding.from_pretrained(word_vectors, freeze=False, sparse=True)
        self.convolution = nn.Linear(window * word_vectors.shape[1], units)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """See Encoder."""
        reach = (self.window - 1) // 2
        words = self.words(nn.functional.pad(ids, (reach, reach), value=PADDING))
        windows = words.unfold(1, self.window, 1).transpose(2, 3).flatten(2)  # (B, L, k * d)
        local = torch.tanh(self.convolution(windows))
        inside = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[:, :, None]
        if self.pooling == "sum":
            pooled = (local * inside).sum(dim=1)
        else:
            pooled = local.masked_fill(~inside, -1.0).amax(dim=1) * (lengths > 0)[:, None]
        return torch.tanh(pooled)
