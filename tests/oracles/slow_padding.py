"""Padding, a text at a time."""

import numpy as np
import torch

from dupq.encoders.protocol import padded_length
from dupq.text.questions import PADDING


def pad(texts: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (B, L) and lengths (B,) of texts of different lengths."""
    lengths = torch.tensor([len(text) for text in texts])
    ids = torch.full((len(texts), padded_length(int(lengths.max()))), PADDING)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
    return ids, lengths
