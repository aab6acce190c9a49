"""Encoding and training without padding: each distinct word is multiplied once.

A window's product is linear in its words: W1 z_n = sum_j W1_j r_{n+j}, where W1_j are the columns of W1 for position j
of the window. So each distinct word of many texts is multiplied once, and a window is a sum of k rows of that table.
5,000 English questions have some thirty times as many words as distinct ones. The matrix products nearly vanish, and
the rest is bound by memory (`benchmarks/encode.py` has the figures).

A text's result does not depend on the other texts: rows are summed text by text, and matrices are always multiplied in
blocks of the same shape, so that a row gets the same bits wherever it is. T words, n texts, W distinct words, d
dimensions of a word, k words per window, U units.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse
from torch import nn
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from dupq.encoders.bags import batch_slices
from dupq.encoders.on_device import Bags
from dupq.kernel_cache import numba
from dupq.text.token_arrays import TokenIds

_BLOCK = 512  # rows of a matrix that are multiplied at once
_WINDOWS_AT_ONCE = 2_048  # so that their sums stay in the cache: 2.4 MB at 300 units

# Training a weighted sum of word vectors: bags without padding, and a gradient for the words that occur.
#
# torch's own gradient has a row for each word of each text and adds them by copying, which is most of a step at 512
# pairs of titles and bodies (`benchmarks/results/scale.md`). Here the gradient has a row for each distinct word. A CPU
# adds by scipy, a GPU by `embedding_bag`, which adds in the same order every time. T entries of all bags, B
# texts, U distinct words, d dimensions.


def weighted_sums(table: torch.Tensor, bags: Bags, weights: torch.Tensor) -> torch.Tensor:
    """Return the sums (B, d) of the rows of `table` for the words of each text, times `weights` (T,).

    Differentiable; the gradient of the table is sparse and coalesced. All are on one device; entries that do not count
    must have weight 0.
    """
    sums: torch.Tensor = _WeightedSums.apply(table, weights, bags.words, bags.begins, *bags.by_word)  # type: ignore[no-untyped-call]
    return sums


def rows_of(table: torch.Tensor, bags: Bags) -> torch.Tensor:
    """Return the rows (T, d) of `table` for the words of all texts; differentiable as `weighted_sums` is.

    Rows of entries that do not count have no gradient.
    """
    by_word = bags.by_word and bags.by_word._replace(texts=bags.by_word.entries)
    each = torch.arange(len(bags.words), dtype=bags.words.dtype, device=table.device)
    return weighted_sums(table, Bags(bags.words, each, by_word), table.new_ones(len(each)))


class _WeightedSums(torch.autograd.Function):
    """Sums of bags, whose `by_word` is empty on a CPU."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        table: torch.Tensor,
        weights: torch.Tensor,
        ids: torch.Tensor,
        begins: torch.Tensor,
        *by_word: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(table, weights, ids, begins, *by_word)
        return nn.functional.embedding_bag(ids, table, begins, mode="sum", per_sample_weights=weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        table, weights, ids, begins, *by_word = list(ctx.saved_tensors)
        needs_table, needs_weights, *others = list(ctx.needs_input_grad)
        gradient = gradient.contiguous()
        if by_word:  # a word's gradient is the sum of a bag, too: of the texts that have it
            texts, entries, distinct, firsts = by_word
            values = nn.functional.embedding_bag(
                texts, gradient, firsts, mode="sum", per_sample_weights=weights[entries]
            )
            of_entries = (gradient[texts] * table[ids[entries]]).sum(dim=1)
            products = torch.zeros_like(weights).index_copy_(0, entries, of_entries)
        else:
            distinct, values, products = _gradients_on_cpu(gradient, table, weights, ids, begins)
        of_table = torch.sparse_coo_tensor(
            distinct[None], values, table.shape, is_coalesced=True, check_invariants=False
        )
        if by_word:  # autograd copies a gradient that somebody keeps, and with it the mark: no optimizer has to check
            ctx.kept = of_table  # type: ignore[attr-defined]
        return of_table if needs_table else None, products if needs_weights else None, *(None for _ in others)


def _gradients_on_cpu(
    gradient: torch.Tensor, table: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, begins: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the distinct words (U,), the gradients of their rows (U, d), and those of all weights (T,)."""
    words, offsets, sums = ids.numpy(), np.append(begins.numpy(), len(ids)), gradient.numpy()
    distinct, rows = np.unique(words, return_inverse=True)
    by_text = sparse.csr_array((weights.detach().numpy(), rows, offsets), (len(sums), len(distinct)))
    products = np.empty(len(words), sums.dtype)
    _multiply(sums, table.detach().numpy(), words, offsets, products)
    return torch.from_numpy(distinct.astype(np.int64)), torch.from_numpy(by_text.T @ sums), torch.from_numpy(products)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _multiply(
    sums: np.ndarray, table: np.ndarray, words: np.ndarray, offsets: np.ndarray, products: np.ndarray
) -> None:
    """Write the product of each text's gradient with the row of each of its words into `products`."""
    for text in range(len(offsets) - 1):
        for entry in range(offsets[text], offsets[text + 1]):
            row, total = table[words[entry]], sums.dtype.type(0)
            for dimension in range(table.shape[1]):
                total += row[dimension] * sums[text, dimension]
            products[entry] = total


class WordProducts(NamedTuple):
    """The products of W distinct words with each W1_j, and texts made of these words."""

    table: torch.Tensor  # (W + 1, k, U); the last row is zero
    rows: np.ndarray  # int64, (T,): the row of each word in the table
    offsets: np.ndarray  # int64, (n + 1,)
    first: int  # the offset of a window's first word from the word itself: 0 or negative
    outside: int  # the row for positions beyond the ends of a text


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


def sums_of_words(words: nn.Embedding, weights: torch.Tensor, texts: TokenIds) -> torch.Tensor:
    """Return the sums (n, d) of each text's word vectors, times `weights` (T,)."""
    ids, begins = torch.from_numpy(texts.ids), torch.from_numpy(texts.offsets[:-1].astype(np.int32))
    return nn.functional.embedding_bag(ids, words.weight, begins, mode="sum", per_sample_weights=weights)


@numba.njit(nogil=True, cache=True)
def frequencies(ids: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Return how often each word occurs in its own text (float32, (T,)); the vocabulary has `size` ids."""
    times, counts = np.empty(len(ids), np.float32), np.zeros(size, np.int32)
    for text in range(len(offsets) - 1):
        words = ids[offsets[text] : offsets[text + 1]]
        for word in words:
            counts[word] += 1
        for index, word in enumerate(words):
            times[offsets[text] + index] = counts[word]
        for word in words:
            counts[word] = 0
    return times
