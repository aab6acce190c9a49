"""The training loop, without Ray: one process, or one of several that share each batch."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from dupq.encoders.protocol import Embedding, Encoder, padded, padded_length
from dupq.links.split import Split
from dupq.settings.training import TrainingSettings
from dupq.text.questions import PADDING
from dupq.text.token_arrays import TokenIds
from dupq.training import optimisation
from dupq.training.optimisation import (
    clip_gradients,
    logistic_ranking,
    score_matrix,
    softmax,
    squared_error,
    sum_of_squares,
)
from dupq.training.pairs import (
    Distillation,
    Pairs,
    Rankings,
    both_ways,
    with_negatives,
    with_random_negatives,
)

_NO_PAIRS = np.zeros((0, 2), np.int64)
_ORDER = 2  # the end of an epoch's seed of its order; mining's is 1, and a seed without one is that with 0
_MEAN_LOSSES = ("mean_squared_error", "softmax")  # of a batch; the others are its sum
Sequences = Mapping[int, np.ndarray]  # the token ids of each question, by key


class Losses(NamedTuple):
    """The losses of the steps of an epoch, of all workers together: summed over a step's examples, and their number."""

    sums: np.ndarray  # float64
    examples: np.ndarray  # int64

    @property
    def each(self) -> np.ndarray:
        """The mean loss of each step's examples."""
        return self.sums / self.examples

    @property
    def mean(self) -> float:
        """The mean loss of the epoch's examples; 0 if it had none."""
        return float(self.sums.sum() / max(1, self.examples.sum()))


class Share(NamedTuple):
    """What one worker does of one batch."""

    start: int  # of the batch, among the examples
    size: int  # of the batch
    places: np.ndarray  # of its own examples in the batch

    @property
    def rows(self) -> np.ndarray:
        """Its examples; one that is not its own if it has none, as all workers join in each exchange."""
        return self.start + (self.places if len(self.places) else np.zeros(1, np.int64))

    @property
    def weight(self) -> float:
        """0 for a worker without rows of its own."""
        return 1.0 if len(self.places) else 0.0


def epoch_examples(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: TrainingSettings,
    epoch: int,
    mined: np.ndarray | None = None,
    wrong: np.ndarray = _NO_PAIRS,
) -> Pairs | Rankings:
    """What one epoch is trained on: `links` (int64, shape (m, 2)) and questions of `pool`, as the loss needs them.

    `mined` (int64, shape (m, any)) are hard negatives of each link; `wrong` are pairs that are labelled as no
    duplicates. The order is another one in each epoch, also of negatives that are drawn once.
    """
    drawn = epoch if settings.negatives_drawn == "each-epoch" else 0
    generator = np.random.default_rng([settings.seed, drawn])
    if settings.loss in ("logistic_ranking", "softmax"):
        rankings = with_negatives(links, pool, split, settings.negatives, generator, mined, wrong)
        if settings.loss == "logistic_ranking" and settings.anchors == "apart":
            rankings = both_ways(rankings)
        return Rankings(*_shuffled(rankings, settings.seed, epoch))
    if mined is not None:
        hard = np.stack([np.repeat(links[:, 0], mined.shape[1]), mined.ravel()], axis=1)
        wrong = np.concatenate([hard, wrong])
    pairs = with_random_negatives(links, pool, split, settings.negatives, generator, wrong, settings.negative_pairs)
    return Pairs(*_shuffled(pairs, settings.seed, epoch))


def _shuffled(columns: Pairs | Rankings, seed: int, epoch: int) -> list[np.ndarray]:
    order = np.random.default_rng([seed, epoch, _ORDER]).permutation(len(columns.left))
    return [column[order] for column in columns]


