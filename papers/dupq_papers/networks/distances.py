"""Encoders whose embeddings may be compared by a distance, as those of Othman et al. (DKE 2021)."""

import torch

from dupq.encoders.protocol import Embedding, Encoder

_ORDERS = {"manhattan": 1.0, "euclidean": 2.0}


class DistanceEncoder(Encoder):
    """An encoder with scores by its `kind`; see Measure."""

    def score(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder."""
        if self.kind == "cosine":
            return super().score(left, right)
        return torch.exp(-torch.linalg.vector_norm(left.dense - right.dense, ord=_ORDERS[self.kind], dim=-1))

    def score_matrix(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """See Encoder."""
        if self.kind == "cosine":
            return super().score_matrix(left, right)
        exact = "donot_use_mm_for_euclid_dist"
        return torch.exp(-torch.cdist(left.dense, right.dense, p=_ORDERS[self.kind], compute_mode=exact))
