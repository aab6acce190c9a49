"""Building the network that the settings describe, new or from saved weights."""

from collections.abc import Mapping

import numpy as np
import torch

from dupq.config import EncoderSettings
from dupq.encoders.bow_cnn import BowCNN, MaxCNN
from dupq.encoders.cnn import CNN
from dupq.encoders.mappsent import MappSent
from dupq.encoders.pretrained import Pretrained
from dupq.encoders.protocol import Encoder
from dupq.encoders.recurrent import Recurrent
from dupq.encoders.sif import SIF
from dupq.encoders.width_cnn import WidthCNN
from dupq.encoders.word_bag import WordBag
from dupq.encoders.word_bag_cnn import WordBagCNN
from dupq.encoders.words import word_table
from dupq.errors import DupqError


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """A fresh network over `word_vectors` (float32, one row an id of the vocabulary), the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _network(settings, word_vectors)


def _network(settings: EncoderSettings, word_vectors: np.ndarray) -> Encoder:
    is_prepared = settings.kind in ("sif", "mappsent", "sentence_transformers")  # and nothing is learned by gradients
    words = word_table(word_vectors, is_updated=settings.word_vectors == "learned" and not is_prepared)
    units, window, kind = settings.units, settings.window, settings.similarity
    match settings.kind:
        case "cnn":
            return CNN(words, units, window, settings.pooling)
        case "max_cnn":
            return MaxCNN(words, units, window)
        case "bow_cnn":
            is_updated = settings.word_weights == "learned"
            return BowCNN(words, units, window, settings.first_word_weights, is_updated)
        case "lstm" | "gru":
            return Recurrent(words, settings.kind, units, settings.pooling, kind)
        case "width_cnn":
            return WidthCNN(words, settings.widths, settings.filters, settings.dropout, units, kind)
        case "word_bag":
            return WordBag(words, settings.dropout)
        case "word_bag_cnn":
            return WordBagCNN(words, settings.dropout, units, window)
        case "sif":
            return SIF(words, settings.smoothing, settings.removed_components)
        case "mappsent":
            return MappSent(words, settings.mapping == "orthogonal", settings.removed_components)
        case "sentence_transformers":
            return Pretrained(words, settings.model)


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
