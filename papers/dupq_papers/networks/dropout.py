"""Dropout of features, drawn for each text or once for a step."""

from typing import Literal

import torch
from torch import nn

DropoutOf = Literal["texts", "step"]


class FeatureDropout(nn.Module):
    """A layer that leaves out a share of the features in training and scales up the others (Srivastava et al. 2014).

    With "texts" each text loses other features, so the two questions of a pair go through two different networks. With
    "step" all texts of a worker's step lose the same ones, so both go through the same thinned network, as in the
    towers of a Siamese network. With exp(-L1), "texts" makes equal questions differ, and a network learns to give all
    questions one embedding.
    """

    def __init__(self, share: float, features: int, of: DropoutOf) -> None:
        """Leave out `share` of the `features`."""
        super().__init__()
        self._share, self._features, self._of = share, features, of
        self._factors: torch.Tensor | None = None

    def draw(self) -> None:
        """Let the next call draw which features are left out."""
        self._factors = None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return (B, features), in training without some of the features."""
        if not self.training or not self._share:
            return features
        if self._of == "texts":
            return nn.functional.dropout(features, self._share)
        if self._factors is None:
            self._factors = nn.functional.dropout(features.new_ones(self._features), self._share)
        return features * self._factors
