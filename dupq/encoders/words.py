"""Parts that networks share: the table of word vectors, convolutions over windows of words, and token masks."""

import numpy as np
import torch
from torch import nn

from dupq.encoders.unpadded import WordProducts, highest_windows, word_products
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import PADDING, UNKNOWN


def word_table(vectors: np.ndarray, is_updated: bool) -> nn.Embedding:
    """The table of word vectors (float32, one row an id), learned further or left as it is.

    Its gradient is sparse: a step touches the rows of its own words only.
    """
    return nn.Embedding.from_pretrained(torch.from_numpy(vectors.copy()), freeze=not is_updated, sparse=is_updated)


def inside(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Which positions of (B, L) hold tokens, not padding."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def windows(words: nn.Embedding, ids: torch.Tensor, window: int) -> torch.Tensor:
    """z_n (B, L, k * d): the `window` = k word vectors around each word of `ids` (B, L), k odd.

    Bogdanova et al. 2015, section 4.3, and dos Santos et al. 2015, section 2.3. Beyond the ends of a text
    comes the vector of padding.
    """
    reach = (window - 1) // 2
    vectors = words(nn.functional.pad(ids, (reach, reach), value=PADDING))
    return vectors.unfold(1, window, 1).transpose(2, 3).flatten(2)


def convolve(words: nn.Embedding, convolution: nn.Linear, window: int, ids: torch.Tensor) -> torch.Tensor:
    """W1 z_n + b1 (B, L, U) around each word of `ids` (B, L), with the z_n of `windows`; differentiable.

    On a CPU each distinct word is multiplied once and a window is a sum of k rows, as in unpadded.py: a step with 300
    texts of 128 words takes a quarter of the time.
    """
    if ids.is_cuda:
        return convolution(windows(words, ids, window))
    reach = (window - 1) // 2
    distinct, places = torch.unique(nn.functional.pad(ids, (reach, reach), value=PADDING), return_inverse=True)
    units = convolution.out_features
    table = (words(distinct) @ _by_place(words, convolution, window).flatten(1)).view(-1, units)
    rows = places.unfold(1, window, 1) * window + torch.arange(window)
    sums = nn.functional.embedding_bag(rows.reshape(-1, window), table, mode="sum")
    return sums.view(*ids.shape, units) + convolution.bias


def highest(
    words: nn.Embedding, convolution: nn.Linear, window: int, ids: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """max_n [W1 z_n + b1]_j (B, U) of texts (B, L), with the z_n of `windows`; differentiable, -inf for an empty text.

    On a CPU no window's product is kept, as only those at the maxima have a gradient: a step with 320 texts of 120
    words takes a seventh of the time.
    """
    if ids.is_cuda:
        local = convolve(words, convolution, window, ids)
        return local.masked_fill(~inside(ids, lengths)[:, :, None], -torch.inf).amax(dim=1)
    flat = nn.functional.pad(ids[inside(ids, lengths)], (1, 0), value=PADDING)
    distinct, places = torch.unique(flat, return_inverse=True)
    table = (words(distinct) @ _by_place(words, convolution, window).flatten(1)).view(len(distinct), window, -1)
    offsets = nn.functional.pad(lengths.cumsum(0), (1, 0))
    products = WordProducts(table, places[1:].numpy(), offsets.numpy(), -((window - 1) // 2), int(places[0]))
    return highest_windows(products) + convolution.bias


def window_products(words: nn.Embedding, convolution: nn.Linear, window: int, texts: TokenIds) -> WordProducts:
    """The products that the W1 z_n of `texts` are sums of, with the z_n of `windows`; without the bias."""
    matrix = _by_place(words, convolution, window).transpose(0, 1)
    return word_products(words, matrix, -((window - 1) // 2), PADDING, texts)


def _by_place(words: nn.Embedding, convolution: nn.Linear, window: int) -> torch.Tensor:
    """W1 as (d, k, U)."""
    return convolution.weight.view(-1, window, words.embedding_dim).permute(2, 1, 0)


def known(size: int) -> torch.Tensor:
    """Weight 1 (float32) for each word of a vocabulary of `size`, 0 for padding and the unknown word."""
    weights = torch.ones(size)
    weights[[PADDING, UNKNOWN]] = 0.0
    return weights


def full_precision(device: torch.device) -> torch.autocast:
    """A context without half-precision products: a component that most vectors share must go to its last digit."""
    return torch.autocast(device.type, enabled=False)
