"""What an epoch is made with, in one process or several: the seed of dropout, and how the learning rate falls."""

import numpy as np
import torch

from dupq.settings.training import TrainingSettings

TEMPERATURE = 0.05  # what scores are divided by in the phases before known duplicates


def seed_dropout(seed: int, epoch: int, rank: int = 0) -> None:
    """Seed torch's generators, which dropout draws from: one seed for each epoch of each worker."""
    torch.manual_seed(int(np.random.SeedSequence((seed, epoch, rank)).generate_state(1, np.uint64)[0]))


def falling(epoch: int, epochs: int) -> tuple[float, float]:
    """The shares of the learning rate at the ends of an epoch (from 1), if it falls to 0 over all."""
    return 1.0 - (epoch - 1) / epochs, 1.0 - epoch / epochs


def rates(epoch: int, training: TrainingSettings) -> tuple[float, float]:
    """Likewise of an epoch of known duplicates, as `training.decay` says."""
    return falling(epoch, training.epochs) if training.decay == "linear" else (1.0, 1.0)


def as_training(training: TrainingSettings, batch_size: int, learning_rate: float) -> TrainingSettings:
    """Return what an epoch of a phase before known duplicates is trained with: `training`, but for what it has."""
    return training.changed(loss="softmax", batch_size=batch_size, learning_rate=learning_rate, temperature=TEMPERATURE)
