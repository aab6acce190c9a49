"""Training a weighted sum of word vectors: bags without padding, and a gradient of the words that are there.

torch's own gradient has a row for each word of each text, and adds those of groups of texts by copying: at 512 pairs of
titles and bodies that is most of a step (`benchmarks/results/scale.md`). Here it has a row for each distinct word: on a
CPU by compiled loops, on a GPU by `embedding_bag`, which adds in the same order every time. T entries of all bags, B
texts, U distinct words, d dimensions.
"""

import numpy as np
import torch
from scipy import sparse
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from dupq.kernel_cache import numba
from dupq.text.token_ids import TokenIds


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