def train_epoch(
    network: Encoder,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    examples: Pairs | Rankings | Distillation,
    settings: TrainingSettings,
    worker: tuple[int, int] = (0, 1),
    watch: Callable[[int, Callable[[], Losses]], None] = lambda steps, losses: None,
    rates: tuple[float, float] = (1.0, 1.0),
) -> Losses:
    """One pass over `examples` in their order.

    `worker` is (rank, number of workers): a worker takes every n-th example of each batch, and gradients are summed
    over the workers. So n of them take the same steps as one, but for dropout, which each draws for itself. `watch`
    is called after each step with their number, and what gives this worker's own losses so far: losses stay on the
    device until somebody asks, as a GPU would be waited for. `rates` are the shares of the optimizer's
    learning rate at the epoch's first step and after its last one; between them it changes evenly.
    """
    network.train()
    learner = torch.nn.ModuleList([network, examples.loss]) if isinstance(examples, Distillation) else network
    starts = range(0, len(examples.left), settings.batch_size)
    device = network.words.weight.device
    sums, examples_of = torch.zeros(len(starts), dtype=torch.float64, device=device), np.zeros(len(starts), np.int64)
    learning_rates = [group["lr"] for group in optimizer.param_groups]
    for step, start in enumerate(starts):
        network.begin_step()
        share = _share(start, min(start + settings.batch_size, len(examples.left)), worker)
        loss = _loss(network, sequences, examples, share, settings) * share.weight
        optimizer.zero_grad(set_to_none=True)
        (loss / share.size if settings.loss in _MEAN_LOSSES else loss).backward()
        optimisation.sum_gradients(learner)
        if settings.gradient_clipping:
            clip_gradients(learner, settings.gradient_clipping)
        for group, rate in zip(optimizer.param_groups, learning_rates, strict=True):
            group["lr"] = rate * float(np.interp(step / len(starts), (0, 1), rates))
        optimizer.step()
        sums[step], examples_of[step] = loss.detach(), len(share.places)
        watch(step + 1, functools.partial(_so_far, sums[: step + 1], examples_of[: step + 1]))
    for group, rate in zip(optimizer.param_groups, learning_rates, strict=True):
        group["lr"] = rate
    together = optimisation.sum_of_all(np.stack([sums.cpu().numpy(), examples_of.astype(np.float64)]), device)
    return Losses(together[0], together[1].astype(np.int64))


def _so_far(sums: torch.Tensor, examples: np.ndarray) -> Losses:
    return Losses(sums.cpu().numpy(), examples)


def _share(start: int, stop: int, worker: tuple[int, int]) -> Share:
    rank, workers = worker
    return Share(start, stop - start, np.arange(stop - start)[rank::workers])


def _loss(
    network: Encoder,
    sequences: Sequences,
    examples: Pairs | Rankings | Distillation,
    share: Share,
    settings: TrainingSettings,
) -> torch.Tensor:
    """The loss of some examples, all of whose questions go through the network together."""
    rows, count = share.rows, len(share.rows)
    if isinstance(examples, Distillation):
        return _distillation_loss(network, sequences, examples, share)
    if isinstance(examples, Pairs):
        found = embed(network, sequences, np.concatenate([examples.left[rows], examples.right[rows]]))
        scores = network.score(found.rows(0, count), found.rows(count, 2 * count))
        labels = torch.from_numpy(examples.labels[rows]).to(scores)
        return (sum_of_squares if settings.loss == "mean_squared_error" else squared_error)(scores, labels)
    batch = Rankings(*(column[rows] for column in examples))
    if settings.loss == "logistic_ranking":
        sides = (0,) if settings.anchors == "apart" else (0, 1)
        return _ranking_loss(network, sequences, batch, settings.gamma, sides)
    sets = examples.sets[share.start : share.start + share.size]
    return _softmax_loss(network, sequences, batch, share, sets, settings)


def _distillation_loss(network: Encoder, sequences: Sequences, examples: Distillation, share: Share) -> torch.Tensor:
    """Each own text against the whole batch, and against the teachers' vector of it."""
    found = embed(network, sequences, examples.left[share.rows])
    taught = torch.from_numpy(examples.vectors[share.start : share.start + share.size]).to(found.dense)
    own = torch.from_numpy(share.rows - share.start).to(taught.device)
    losses = []
    if examples.loss.compares_scores:
        scores = score_matrix(network, found, optimisation.whole_batch(found, share.places, share.size))
        losses.append(examples.loss.of_scores(scores, taught, own))
    if examples.loss.compares_vectors:
        losses.append(examples.loss.of_vectors(found.dense, taught[own]))
    return torch.stack(losses).sum()


def _ranking_loss(
    network: Encoder, sequences: Sequences, batch: Rankings, gamma: float, anchors: tuple[int, ...]
) -> torch.Tensor:
    """The losses from the questions of a pair that are `anchors`: 0 the left one, 1 the right one."""
    count = len(batch.left)
    negatives = _hardest(network, sequences, batch, anchors)
    found = embed(network, sequences, np.concatenate([batch.left, batch.right, *negatives]))
    sides = [found.rows(side * count, (side + 1) * count) for side in range(2 + len(anchors))]
    positive = network.score(sides[0], sides[1])
    losses = [
        logistic_ranking(positive, network.score(sides[anchor], negative), gamma)
        for anchor, negative in zip(anchors, sides[2:], strict=True)
    ]
    return torch.stack(losses).sum()


