"""Texts to embeddings: float16, row by row in the order of the texts."""

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from dupq.encoders.batches import batches
from dupq.encoders.protocol import Embedding, Encoder
from dupq.errors import DupqError

_LARGEST = float(np.finfo(np.float16).max)


class Encoded(NamedTuple):
    """Embeddings of n texts; see dupq/neighbours/embeddings.py."""

    vectors: np.ndarray  # float16, (n, D)
    words: sparse.csr_array | None  # float32 that are float16 numbers, (n, ids); None without a lexical part


def encode(network: Encoder, sequences: list[np.ndarray], rows: int) -> Encoded:
    """Embeddings of token ids, on the device that the network is on.

    Vectors that are scored by cosine, and bags of words, have length 1 before they are rounded to float16. The
    row of an empty text is zero. `rows` is the size of a batch and bounds memory. On a GPU products are of bfloat16.
    """
    vectors = np.zeros((len(sequences), network.dimensions), np.float16)
    bags: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # text, word, weight
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        for batch in batches(sequences, rows):
            found = network(torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.lengths).to(device))
            dense = found.dense.float()
            if network.kind == "cosine":
                dense = _of_length_one(dense)
            vectors[batch.texts] = dense[: len(batch.texts)].clamp(-_LARGEST, _LARGEST).half().cpu().numpy()
            if network.is_lexical:
                bags.append(_bags(found, batch.texts))
    if np.isnan(vectors).any():
        raise DupqError("the encoder gives embeddings that are no numbers; train it anew, at a lower learning rate")
    return Encoded(vectors, _matrix(bags, len(sequences)) if network.is_lexical else None)


def _of_length_one(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1, eps=1e-12)


def _bags(found: Embedding, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries of the bags of a batch, as text, word and weight."""
    words, weights = (part[: len(texts)] for part in found.bag)
    rounded = _of_length_one(weights.float()).half().cpu().numpy()
    rows, places = np.nonzero(rounded)
    return texts[rows], words.cpu().numpy()[rows, places], rounded[rows, places].astype(np.float32)


def _matrix(bags: list[tuple[np.ndarray, np.ndarray, np.ndarray]], texts: int) -> sparse.csr_array:
    rows, words, weights = (np.concatenate(parts) for parts in zip(*bags, strict=True)) if bags else [np.zeros(0)] * 3
    order = np.lexsort((words, rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=texts))])
    columns = int(words.max(initial=0)) + 1
    return sparse.csr_array(
        (weights[order].astype(np.float32), words[order].astype(np.int64), offsets), shape=(texts, columns)
    )
