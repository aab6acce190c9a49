"""Encoding and training on a CPU without padding: texts one after the other, each distinct word multiplied once.

A window's product is linear in its words: W1 z_n = sum_j W1_j r_{n+j}, W1_j being the columns of W1 for position j of
the window. So each distinct word of many texts is multiplied once, and a window is a sum of k rows of that table. 5,000
English questions have some thirty times as many words as distinct ones; the matrix products nearly vanish, and what is
left is bound by memory (`benchmarks/encode.py` has the figures).

Nothing here depends on the other texts: rows are summed text by text, and matrices are always multiplied in blocks of
the same shape, so that a row gets the same bits wherever it is. T words, n texts, W distinct words, d
dimensions of a word, k words a window, U units.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from dupq.encoders.bags import pieces
from dupq.kernel_cache import numba
from dupq.text.token_arrays import TokenIds

# Training a weighted sum of word vectors: bags without padding, and a gradient of the words that are there.
#
# torch's own gradient has a row for each word of each text, and adds those of groups of texts by copying: at 512 pairs
# of titles and bodies that is most of a step (`benchmarks/results/scale.md`). Here it has a row for each distinct word:
# on a CPU by compiled loops, on a GPU by `embedding_bag`, which adds in the same order every time. T entries of all
# bags, B texts, U distinct words, d dimensions.


def weighted_sums(table: torch.Tensor, words: TokenIds, weights: torch.Tensor) -> torch.Tensor:
    """Return the sum (B, d) of the rows of `table` that are the words of each text, times `weights` (T,).

    Differentiable; the gradient of the table is sparse and coalesced. The sums are on the device of the table.
    """
    if table.is_cuda:
        return sums_on_gpu(table, words, weights)
    ids, offsets = torch.from_numpy(words.ids), torch.from_numpy(words.offsets)
    found: torch.Tensor = _WeightedSums.apply(table, weights, ids, offsets)  # type: ignore[no-untyped-call]
    return found


def rows_of(table: torch.Tensor, words: TokenIds) -> torch.Tensor:
    """Return the rows (T, d) of `table` that are the words of all texts; differentiable, with a gradient as above."""
    each = TokenIds(words.ids, np.arange(len(words.ids) + 1))
    return weighted_sums(table, each, table.new_ones(len(words.ids)))


def sums_on_gpu(table: torch.Tensor, words: TokenIds, weights: torch.Tensor) -> torch.Tensor:
    """Return what `weighted_sums` returns, by torch's operations alone; the host waits for none of them."""
    entries = np.arange(len(words.ids), dtype=np.int32)
    by_word = sparse.csr_array((entries, words.ids, words.offsets), (len(words), len(table))).tocsc()
    distinct = np.flatnonzero(np.diff(by_word.indptr))
    columns = (words.ids, words.offsets[:-1], by_word.indices, by_word.data, distinct, by_word.indptr[distinct])
    moved = torch.from_numpy(np.concatenate(columns, dtype=np.int64, casting="same_kind"))
    if table.is_cuda:
        moved = moved.pin_memory().to(table.device, non_blocking=True)
    found: torch.Tensor = _SumsOnGpu.apply(table, weights, *moved.split([*map(len, columns)]))  # type: ignore[no-untyped-call]
    return found


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, table: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(table, weights, ids, offsets)
        begins = offsets[:-1].to(ids.dtype)
        return torch.nn.functional.embedding_bag(ids, table, begins, mode="sum", per_sample_weights=weights)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        table, weights, *others = list(ctx.saved_tensors)
        (ids, offsets), wanted = (tensor.numpy() for tensor in others), list(ctx.needs_input_grad)
        of_table = of_weights = None
        sums = gradient.contiguous().numpy()
        if wanted[0]:
            distinct, places = np.unique(ids, return_inverse=True)
            values = np.zeros((len(distinct), table.shape[1]), sums.dtype)
            _add_weighted(sums, weights.detach().numpy(), offsets, places, values)
            rows = torch.from_numpy(distinct.astype(np.int64))[None]
            of_table = torch.sparse_coo_tensor(
                rows, torch.from_numpy(values), table.shape, is_coalesced=True, check_invariants=False
            )
        if wanted[1]:
            products = np.empty(len(ids), sums.dtype)
            _multiply(sums, table.detach().numpy(), ids, offsets, products)
            of_weights = torch.from_numpy(products)
        return of_table, of_weights, None, None


