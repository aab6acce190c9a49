"""Encoders whose embeddings may be compared by a distance, as those of Othman et al. (DKE 2021)."""

from typing import Literal

import torch

from dupq.encoders.protocol import Embedding, Encoder
from dupq.neighbours.embeddings import COSINE
from dupq_papers.distances import ORDERS

Similarity = Literal["cosine", "manhattan", "euclidean"]


class DistanceEncoder(Encoder):
    """An encoder with scores by its `kind`, a Similarity."""

    def score(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder."""
        if self.kind == COSINE:
            return super().score(left, right)
        return torch.exp(-torch.linalg.vector_norm(left.dense - right.dense, ord=ORDERS[self.kind], dim=-1))

    def score_matrix(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder."""
        if self.kind == COSINE:
            return super().score_matrix(left, right)
        exact = "donot_use_mm_for_euclid_dist"
        return torch.exp(-torch.cdist(left.dense, right.dense, p=ORDERS[self.kind], compute_mode=exact))
