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
    """The network that `tensors` (by name) are the weights of.

    Raises DupqError naming `place` if they do not fit.
    """
    try:
        network = build(settings, tensors["words.weight"], seed=0)
        wanted = {name: value.dtype for name, value in network.state_dict().items()}
        given = {name: torch.from_numpy(value) for name, value in tensors.items()}
        network.load_state_dict(given)
        wrong = [name for name, value in given.items() if value.dtype != wanted[name]]
        if wrong:
            raise RuntimeError(f"'{wrong[0]}' is {given[wrong[0]].dtype}, not {wanted[wrong[0]]}")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DupqError(f"{place}: not the weights of a network of kind {settings.kind} ({reason})") from error
    return network.eval()
