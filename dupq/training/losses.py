"""The losses that encoders are trained with, each a sum over the rows of a batch."""

import torch

from dupq.encoders.protocol import Embedding, Encoder, is_nothing
from dupq.neighbours.measure import Kind


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


def softmax(scores: torch.Tensor, right: torch.Tensor, temperature: float) -> torch.Tensor:
    """The sum of -log(exp(s_r / t) / sum over c of exp(s_c / t)), c all candidates (Henderson et al. 2017, section 4).

    `scores` (B, C) are those of each left question with its candidates, -inf where one may not count; `right` (B,)
    is the column of the true one.
    """
    return torch.nn.functional.cross_entropy(scores / temperature, right, reduction="sum")


def distillation(scores: torch.Tensor, taught: torch.Tensor, own: torch.Tensor, temperature: float) -> torch.Tensor:
    """How far the distributions over the other texts of a batch are from a teacher's: the sum of KL(teacher || own).

    Both are softmaxes of scores (n, B) over the temperature, without the text itself, which is column `own` (n,). The
    teacher thus passes on which texts are alike, in whatever space (Peng et al. 2019, correlation congruence; the
    distributions of Fang et al. 2021, SEED, section 3.2).
    """
    rows = torch.arange(len(own), device=own.device)

    def logarithms(side: torch.Tensor) -> torch.Tensor:
        others = (side / temperature).index_put((rows, own), side.new_tensor(-1e4))
        return torch.nn.functional.log_softmax(others, dim=1)

    return torch.nn.functional.kl_div(logarithms(scores), logarithms(taught), log_target=True, reduction="sum")


def squared_distance(vectors: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
    """The sum over rows of ||v - t||^2, shapes (n, D) both: a student's vectors and a teacher's, of length 1.

    Vujanic and Rueckstiess 2025, LEAF, which also learns from nothing but the teacher's embeddings.
    """
    return (vectors - taught).square().sum()


def score_matrix(network: Encoder, left: Embedding, right: Embedding) -> torch.Tensor:
    """The scores (n, m) of every left with every right embedding: those of `network.score`."""
    dense, lexical = network.mix()
    scores = dense * _similarities(network.kind, left.dense, right.dense)
    if is_nothing(lexical):
        return scores
    return scores + lexical * _bag_cosines(left, right)


def _bag_cosines(left: Embedding, right: Embedding) -> torch.Tensor:
    """The cosines (n, m) of bags, as a product of matrices with a column for each word that is there."""
    words, places = torch.unique(torch.cat([left.bag[0].flatten(), right.bag[0].flatten()]), return_inverse=True)
    split = places.split([left.bag[0].numel(), right.bag[0].numel()])
    units = []
    for (ids, weights), columns in zip((left.bag, right.bag), split, strict=True):
        matrix = weights.new_zeros(len(ids), len(words)).scatter_add(1, columns.view_as(ids), weights)
        units.append(torch.nn.functional.normalize(matrix, dim=1, eps=1e-12))
    return units[0] @ units[1].T


def _similarities(kind: Kind, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if kind == "cosine":
        normal = torch.nn.functional.normalize
        return normal(left, dim=-1, eps=1e-12) @ normal(right, dim=-1, eps=1e-12).T
    order = 1.0 if kind == "manhattan" else 2.0
    return torch.exp(-torch.cdist(left, right, p=order, compute_mode="donot_use_mm_for_euclid_dist"))