class _SumsOnGpu(torch.autograd.Function):
    """The gradient of the table is a sum of bags too: of each distinct word the texts that have it."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        table: torch.Tensor,
        weights: torch.Tensor,
        ids: torch.Tensor,
        begins: torch.Tensor,
        texts: torch.Tensor,
        entries: torch.Tensor,
        distinct: torch.Tensor,
        starts: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(table, weights, ids, texts, entries, distinct, starts)
        return torch.nn.functional.embedding_bag(ids, table, begins, mode="sum", per_sample_weights=weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        table, weights, ids, texts, entries, distinct, starts = list(ctx.saved_tensors)
        wanted = list(ctx.needs_input_grad)
        of_table = of_weights = None
        gradient = gradient.contiguous()
        if wanted[0]:
            values = torch.nn.functional.embedding_bag(
                texts, gradient, starts, mode="sum", per_sample_weights=weights[entries]
            )
            of_table = torch.sparse_coo_tensor(
                distinct[None], values, table.shape, is_coalesced=True, check_invariants=False
            )
        if wanted[1]:
            products = (gradient[texts] * table[ids[entries]]).sum(dim=1)
            of_weights = torch.empty_like(products).index_copy_(0, entries, products)
        return of_table, of_weights, None, None, None, None, None, None


@numba.njit(nogil=True, cache=True)
def _add_weighted(
    sums: np.ndarray, weights: np.ndarray, offsets: np.ndarray, places: np.ndarray, values: np.ndarray
) -> None:
    """Add the gradient (B, d) of each text to the row of each of its words, times the word's weight."""
    for text in range(len(offsets) - 1):
        for entry in range(offsets[text], offsets[text + 1]):
            row, weight = values[places[entry]], weights[entry]
            for dimension in range(values.shape[1]):
                row[dimension] += weight * sums[text, dimension]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _multiply(
    sums: np.ndarray, table: np.ndarray, words: np.ndarray, offsets: np.ndarray, products: np.ndarray
) -> None:
    """The product of the gradient of each text with the row of each of its words."""
    for text in range(len(offsets) - 1):
        for entry in range(offsets[text], offsets[text + 1]):
            row, total = table[words[entry]], sums.dtype.type(0)
            for dimension in range(table.shape[1]):
                total += row[dimension] * sums[text, dimension]
            products[entry] = total


_BLOCK = 512  # rows of a matrix that are multiplied at once
_PIECE_WORDS = 2_048  # at once, so that the sums of their windows stay in the cache: 2.4 MB at 300 units


class WordProducts(NamedTuple):
    """The products of W distinct words with each W1_j, the last row being zero, and texts made of them."""

    table: torch.Tensor  # (W + 1, k, U)
    places: np.ndarray  # int64, (T,): rows of the table
    offsets: np.ndarray  # int64, (n + 1,)
    first: int  # the offset of a window's first word from the word itself: 0 or negative
    outside: int  # the row for positions beyond the ends of a text


def in_blocks(work: Callable[..., torch.Tensor], *rows: torch.Tensor) -> torch.Tensor:
    """`work` on one block of rows after the other, the last one padded with zeros: all have the same shape."""
    parts = []
    for start in range(0, len(rows[0]), _BLOCK):
        some = [part[start : start + _BLOCK] for part in rows]
        missing = _BLOCK - len(some[0])
        whole = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part for part in some]
        parts.append(work(*whole)[: len(some[0])])
    return torch.cat(parts) if parts else work(*rows)


def word_products(
    words: nn.Embedding, matrix: torch.Tensor, first: int, outside: int | None, texts: TokenIds
) -> WordProducts:
    """Multiply each distinct word of `texts` once. `matrix` is W1 as (k, d, U).

    Beyond the ends of a text comes the word `outside`, or zero if it is None.
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
    table[:-1] = in_blocks(lambda some: words(some) @ flat, distinct).view(-1, window, units)
    row = len(distinct) if outside is None else int(row_of[outside])
    return WordProducts(table, row_of[texts.ids], texts.offsets, first, row)


def window_sums(products: WordProducts) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """For some texts after the other which they are, W1 z_n (T', U) of their windows, and where each text's begin."""
    rows, offsets = products.table.flatten(0, 1), products.offsets
    window = products.table.shape[1]
    windows = torch.from_numpy(_windows(products.places, offsets, window, products.first, products.outside))
    for texts in pieces(offsets, _PIECE_WORDS):
        begins = offsets[texts.start : texts.stop + 1]
        local = nn.functional.embedding_bag(windows[begins[0] : begins[-1]], rows, mode="sum")
        yield texts, local, torch.from_numpy(begins[:-1] - begins[0])


def sums_of_rows(rows: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
    """The sum (n, U) of the rows (T, U) of each text, of which `begins` (n,) are the first."""
    return nn.functional.embedding_bag(torch.arange(len(rows)), rows, begins, mode="sum")


def sums_of_words(
    words: nn.Embedding, weights: torch.Tensor, texts: TokenIds, factors: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """The sum (n, d) of each text's word vectors, times `weights`, one an id of the vocabulary, and `factors` (T,)."""
    ids, begins = torch.from_numpy(texts.ids), torch.from_numpy(texts.offsets[:-1].astype(np.int32))
    each = weights[ids] * factors
    return nn.functional.embedding_bag(ids, words.weight, begins, mode="sum", per_sample_weights=each)


def frequencies(texts: TokenIds, size: int) -> np.ndarray:
    """How often each word occurs in its own text (float32, (T,)), of a vocabulary of `size` ids."""
    return _frequencies(texts.ids, texts.offsets, np.zeros(size, np.int32))


@numba.njit(nogil=True, cache=True)
def _frequencies(ids: np.ndarray, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`counts` is zero before and after."""
    found = np.empty(len(ids), np.float32)
    for text in range(len(offsets) - 1):
        own = ids[offsets[text] : offsets[text + 1]]
        for word in own:
            counts[word] += 1
        for place, word in enumerate(own):
            found[offsets[text] + place] = counts[word]
        for word in own:
            counts[word] = 0
    return found


@numba.njit(nogil=True, cache=True)
def _windows(places: np.ndarray, offsets: np.ndarray, window: int, first: int, outside: int) -> np.ndarray:
    """The rows (T, k) of a table of (W + 1) * k rows that each window is the sum of."""
    windows = np.empty((len(places), window), np.int64)
    for text in range(len(offsets) - 1):
        for word in range(offsets[text], offsets[text + 1]):
            for j in range(window):
                at = word + first + j
                row = places[at] if offsets[text] <= at < offsets[text + 1] else outside
                windows[word, j] = row * window + j
    return windows
