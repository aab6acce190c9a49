"""Training weighted sums of word vectors without padding, and a gradient for the words that occur.

torch's own gradient has a row for each word of each text and adds them by copying, which is most of a step at 512
pairs of titles and bodies (`benchmarks/results/scale.md`). Here the gradient has a row for each distinct word. A CPU
adds by scipy, a GPU by `embedding_bag`, which adds in the same order every time. T entries of all bags, B texts, U
distinct words, d dimensions.
"""

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

from dupq.encoders.on_device import Bags
from dupq.kernel_cache import numba
from dupq.text.token_arrays import TokenIds


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
