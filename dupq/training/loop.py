"""The training loop, without Ray: one process, or one of several that share each batch."""

from collections.abc import Mapping

import numpy as np
import torch

from dupq.encoders.batches import padded_length
from dupq.encoders.protocol import Encoder, cosine
from dupq.text.vocabulary import PADDING
from dupq.training.losses import squared_error
from dupq.training.pairs import Pairs


def train_epoch(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    sequences: Mapping[int, np.ndarray],
    pairs: Pairs,
    batch_size: int,
    worker: tuple[int, int] = (0, 1),
) -> float:
    """One pass over `pairs` in their order; returns the mean loss of this worker's pairs.

    `sequences` maps keys to token ids. `worker` is (rank, number of workers): a worker takes every n-th pair
    of each batch, and its loss is scaled so that the mean of all workers' gradients is the gradient of the
    whole batch's sum. So n workers take the same steps as one.
    """
    rank, workers = worker
    network.train()
    device = next(network.parameters()).device
    total, seen = 0.0, 0
    for start in range(0, len(pairs.labels), batch_size):
        rows = np.arange(start, min(start + batch_size, len(pairs.labels)))[rank::workers]
        weight = 1.0 if len(rows) else 0.0
        rows = rows if len(rows) else np.array([start])  # every worker joins the exchange of gradients
        similarities = _similarities(network, sequences, pairs, rows, device)
        labels = torch.from_numpy(pairs.labels[rows]).to(device)
        loss = squared_error(similarities, labels) * weight
        optimizer.zero_grad(set_to_none=True)
        (loss * workers).backward()
        optimizer.step()
        total += float(loss.detach())
        seen += len(rows) if weight else 0
    return total / max(1, seen)


def _similarities(
    network: torch.nn.Module,
    sequences: Mapping[int, np.ndarray],
    pairs: Pairs,
    rows: np.ndarray,
    device: torch.device,
) -> torch.Tensor:
    """The cosines of pairs; both questions of all pairs go through the network in one batch."""
    texts = [sequences[int(key)] for key in np.concatenate([pairs.left[rows], pairs.right[rows]])]
    ids, lengths = pad(texts)
    vectors = network(ids.to(device), lengths.to(device))
    return cosine(vectors[: len(rows)], vectors[len(rows) :])


def pad(texts: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (B, L) and lengths (B,) of texts of different lengths."""
    lengths = torch.tensor([len(text) for text in texts])
    ids = torch.full((len(texts), padded_length(int(lengths.max()))), PADDING)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
    return ids, lengths


def optimizer_for(network: Encoder, learning_rate: float) -> torch.optim.Optimizer:
    """Plain stochastic gradient descent (Bogdanova et al. 2015, section 4.4)."""
    return torch.optim.SGD(network.parameters(), lr=learning_rate)
