"""Dropout of features, drawn for each text or once for a step."""

from typing import Literal

import torch
from torch import nn

DropoutOf = Literal["texts", "step"]


class FeatureDropout(nn.Module):
    """Leaves a share of the features out in training, and scales the others up (Srivastava et al. 2014).

    "texts": others for each text, so the two questions of a pair go through two different networks. "step": the same
    for all texts of a step (of a worker's share of it), so both go through the same thinned network, as the towers of a
    Siamese one are. With exp(-L1) the first makes equal questions differ, and a network learns to give all questions
    one embedding.
    """

    def __init__(self, share: float, features: int, of: DropoutOf) -> None:
        """`share` is left out of `features`."""
        super().__init__()
        self._share, self._features, self._of = share, features, of
        self._factors: torch.Tensor | None = None

    def draw(self) -> None:
        """Forget what was left out: the next call draws anew."""
        self._factors = None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(B, features) without some of them, where training."""
        if not self.training or not self._share:
            return features
        if self._of == "texts":
            return nn.functional.dropout(features, self._share)
        if self._factors is None:
            self._factors = nn.functional.dropout(features.new_ones(self._features), self._share)
        return features * self._factors
