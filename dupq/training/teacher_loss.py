"""How far a student is from its teachers: in which texts it finds alike, in its vectors, or in both."""

import numpy as np
import torch

from dupq.settings.training import TeacherSettings
from dupq.training.epochs import TEMPERATURE
from dupq.training.losses import distillation, squared_distance

_PROJECTION = 3  # the end of the seed of the projection's first weights; an epoch's order has 2, mining 1


class TeacherLoss(torch.nn.Module):
    """The loss that `teacher.loss` names; where vectors are compared, with the projection that is learned beside it.

    A student's vectors of other dimensions than the teachers' are brought to theirs by a matrix without a bias, which
    no encoder is saved with: only the student's own space is searched.
    """

    def __init__(self, settings: TeacherSettings, dimensions: int, taught: int, seed: int) -> None:
        """`dimensions` are those of a student's dense vector, `taught` those of the teachers' together."""
        super().__init__()
        self.compares_scores = settings.loss in ("relation", "mixed")
        self.compares_vectors = settings.loss in ("l2", "mixed")
        self.projection: torch.nn.Parameter | None = None
        if self.compares_vectors and dimensions != taught:
            drawn = np.random.default_rng([seed, _PROJECTION]).normal(size=(taught, dimensions))
            # so that a vector of length 1 has a projection of about that length
            self.projection = torch.nn.Parameter(torch.from_numpy(drawn / np.sqrt(taught)).float())

    def of_scores(self, scores: torch.Tensor, taught: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """The loss of the scores (n, B) of texts with a batch; `taught` (B, D) are the teachers' vectors of the batch.

        `own` (n,) are the texts' own columns.
        """
        return distillation(scores, taught[own] @ taught.T, own, TEMPERATURE)

    def of_vectors(self, dense: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        """The loss of a student's dense vectors (n, any length) and the teachers' (n, D)."""
        units = torch.nn.functional.normalize(dense, dim=-1, eps=1e-12)
        if self.projection is not None:
            units = units @ self.projection.T
        return squared_distance(units, taught)
