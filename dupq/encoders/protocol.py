"""What every encoder is: token ids in, one embedding a text out, compared by cosine."""

import abc

import torch
from torch import nn


class Encoder(nn.Module, abc.ABC):
    """One tower of a Siamese network: both questions of a pair go through the same one.

    Shapes: B texts, L tokens (padded), D dimensions.
    """

    dimensions: int  # D

    @abc.abstractmethod
    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, D) of token ids (B, L), of which the first `lengths` (B,) of a row are tokens.

        An embedding depends on its own row only, not on the padding or on its neighbours; that of an empty
        text is zero.
        """


def cosine(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The cosine (B,) of rows of two matrices (B, D); 0 where a row is zero."""
    return nn.functional.cosine_similarity(left, right, dim=-1, eps=1e-12)