def _softmax_loss(
    network: Encoder,
    sequences: Sequences,
    batch: Rankings,
    share: Share,
    sets: np.ndarray,
    settings: TrainingSettings,
) -> torch.Tensor:
    """Each left question against the right ones of the whole batch, and against its own negatives.

    `sets` are those of the pairs of the whole batch: the right sides of a pair's own set are its duplicates, and do
    not count.
    """
    count, each = batch.negatives.shape
    found = embed(network, sequences, np.concatenate([batch.left, batch.right, batch.negatives.ravel()]))
    left, own_right = found.rows(0, count), found.rows(count, 2 * count)
    scores = score_matrix(network, left, optimisation.whole_batch(own_right, share.places, share.size))
    places = share.rows - share.start
    is_duplicate = batch.sets[:, None] == sets[None, :]
    is_duplicate[np.arange(count), places] = False
    scores = scores.masked_fill(torch.from_numpy(is_duplicate).to(scores.device), -torch.inf)
    anchors = torch.arange(count, device=scores.device).repeat_interleave(each)
    negatives = network.score(left.take(anchors), found.rows(2 * count, (2 + each) * count))
    candidates = torch.cat([scores, negatives.reshape(count, each)], dim=1)
    return softmax(candidates, torch.from_numpy(places).to(scores.device), settings.temperature)


def _hardest(network: Encoder, sequences: Sequences, rankings: Rankings, anchors: tuple[int, ...]) -> list[np.ndarray]:
    """For each anchor (0 left, 1 right) the negative question of each pair that scores highest with it now."""
    count, negatives = rankings.negatives.shape
    questions = [(rankings.left, rankings.right)[anchor] for anchor in anchors]
    keys = np.concatenate([*questions, rankings.negatives.ravel()])
    was_training = network.training
    network.eval()
    with torch.no_grad():
        found = embed(network, sequences, keys)
        drawn = found.rows(len(anchors) * count, len(keys))
        best = []
        for side in range(len(anchors)):
            own = torch.arange(side * count, (side + 1) * count, device=found.dense.device)
            scores = network.score(found.take(own.repeat_interleave(negatives)), drawn)
            best.append(scores.reshape(count, negatives).argmax(dim=1).cpu().numpy())
    network.train(was_training)
    rows = np.arange(count)
    return [rankings.negatives[rows, hardest] for hardest in best]


def embed(network: Encoder, sequences: Sequences, keys: np.ndarray) -> Embedding:
    """The embeddings of questions, by key; differentiable. On a GPU products are of bfloat16, and scores of float32.

    Some networks read texts without padding. Else texts of like length go through the network together: in one batch
    all would be padded to the longest, which is most of the work where one of 20 is long (measured: 22 texts of the CNN
    in 39 ms for 140).
    """
    device = network.words.weight.device
    texts = TokenIds.of([sequences[int(key)] for key in keys])
    flat = network.flat(texts)
    if flat is not None:
        return flat
    wanted = np.array([padded_length(length) for length in texts.lengths.tolist()])
    pieces, places = [], []
    for length in np.unique(wanted).tolist():
        members = np.flatnonzero(wanted == length)
        ids = torch.from_numpy(padded(texts, members, len(members), length))
        lengths = torch.from_numpy(texts.lengths[members])
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            pieces.append(network(ids.to(device), lengths.to(device)))
        places.append(members)
    order = torch.from_numpy(np.argsort(np.concatenate(places))).to(device)
    return _stacked(pieces).take(order)


def _stacked(pieces: list[Embedding]) -> Embedding:
    dense = torch.cat([piece.dense for piece in pieces]).float()
    if pieces[0].words is None:
        return Embedding(dense)
    width = max(piece.bag[0].shape[1] for piece in pieces)
    words, weights = zip(*(_widened(piece, width) for piece in pieces), strict=True)
    return Embedding(dense, torch.cat(words), torch.cat(weights).float())


def _widened(piece: Embedding, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bags of `piece` with more padding, which comes first."""
    words, weights = piece.bag
    front = (width - words.shape[1], 0)
    return torch.nn.functional.pad(words, front, value=PADDING), torch.nn.functional.pad(weights, front)
