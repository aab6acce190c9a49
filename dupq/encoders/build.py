"""From settings to a network."""

import numpy as np
import torch

from dupq.config import EncoderSettings
from dupq.encoders.cnn import CNN
from dupq.encoders.protocol import Encoder


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """A fresh network over `word_vectors` (float32, one row an id of the vocabulary), the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CNN(torch.from_numpy(word_vectors.copy()), settings.units, settings.window, settings.pooling)
