"""Windows of words, and encoding them without padding: each distinct word is multiplied once.

A window's product is linear in its words: W1 z_n = sum_j W1_j r_{n+j}, where W1_j are the columns of W1 for position j
of the window. So each distinct word of many texts is multiplied once, and a window is a sum of k rows of that table.
5,000 English questions have some thirty times as many words as distinct ones. The matrix products nearly vanish, and
the rest is bound by memory (`benchmarks/encode.py` has the figures).

A text's result does not depend on the other texts: rows are summed text by text, and matrices are always multiplied in
blocks of the same shape, so that a row gets the same bits wherever it is. T words, n texts, W distinct words, d
dimensions of a word, k words per window, U units.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from torch import nn

from dupq.encoders import on_device
from dupq.encoders.bags import batch_slices
from dupq.text.questions import PADDING
from dupq.text.token_arrays import TokenIds

_BLOCK = 512  # rows of a matrix that are multiplied at once
_WINDOWS_AT_ONCE = 2_048  # so that their sums stay in the cache: 2.4 MB at 300 units


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise PydanticCustomError("odd", "an odd number expected")
    return value


Window = Annotated[int, Field(ge=1, le=999), AfterValidator(_odd)]


class WordProducts(NamedTuple):
    """The products of W distinct words with each W1_j, and texts made of these words."""

    table: torch.Tensor  # (W + 1, k, U); the last row is zero
    rows: np.ndarray  # int64, (T,): the row of each word in the table
    offsets: np.ndarray  # int64, (n + 1,)
    first: int  # the offset of a window's first word from the word itself: 0 or negative
    outside: int  # the row for positions beyond the ends of a text


def convolve(words: nn.Embedding, convolution: nn.Linear, window: int, ids: torch.Tensor) -> torch.Tensor:
    """Return W1 z_n + b1 (B, L, U) around each word of `ids` (B, L); differentiable.

    z_n (k * d) are the `window` = k word vectors around the word, k odd (Bogdanova et al. 2015, section 4.3, and dos
    Santos et al. 2015, section 2.3). Positions beyond the ends of a text have the vector of padding.

    On a CPU each distinct word is multiplied once and a window is a sum of k rows, as `window_sums` does. That takes a
    quarter of the time for a step with 300 texts of 128 words.
    """
    reach = (window - 1) // 2
    within = nn.functional.pad(ids, (reach, reach), value=PADDING)
    if on_device.is_gpu(ids.device):
        return convolution(words(within).unfold(1, window, 1).transpose(2, 3).flatten(2))
    distinct, word_rows = torch.unique(within, return_inverse=True)
    units = convolution.out_features
    table = (words(distinct) @ by_offset(words, convolution, window).flatten(1)).view(-1, units)
    rows = word_rows.unfold(1, window, 1) * window + torch.arange(window)
    sums = nn.functional.embedding_bag(rows.reshape(-1, window), table, mode="sum")
    return sums.view(*ids.shape, units) + convolution.bias


def window_products(words: nn.Embedding, convolution: nn.Linear, window: int, texts: TokenIds) -> WordProducts:
    """Return the products of words that W1 z_n of `texts` are sums of, z_n as of `convolve`; without the bias."""
    matrix = by_offset(words, convolution, window).transpose(0, 1)
    return word_products(words, matrix, -((window - 1) // 2), PADDING, texts)


def by_offset(words: nn.Embedding, convolution: nn.Linear, window: int) -> torch.Tensor:
    """Return W1 as (d, k, U): a matrix for each position of a word in its window."""
    return convolution.weight.view(-1, window, words.embedding_dim).permute(2, 1, 0)


def in_blocks(work: Callable[..., torch.Tensor], *rows: torch.Tensor) -> torch.Tensor:
    """Return `work` of all rows, called on blocks of the same shape: the last one is padded with zeros."""
    results = []
    for start in range(0, len(rows[0]), _BLOCK):
        block = [matrix[start : start + _BLOCK] for matrix in rows]
        size = len(block[0])
        if size < _BLOCK:
            block = [torch.cat([matrix, matrix.new_zeros(_BLOCK - size, *matrix.shape[1:])]) for matrix in block]
        results.append(work(*block)[:size])
    return torch.cat(results) if results else work(*rows)


def word_products(
    words: nn.Embedding, matrix: torch.Tensor, first: int, outside: int | None, texts: TokenIds
) -> WordProducts:
    """Multiply each distinct word of `texts` once by `matrix`, which is W1 as (k, d, U).

    Positions beyond the ends of a text have the word `outside`, or zero if it is None.
    """
    is_used = np.zeros(words.num_embeddings, np.bool_)
    is_used[texts.ids] = True
    if outside is not None:
        is_used[outside] = True
    row_of = np.cumsum(is_used) - 1
    distinct = torch.from_numpy(np.flatnonzero(is_used))
    window, dimensions, units = matrix.shape
    flat = matrix.transpose(0, 1).reshape(dimensions, window * units)
    table = matrix.new_zeros(len(distinct) + 1, window, units)
    table[:-1] = in_blocks(lambda block: words(block) @ flat, distinct).view(-1, window, units)
    row = len(distinct) if outside is None else int(row_of[outside])
    return WordProducts(table, row_of[texts.ids], texts.offsets, first, row)


def window_sums(products: WordProducts) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yield for successive texts their slice, W1 z_n (T', U) of their windows, and the row where each text begins."""
    table, offsets, lengths = products.table.flatten(0, 1), products.offsets, np.diff(products.offsets)
    window = products.table.shape[1]
    gap = window - 1  # before each text, and after the last one
    positions = np.arange(len(products.rows)) + gap * np.repeat(np.arange(1, len(lengths) + 1), lengths)
    rows = np.full(len(products.rows) + gap * len(lengths) + window, products.outside)
    rows[positions] = products.rows
    rows_of_windows = sliding_window_view(rows, window)[positions + products.first]
    windows = torch.from_numpy(rows_of_windows * window + np.arange(window))  # in a table of (W + 1) * k rows
    for texts in batch_slices(offsets, _WINDOWS_AT_ONCE):
        begins = offsets[texts.start : texts.stop + 1]
        local = nn.functional.embedding_bag(windows[begins[0] : begins[-1]], table, mode="sum")
        yield texts, local, torch.from_numpy(begins[:-1] - begins[0])


def sums_of_rows(rows: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
    """Return the sums (n, U) of the rows (T, U) of each text; `begins` (n,) are the first rows of the texts."""
    return nn.functional.embedding_bag(torch.arange(len(rows)), rows, begins, mode="sum")
