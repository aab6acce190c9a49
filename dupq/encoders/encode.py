"""Encoding: texts to embeddings in float16, one row a text, in the order of the texts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from dupq.encoders.batches import Batch, batches
from dupq.encoders.protocol import Embedding, Encoder
from dupq.encoders.unpadded import pieces
from dupq.errors import DupqError
from dupq.text.token_ids import TokenIds

_LARGEST = float(np.finfo(np.float16).max)
_WORDS_AT_ONCE = 1 << 19  # travel's questions: 10,000 distinct ones, 37 MB of products at 300 units and a window of 3
_Started = tuple[Batch, Embedding]
_Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # text, word, weight


class Encoded(NamedTuple):
    """Embeddings of n texts; see dupq/neighbours/embeddings.py."""

    vectors: np.ndarray  # float16, (n, D)
    words: sparse.csr_array | None  # float32 that are float16 numbers, (n, ids); None without a lexical part


def encode(network: Encoder, texts: TokenIds | Sequence[np.ndarray], rows: int) -> Encoded:
    """Embeddings of token ids (int32), on the device that the network is on.

    Vectors that are scored by cosine, and bags of words, have length 1 before they are rounded to float16. The
    row of an empty text is zero. On a CPU texts are encoded without padding where the network can; otherwise, and for
    bags of words, `rows` is the size of a batch and bounds memory. On a GPU products are of bfloat16.
    Raises DupqError if the network gives NaN.
    """
    texts = texts if isinstance(texts, TokenIds) else TokenIds.of(texts)
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        flat = _flat(network, texts) if device.type == "cpu" else None
        if flat is not None:
            encoded = Encoded(flat, _words(network, texts, rows))
        else:
            encoded = _in_batches(network, texts, rows, device)
    if np.isnan(encoded.vectors).any():
        raise DupqError("the encoder gives embeddings that are no numbers; train it anew, at a lower learning rate")
    return encoded


def _flat(network: Encoder, texts: TokenIds) -> np.ndarray | None:
    """The vectors of texts without padding, many at a time; None if the network cannot do that."""
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    for some in pieces(texts.offsets, _WORDS_AT_ONCE):
        dense = network.dense_of(texts[some])
        if dense is None:
            return None
        vectors[some] = _rounded(network, dense)
    return vectors


def _words(network: Encoder, texts: TokenIds, rows: int) -> sparse.csr_array | None:
    """The bags of words alone."""
    if not network.is_lexical:
        return None
    bags = []
    for batch in batches(texts, rows):
        words, weights = network.bag_of(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths))
        bags.append(_entries(words, weights, batch.texts))
    return _matrix(bags, len(texts))


def _in_batches(network: Encoder, texts: TokenIds, rows: int, device: torch.device) -> Encoded:
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    bags: list[_Entries] = []
    started = (
        (batch, network(_moved(batch.ids, device), _moved(batch.lengths, device))) for batch in batches(texts, rows)
    )
    for batch, found in _one_ahead(started):
        vectors[batch.texts] = _rounded(network, found.dense[: len(batch.texts)])
        if network.is_lexical:
            words, weights = found.bag
            bags.append(_entries(words, weights, batch.texts))
    return Encoded(vectors, _matrix(bags, len(texts)) if network.is_lexical else None)


def _one_ahead(started: Iterator[_Started]) -> Iterator[_Started]:
    """Yield each item after the next one has started: a GPU works while the embeddings of a batch are copied back."""
    waiting: list[_Started] = []
    for item in started:
        yield from waiting
        waiting = [item]
    yield from waiting


def _moved(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """`values` on the device; copied to a GPU from pinned memory, without waiting for the copy."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _rounded(network: Encoder, dense: torch.Tensor) -> np.ndarray:
    dense = dense.float()
    if network.kind == "cosine":
        dense = _of_length_one(dense)
    return dense.clamp(-_LARGEST, _LARGEST).half().cpu().numpy()


def _of_length_one(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1, eps=1e-12)


def _entries(words: torch.Tensor, weights: torch.Tensor, texts: np.ndarray) -> _Entries:
    """The entries of the bags (B, W) of a batch, of which the first rows are `texts`."""
    rounded = _of_length_one(weights[: len(texts)].float()).half().cpu().numpy()
    rows, indices = np.nonzero(rounded)
    return texts[rows], words.cpu().numpy()[rows, indices], rounded[rows, indices].astype(np.float32)


def _matrix(bags: list[_Entries], texts: int) -> sparse.csr_array:
    rows, words, weights = (np.concatenate(parts) for parts in zip(*bags, strict=True)) if bags else [np.zeros(0)] * 3
    order = np.lexsort((words, rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=texts))])
    columns = int(words.max(initial=0)) + 1
    return sparse.csr_array(
        (weights[order].astype(np.float32), words[order].astype(np.int64), offsets), shape=(texts, columns)
    )
