"""Questions on a device: rows for quick scores, arrays for exact scores, and the lists of each question so far.

A quick score is never below the exact one, but for a known margin. It is a product of two rows: each is the unit vector
and columns for the words of the bag. Words share columns, and a column holds the length of the bag's words in it. By
Cauchy and Schwarz the product of two such lengths is at least the product of the two bags over the words of the column,
and equals it if the column has one word in common. So the product of two rows is at least dense * cosine + lexical *
cosine of bags, for weights that are not negative. The margin covers rounding (products.py); tensor cores may truncate
sums, hence 2**-22 instead of 2**-24 for each step.

Measured on 6,108 questions of cs.stackexchange.com with bags of 70 stems, weights 1 and .8: candidates for the ten best
with 128, 256, 384, 512 columns: 170, 45, 25, 19.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.products import Matrix, margin, with_slack

_SMALLEST, _LARGEST = 128, 1_024  # of a question's list and buffer together, powers of two that one program sorts
_BUFFER_SHARE = 0.3  # of the device's free memory
STEP = 64  # dimensions that a kernel takes at a time; rows are padded with zeros, which change no product
_COLUMNS = 384
_ROWS_AT_ONCE = 1 << 16
_TENSOR_CORE_ERROR = 2.0**-22
Quick = Matrix  # whose products are the quick scores: rows are a float16 tensor


class Lists(NamedTuple):
    """For each of n questions its k best, the best first, and a buffer of candidates.

    A pair with a quick score below `bounds` is not among the k best. `counts` are the candidates that were found since
    the buffer was emptied. Those that the buffer had no room for are lost, and are searched for again.
    """

    scores: torch.Tensor  # float64, (n, k), -inf after the last
    others: torch.Tensor  # int32, (n, k), row numbers, -1 after the last
    bounds: torch.Tensor  # float32, (n,)
    counts: torch.Tensor  # int32, (n,)
    buffer: torch.Tensor  # int32, (n, room)

    @property
    def room(self) -> int:
        """The size of a question's buffer."""
        return self.buffer.shape[1]

    def view(self, rows: slice) -> "Lists":
        """Return a view of some questions' lists."""
        return Lists(*(column[rows] for column in self))


def smallest_list(k: int) -> int:
    """Return the least number of entries of a question's list and buffer together: a power of two."""
    return max(_SMALLEST, 1 << (4 * k - 1).bit_length())


def empty_lists(questions: int, k: int, device: torch.device) -> Lists:
    """Return lists and buffers without candidates. Memory: 12 k bytes per question, and 4 per entry of its buffer."""
    size = smallest_list(k)
    if device.type == "cuda":
        free = _BUFFER_SHARE * torch.cuda.mem_get_info(device)[0]
        while size < _LARGEST and 8 * size * questions <= free:
            size *= 2
    return Lists(
        torch.full((questions, k), -torch.inf, dtype=torch.float64, device=device),
        torch.full((questions, k), -1, dtype=torch.int32, device=device),
        torch.full((questions,), -torch.inf, device=device),
        torch.zeros(questions, dtype=torch.int32, device=device),
        torch.empty((questions, size - k), dtype=torch.int32, device=device),
    )


class Questions(NamedTuple):
    """The arrays of an exact.Side as tensors on a device, in 16 bits as the encoder stored them."""

    vectors: torch.Tensor  # float16, (n, d)
    squares: torch.Tensor  # float64
    starts: torch.Tensor  # int64, (n + 1,)
    words: torch.Tensor  # int32
    weights: torch.Tensor  # float16
    bag_squares: torch.Tensor  # float64


def upload(embeddings: Embeddings, measure: Measure, device: torch.device) -> tuple[np.ndarray, Questions]:
    """Put the questions that have a vector or a word on a device, and return their keys and their tensors.

    Vectors are finite; bags are left out if the measure ignores them. Memory of the device: 2 bytes per dimension, 6
    per word, 24 per question.
    """
    vectors, bags = _to_device(embeddings.vectors, device), embeddings.words
    rows, nothing = len(vectors), vectors.new_zeros(0)
    squares = torch.cat([nothing.double(), *(some.double().square().sum(1) for some in vectors.split(_ROWS_AT_ONCE))])
    is_filled = squares > 0
    starts, words, weights = torch.zeros(rows + 1, dtype=torch.int64, device=device), nothing.int(), nothing
    if bags is not None:
        bags = bags if bags.has_sorted_indices else bags.sorted_indices()
        ends = _to_device(bags.indptr, device).long()
        is_filled |= ends.diff() > 0
        if measure.lexical:
            starts, words = ends, _to_device(bags.indices, device).int()
            weights = _to_device(bags.data, device).half()
    if not is_filled.all():  # the others have no words
        chosen = is_filled.nonzero()[:, 0]
        vectors, squares, starts = vectors[chosen], squares[chosen], torch.cat([starts[chosen], starts[-1:]])
    bag_squares = torch.zeros_like(squares)
    if len(words):
        bag_squares.index_add_(0, _row_of_each_word(starts), weights.double().square())
    keys = embeddings.keys[is_filled.cpu().numpy()]
    return keys, Questions(vectors, squares, starts, words, weights, bag_squares)


