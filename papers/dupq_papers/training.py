"""The papers' losses, optimizers and examples of an epoch, as PaperTraining sets them, for dupq's training loop."""

from typing import TypeVar

import numpy as np
import torch

from dupq.encoders.on_device import moved
from dupq.encoders.protocol import Encoder
from dupq.errors import SettingError
from dupq.links import Split
from dupq.training.loop import PaperExamples, Texts, embed, epoch_order
from dupq.training.optimisation import Adam, Optimizer, trained_parameters
from dupq.training.pairs import Pairs, Rankings, chosen_pairs, with_negatives, with_random_negatives
from dupq_papers.settings import PaperTraining


def squared_error(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum over pairs of 1/2 (y - s)^2 (Bogdanova et al. 2015, equation 3). Shapes (B,), (B,) to a scalar."""
    return 0.5 * (labels - scores).square().sum()


def sum_of_squares(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum over pairs of (y - s)^2; its mean is the mean square error of Othman et al. 2021, section 5.3."""
    return (labels - scores).square().sum()


def logistic_ranking(positive: torch.Tensor, negative: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return the sum of log(1 + exp(-gamma Delta)), Delta = s+ - s- (dos Santos et al. 2015, section 2.5).

    `positive` and `negative` (B,) are the scores of the two pairs of each round.
    """
    return torch.nn.functional.softplus(-gamma * (positive - negative)).sum()


def both_ways(rankings: Rankings) -> Rankings:
    """Return each pair twice, with its left and with its right question as the anchor, which is `left`.

    dos Santos et al. 2015, section 2.5: a negative question x makes the pairs (q1, x) and (q2, x), and a round has one
    positive and one negative pair.
    """
    return Rankings(
        np.concatenate([rankings.left, rankings.right]),
        np.concatenate([rankings.right, rankings.left]),
        np.concatenate([rankings.negatives] * 2),
        np.concatenate([rankings.sets] * 2),
    )


_Columns = TypeVar("_Columns", Pairs, Rankings)


class LabelledPairs:
    """Pairs whose scores should equal their labels."""

    def __init__(self, pairs: Pairs, is_mean: bool) -> None:
        """Use the loss of Othman et al. if `is_mean`, else the loss of Bogdanova et al."""
        self.pairs, self.left, self.is_mean = pairs, pairs.left, is_mean

    def loss(self, network: Encoder, texts_of: Texts, rows: np.ndarray) -> torch.Tensor:
        """Return the sum of the losses of the pairs at `rows`; their questions go through the network together."""
        count, (left, right, labels) = len(rows), (column[rows] for column in self.pairs)
        embeddings = embed(network, texts_of, np.concatenate([left, right]))
        scores = network.score(embeddings.rows(0, count), embeddings.rows(count, 2 * count))
        return (sum_of_squares if self.is_mean else squared_error)(scores, moved(labels, scores.device).to(scores))


class Rounds:
    """Pairs of duplicates, each compared with the hardest of its negatives."""

    is_mean = False

    def __init__(self, rankings: Rankings, gamma: float, anchors: tuple[int, ...]) -> None:
        """Compare the negative with the `anchors` of a pair: 0 is its left question, 1 its right one."""
        self.rankings, self.left, self._gamma, self._anchors = rankings, rankings.left, gamma, anchors

    def loss(self, network: Encoder, texts_of: Texts, rows: np.ndarray) -> torch.Tensor:
        """Return the sum of the losses of the pairs at `rows`."""
        batch = Rankings(*(column[rows] for column in self.rankings))
        return _ranking_loss(network, texts_of, batch, self._gamma, self._anchors)


def epoch_examples(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: PaperTraining,
    epoch: int,
    mined: np.ndarray | None,
    wrong: np.ndarray,
) -> Rankings | PaperExamples:
    """Return the examples of an epoch, in the form that the loss needs; see `dupq.training.loop.epoch_examples`."""
    if settings.pairs:
        kept = set(map(tuple, chosen_pairs(links, settings.pairs, settings.seed).tolist()))
        is_kept = np.array([tuple(pair) in kept for pair in links.tolist()], bool)
        links, mined = links[is_kept], None if mined is None else mined[is_kept]
    if settings.loss != "softmax" and not settings.negatives and mined is None and not len(wrong):
        raise SettingError(
            "setting 'training.negatives' is 0; at least 1 expected, unless there are mined ones, pairs labelled 0 "
            "in a file of --pairs, or the loss is softmax"
        )
    drawn = epoch if settings.negatives_drawn == "each-epoch" else 0
    generator = np.random.default_rng([settings.seed, drawn])
    if settings.loss in ("logistic_ranking", "softmax"):
        rankings = with_negatives(links, pool, split, settings.negatives, generator, mined, wrong)
        is_apart = settings.loss == "logistic_ranking" and settings.anchors == "apart"
        rankings = _in_order(both_ways(rankings) if is_apart else rankings, settings, epoch)
        if settings.loss == "softmax":
            return rankings
        return Rounds(rankings, settings.gamma, (0,) if is_apart else (0, 1))
    if mined is not None:
        hard = np.stack([np.repeat(links[:, 0], mined.shape[1]), mined.ravel()], axis=1)
        wrong = np.concatenate([hard, wrong])
    # "randomly generated from the corpus" (Bogdanova et al. 2015, section 5.1): both questions are
    left = generator.choice(pool, len(links) * settings.negatives) if settings.negative_pairs == "random" else None
    pairs = with_random_negatives(links, pool, split, settings.negatives, generator, left)
    wrong_pairs = *wrong.T, np.zeros(len(wrong), np.float32)
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(pairs, wrong_pairs, strict=True)))
    return LabelledPairs(_in_order(pairs, settings, epoch), settings.loss == "mean_squared_error")


def _in_order(columns: _Columns, settings: PaperTraining, epoch: int) -> _Columns:
    order = epoch_order(len(columns.left), settings.seed, epoch)
    return type(columns)(*(column[order] for column in columns))


def _ranking_loss(
    network: Encoder, texts_of: Texts, batch: Rankings, gamma: float, anchors: tuple[int, ...]
) -> torch.Tensor:
    """Return the sum of the losses of the `anchors` of each pair: 0 is its left question, 1 its right one."""
    count = len(batch.left)
    negatives = _hardest(network, texts_of, batch, anchors)
    embeddings = embed(network, texts_of, np.concatenate([batch.left, batch.right, *negatives]))
    sides = [embeddings.rows(side * count, (side + 1) * count) for side in range(2 + len(anchors))]
    positive = network.score(sides[0], sides[1])
    losses = [
        logistic_ranking(positive, network.score(sides[anchor], negative), gamma)
        for anchor, negative in zip(anchors, sides[2:], strict=True)
    ]
    return torch.stack(losses).sum()


def _hardest(network: Encoder, texts_of: Texts, rankings: Rankings, anchors: tuple[int, ...]) -> list[np.ndarray]:
    """Return for each anchor (0 left, 1 right) the negative question of each pair with the highest score."""
    count, negatives = rankings.negatives.shape
    questions = [(rankings.left, rankings.right)[anchor] for anchor in anchors]
    keys = np.concatenate([*questions, rankings.negatives.ravel()])
    was_training = network.training
    network.eval()
    with torch.no_grad():
        embeddings = embed(network, texts_of, keys)
        drawn = embeddings.rows(len(anchors) * count, len(keys))
        best = []
        for side in range(len(anchors)):
            rows_of_anchor = torch.arange(side * count, (side + 1) * count, device=embeddings.dense.device)
            scores = network.score(embeddings.take(rows_of_anchor.repeat_interleave(negatives)), drawn)
            best.append(scores.reshape(count, negatives).argmax(dim=1).cpu().numpy())
    network.train(was_training)
    rows = np.arange(count)
    return [rankings.negatives[rows, hardest] for hardest in best]


def optimizer_for(network: torch.nn.Module, settings: PaperTraining) -> Optimizer:
    """Return the optimizer of all trained parameters; it clips their gradients if `gradient_clipping` is set."""
    made = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adadelta": Adadelta, "adam": Adam}
    optimizer: Optimizer = made[settings.optimizer](trained_parameters(network), settings.learning_rate)
    if settings.gradient_clipping:
        step = optimizer.step

        def clipped_step() -> None:
            clip_gradients(network, settings.gradient_clipping)
            step()

        optimizer.step = clipped_step  # type: ignore[method-assign]
    return optimizer


def clip_gradients(network: torch.nn.Module, length: float) -> None:
    """Shorten the gradient of all parameters together to at most `length` (Pascanu et al. 2013, algorithm 1)."""
    gradients = []
    for parameter in network.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad)
    values = [grad.values() if grad.is_sparse else grad for grad in gradients]
    if values:
        total = torch.stack([each.double().square().sum() for each in values]).sum().sqrt()
        for each in values:
            each.mul_((length / total).clamp_max(1).nan_to_num(1))  # a GPU is not waited for


class Adadelta(Adam):
    """Algorithm 1 of Zeiler 2012, with its rho = 0.95 and epsilon = 1e-6; the paper's learning rate is 1."""

    @staticmethod
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """Return the change before the learning rate; `first` is E[g^2] and `second` is E[dx^2]."""
        first.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
        change = (second + 1e-6).sqrt() / (first + 1e-6).sqrt() * gradient
        second.mul_(0.95).addcmul_(change, change, value=0.05)
        return change
