"""The training loop, without Ray: one process, or one of several that share each batch."""

from collections.abc import Mapping

import numpy as np
import torch

from dupq.config import TrainingSettings
from dupq.encoders.batches import padded_length
from dupq.encoders.protocol import Encoder
from dupq.text.vocabulary import PADDING
from dupq.training.losses import logistic_ranking, squared_error, sum_of_squares
from dupq.training.optimizers import clip_gradients
from dupq.training.pairs import Pairs, Rankings, with_random_negatives, with_strangers
from dupq.training.split import Split


def epoch_examples(
    links: np.ndarray, pool: np.ndarray, split: Split, settings: TrainingSettings, epoch: int
) -> Pairs | Rankings:
    """What one epoch is trained on: `links` (int64, shape (m, 2)) and questions of `pool`, as the loss needs them."""
    drawn = epoch if settings.negatives_drawn == "each-epoch" else 0
    generator = np.random.default_rng([settings.seed, drawn])
    if settings.loss == "logistic_ranking":
        return with_strangers(links, pool, split, settings.negatives, generator)
    return with_random_negatives(links, pool, split, settings.negatives, generator)


def train_epoch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    sequences: Mapping[int, np.ndarray],
    examples: Pairs | Rankings,
    settings: TrainingSettings,
    worker: tuple[int, int] = (0, 1),
) -> float:
    """One pass over `examples` in their order; returns the mean loss of this worker's.

    `model` is an encoder, or DistributedDataParallel round one; `sequences` maps keys to token ids. `worker` is
    (rank, number of workers): a worker takes every n-th example of each batch, and its loss is scaled so that the
    mean of all workers' gradients is the gradient of the whole batch's loss. So n workers take the same steps as
    one, but for dropout, which each draws for itself.
    """
    rank, workers = worker
    model.train()
    total, seen = 0.0, 0
    for start in range(0, len(examples.left), settings.batch_size):
        batch = np.arange(start, min(start + settings.batch_size, len(examples.left)))
        rows = batch[rank::workers]
        weight = 1.0 if len(rows) else 0.0
        rows = rows if len(rows) else batch[:1]  # every worker joins the exchange of gradients
        loss = _loss(model, sequences, examples, rows, settings) * weight
        share = len(batch) if settings.loss == "mean_squared_error" else 1
        optimizer.zero_grad(set_to_none=True)
        (loss * workers / share).backward()
        if settings.gradient_clipping:
            clip_gradients(model, settings.gradient_clipping)
        optimizer.step()
        total += float(loss.detach())
        seen += len(rows) if weight else 0
    return total / max(1, seen)


def _loss(
    model: torch.nn.Module,
    sequences: Mapping[int, np.ndarray],
    examples: Pairs | Rankings,
    rows: np.ndarray,
    settings: TrainingSettings,
) -> torch.Tensor:
    """The loss of some examples, all of whose questions go through the network in one batch."""
    network, count = _encoder(model), len(rows)
    left, right = examples.left[rows], examples.right[rows]
    if isinstance(examples, Pairs):
        ids, lengths = _padded(network, sequences, np.concatenate([left, right]))
        found = model(ids, lengths)
        scores = network.score(found.rows(0, count), found.rows(count, 2 * count))
        labels = torch.from_numpy(examples.labels[rows]).to(scores)
        return (sum_of_squares if settings.loss == "mean_squared_error" else squared_error)(scores, labels)
    strangers = _hardest(network, sequences, Rankings(left, right, examples.strangers[rows]))
    ids, lengths = _padded(network, sequences, np.concatenate([left, right, *strangers]))
    found = model(ids, lengths)
    sides = [found.rows(side * count, (side + 1) * count) for side in range(4)]
    positive = network.score(sides[0], sides[1])
    return sum(
        (logistic_ranking(positive, network.score(sides[side], sides[side + 2]), settings.gamma) for side in (0, 1)),
        torch.zeros_like(positive[0]),
    )


def _hardest(
    network: Encoder, sequences: Mapping[int, np.ndarray], rankings: Rankings
) -> tuple[np.ndarray, np.ndarray]:
    """For the left and for the right questions, that stranger of each pair which scores highest with it now."""
    count, strangers = rankings.strangers.shape
    keys = np.concatenate([rankings.left, rankings.right, rankings.strangers.ravel()])
    was_training = network.training
    network.eval()
    with torch.no_grad():
        found = network(*_padded(network, sequences, keys))
        drawn = found.rows(2 * count, len(keys))
        best = []
        for side in (0, 1):
            own = torch.arange(side * count, (side + 1) * count, device=found.dense.device)
            scores = network.score(found.take(own.repeat_interleave(strangers)), drawn)
            best.append(scores.reshape(count, strangers).argmax(dim=1).cpu().numpy())
    network.train(was_training)
    rows = np.arange(count)
    return rankings.strangers[rows, best[0]], rankings.strangers[rows, best[1]]


def _encoder(model: torch.nn.Module) -> Encoder:
    """The encoder inside DistributedDataParallel, or itself."""
    network = getattr(model, "module", model)
    assert isinstance(network, Encoder)
    return network


def _padded(
    network: Encoder, sequences: Mapping[int, np.ndarray], keys: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    device = network.words.weight.device
    ids, lengths = pad([sequences[int(key)] for key in keys])
    return ids.to(device), lengths.to(device)


def pad(texts: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (B, L) and lengths (B,) of texts of different lengths."""
    lengths = torch.tensor([len(text) for text in texts])
    ids = torch.full((len(texts), padded_length(int(lengths.max()))), PADDING)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
    return ids, lengths
