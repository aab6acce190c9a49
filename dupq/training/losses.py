"""Losses, each a sum over the rows of a batch."""

import torch


def squared_error(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Bogdanova et al. 2015, equation 3: the sum over pairs of 1/2 (y - s)^2. Shapes (B,), (B,) to a scalar."""
    return 0.5 * (labels - scores).square().sum()


def sum_of_squares(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over pairs of (y - s)^2: over their number, the mean square error of Othman et al. 2021, section 5.3."""
    return (labels - scores).square().sum()


def logistic_ranking(positive: torch.Tensor, negative: torch.Tensor, gamma: float) -> torch.Tensor:
    """dos Santos et al. 2015, section 2.5: the sum of log(1 + exp(-gamma Delta)), Delta = s+ - s-.

    `positive` and `negative` (B,) are the scores of the two pairs of each round.
    """
    return torch.nn.functional.softplus(-gamma * (positive - negative)).sum()