def concatenate(blocks: list[Questions]) -> Questions:
    """Return the questions of all blocks. Empties the blocks, so that no column is in memory twice for long."""
    ends = np.cumsum([0, *(len(block.words) for block in blocks)]).tolist()
    starts = [block.starts[:-1] + end for block, end in zip(blocks, ends, strict=False)]
    last = blocks[0].starts.new_tensor(ends[-1:])
    columns: dict[str, torch.Tensor] = {"starts": torch.cat([*starts, last])}
    for name in set(Questions._fields) - set(columns):
        columns[name] = torch.cat([getattr(block, name) for block in blocks])
        blocks[:] = [block._replace(**{name: block.squares[:0]}) for block in blocks]
    return Questions(**columns)


def columns_of_words(questions: Questions) -> torch.Tensor | None:
    """Return the column (int64) of each word, by its id; None if there are no words.

    Words are dealt out, the heaviest first, forth and back, so that no column gets the heavier word in every round.
    Words that no bag has have no column.
    """
    if not len(questions.words):
        return None
    columns = _width(questions) - questions.vectors.shape[1]
    count = 1 + int(questions.words.max())
    load = torch.zeros(count, dtype=torch.float64, device=questions.words.device)
    for rows, words in _ranges(questions):
        lengths = questions.bag_squares[rows].clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        of_words = _row_of_each_word(questions.starts[rows.start : rows.stop + 1])
        load.index_add_(0, questions.words[words], questions.weights[words].abs().double() / lengths[of_words])
    order = load.argsort(descending=True, stable=True)
    dealt = torch.arange(count, device=load.device) % (2 * columns)
    column = torch.empty_like(order)
    column[order] = torch.minimum(dealt, 2 * columns - 1 - dealt)
    return column.masked_fill_(load == 0, columns)


def quick_of(questions: Questions, measure: Measure, column: torch.Tensor | None = None) -> Quick:
    """Return the rows for quick scores of at least one question; `column` has each word's column, if words count."""
    count, dimensions = questions.vectors.shape
    width = dimensions + -dimensions % STEP if column is None else _width(questions)
    rows = torch.zeros((count, width), dtype=torch.float16, device=questions.vectors.device)
    error, length = (torch.zeros((), device=rows.device) for _ in range(2))
    for batch, words in _ranges(questions):
        squares = questions.squares[batch]
        scales = (measure.dense**0.5 / squares.where(squares > 0, 1.0).sqrt()).float()
        near = torch.zeros((batch.stop - batch.start, width), device=rows.device)
        near[:, :dimensions] = questions.vectors[batch].float() * scales[:, None]
        if column is not None:
            near[:, dimensions:] = (
                _word_columns(questions, batch, words, column, width - dimensions) * measure.lexical**0.5
            )
        rows[batch] = near
        error = torch.maximum(error, (rows[batch].float() - near).norm(dim=1).max())
        length = torch.maximum(length, near.norm(dim=1).max())
    return Quick(rows, *with_slack(float(error), float(length)))


def slack_of(left: Quick, right: Quick) -> float:
    """Return the margin: how far a quick score may be below the exact one."""
    rounded = _TENSOR_CORE_ERROR * left.length * right.length
    return margin(left, right, _TENSOR_CORE_ERROR, _TENSOR_CORE_ERROR) + rounded


def _to_device(column: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.require(column, requirements=["C", "W"])).to(device)


def _row_of_each_word(starts: torch.Tensor) -> torch.Tensor:
    """Return the bag (int64) of each word of consecutive bags; `starts` has one entry more than there are bags."""
    return torch.repeat_interleave(starts.diff())


def _ranges(questions: Questions) -> list[tuple[slice, slice]]:
    """Return ranges of at most _ROWS_AT_ONCE rows, and of their words."""
    count = len(questions.squares)
    ends = [*range(0, count, _ROWS_AT_ONCE), count]
    rows, words = pairwise(ends), pairwise(questions.starts[ends].tolist())
    return [(slice(*of_rows), slice(*of_words)) for of_rows, of_words in zip(rows, words, strict=True)]


def _width(questions: Questions) -> int:
    """Return the width of rows with words: 384 columns for words, and more to fill the last step."""
    width = questions.vectors.shape[1] + _COLUMNS
    return width + -width % STEP


def _word_columns(questions: Questions, rows: slice, words: slice, column: torch.Tensor, columns: int) -> torch.Tensor:
    """Return the columns (float32) of the bags of some rows, scaled to unit length."""
    ids = questions.words[words].long()
    of_words = column[ids.clamp_max(len(column) - 1)].masked_fill_(ids >= len(column), columns)
    indices = _row_of_each_word(questions.starts[rows.start : rows.stop + 1]) * (columns + 1) + of_words
    squares = torch.zeros((rows.stop - rows.start) * (columns + 1), dtype=torch.float64, device=column.device)
    squares.index_add_(0, indices, questions.weights[words].double().square())
    of_bags = questions.bag_squares[rows, None]
    return (squares.view(-1, columns + 1)[:, :columns] / of_bags.where(of_bags > 0, 1.0)).sqrt().float()
