"""Building the network that the settings describe, new or from saved weights."""

from collections.abc import Mapping

import numpy as np
import torch

from dupq.encoders.kinds import network_settings
from dupq.encoders.protocol import Encoder
from dupq.errors import DupqError
from dupq.settings.encoder import EncoderSettings


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """A fresh network over `word_vectors` (float32, one row an id of the vocabulary), the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network_settings(settings).network(word_vectors)


def rebuild(settings: EncoderSettings, tensors: Mapping[str, np.ndarray], place: str) -> Encoder:
    """The network that `tensors` (by name) are the weights of; raises DupqError naming `place` if they do not fit."""
    if "words.weight" not in tensors or tensors["words.weight"].ndim != 2:
        raise DupqError(f"{place}: no table of word vectors (words.weight); train the encoder anew")
    network = build(settings, tensors["words.weight"], seed=0)
    try:
        network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DupqError(f"{place}: not the weights of a network of kind {settings.kind} ({reason})") from error
    return network.eval()
