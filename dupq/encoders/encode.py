"""Texts to embeddings: float16, unit length, row by row in the order of the texts."""

import numpy as np
import torch

from dupq.encoders.batches import batches
from dupq.encoders.protocol import Encoder


def encode(network: Encoder, sequences: list[np.ndarray], rows: int) -> np.ndarray:
    """Embeddings (float16, shape (n, dimensions)) of token ids, on the device that the network is on.

    Rows have length 1 before they are rounded to float16; the row of an empty text is zero. `rows` is the
    size of a batch and bounds memory.
    """
    result = np.zeros((len(sequences), network.dimensions), np.float16)
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode():
        for batch in batches(sequences, rows):
            ids = torch.from_numpy(batch.ids).to(device)
            vectors = network(ids, torch.from_numpy(batch.lengths).to(device))
            unit = torch.nn.functional.normalize(vectors.float(), dim=-1, eps=1e-12)
            result[batch.texts] = unit[: len(batch.texts)].half().cpu().numpy()
    return result
