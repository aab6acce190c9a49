"""Training a weighted sum of word vectors on a CPU: bags without padding, and a gradient of the words that are there.

torch's own gradient has a row for each word of each text, and adds those of groups of texts by copying: at 512 pairs of
titles and bodies that is most of a step (`benchmarks/results/scale.md`). Here it has a row for each distinct word. T
entries of all bags, B texts, U distinct words, d dimensions.
"""

import numpy as np
import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from dupq.kernel_cache import numba
from dupq.text.token_ids import TokenIds


def weighted_sums(table: torch.Tensor, words: TokenIds, weights: torch.Tensor) -> torch.Tensor:
    """The sum (B, d) of the rows of `table` that are the words of each text, times `weights` (T,); differentiable.

    The gradient of the table is sparse and coalesced.
    """
    ids, offsets = torch.from_numpy(words.ids), torch.from_numpy(words.offsets)
    found: torch.Tensor = _WeightedSums.apply(table, weights, ids, offsets)  # type: ignore[no-untyped-call]
    return found


def rows_of(table: torch.Tensor, words: TokenIds) -> torch.Tensor:
    """The rows (T, d) of `table` that are the words of all texts; differentiable, with a gradient as above."""
    each = TokenIds(words.ids, np.arange(len(words.ids) + 1))
    return weighted_sums(table, each, table.new_ones(len(words.ids)))


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
