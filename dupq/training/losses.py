"""Losses over a batch of pairs."""

import torch


def squared_error(similarities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Bogdanova et al. 2015, equation 3: the sum over pairs of 1/2 (y - s)^2. Shapes (B,), (B,) to a scalar."""
    return 0.5 * (labels - similarities).square().sum()
