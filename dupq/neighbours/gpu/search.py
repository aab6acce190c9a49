"""The whole search: in which order questions are compared, and the lists of all of them.

Every pair is multiplied once, for both of its questions; of several GPUs each takes a share of the pairs. First each
question is compared with a sample, for a bound that its neighbours must reach. Then questions are compared by panels,
which lie in a circle: each with itself, with the panels next to it, then with those two apart, three, four, five to
six, seven to nine, and so on. So after each round a question has been compared with about half as many again (of a
share's pairs), and finds about k / 2 times what its quick scores let through.
After each round the candidates are scored exactly, and bounds rise. Only lists return to the host, at the end.
"""

import socket
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import torch

from dupq.errors import ClusterError
from dupq.neighbours.candidates import Nearest, empty_nearest, merge
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.gpu import kernels, plain
from dupq.neighbours.gpu.device_questions import (
    Lists,
    Questions,
    Quick,
    columns_of_words,
    concatenate,
    empty_lists,
    quick_of,
    slack_of,
    smallest_list,
    upload,
)
from dupq.neighbours.gpu.plain import Span
from dupq.text.keys import indices_among

_SMALLEST_PANEL, _LARGEST_PANEL, _PANELS = 1 << 12, 1 << 17, 16
_TILE = 256  # columns of a kernel's tile; panels have whole ones
_SAMPLE = 1_024  # questions for each of k: at least four groups, each of which gives one score
_SEEDS = 4  # candidates of the sample for each of k, as the best by quick scores are not the best by exact ones
_SCORED_AT_ONCE = 1 << 25  # entries of buffers
_SEARCHED_AGAIN = 1 << 27  # entries of the buffers of questions that are searched again
_MEMORY_SHARE = 0.8  # of a device's free memory; the rest is for batches of scores
_ROUNDED = 1e-9  # relative, of a score
_CHECKED, _CHECKED_AT_ONCE = 4, 1 << 16  # questions whose lists are checked, and others at a time


def room_on(device: torch.device, dimensions: int, words: float, measure: Measure, k: int) -> tuple[int, int]:
    """Return how many questions `nearest_of_all` can search on a device, and how many per side `nearest_of_share`.

    `words` is the mean size of a bag. Memory of the device per question: 4 bytes per dimension, with words
    768 more and 6 per word, 160 for the rest, and on its own side for its list and buffer 12 k and at least 4
    `smallest_list(k)`.
    """
    if device.type != "cuda":
        return sys.maxsize, sys.maxsize
    of_words = 768 + 6 * words if measure.lexical else 0
    question = 4 * dimensions + of_words + 160
    own = 12 * k + 4 * smallest_list(k)
    free = _MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
    return int(free / (question + own)), int(free / (2 * question + own))


def nearest_of_all(
    blocks: Iterable[Embeddings], measure: Measure, k: int, device: torch.device, share: tuple[int, int] = (0, 1)
) -> Iterator[tuple[np.ndarray, Nearest]]:
    """Yield for each block its keys and the k best of its questions among all others.

    `share` is a number below that of all shares: each compares its share of the pairs, and gives what it found of every
    question's neighbours. Questions with a zero vector and no words are left out. Memory: see `room_on`.
    """
    keys, rows_of_blocks, questions = _uploaded(blocks, measure, device)
    if len(keys):
        quick = quick_of(questions, measure, columns_of_words(questions))
        search = _Search((questions, questions), (quick, quick), measure, k, (keys, keys))
        search.find_all(*share)
        lists = search.lists
    else:
        lists = empty_lists(0, k, device)
    for rows in rows_of_blocks:
        yield keys[rows], _on_host(lists.view(rows), keys)


def nearest_of_share(
    own: Iterable[Embeddings], others: Iterable[Iterable[Embeddings]], measure: Measure, k: int, device: torch.device
) -> Iterator[tuple[np.ndarray, Nearest]]:
    """Yield for each block of `own` its keys and the k best of its questions among `others`.

    A question is not its own neighbour. Questions with a zero vector and no words are left out. The device holds all
    blocks of `own`, and those of one element of `others`. Memory of the device: see `room_on`; of the host: 16 k bytes
    per question of `own`.
    """
    keys, rows_of_blocks, left = _uploaded(own, measure, device)
    nearest = empty_nearest(len(keys), k)
    of_blocks = [Nearest(*(column[rows] for column in nearest)) for rows in rows_of_blocks]  # views
    if len(keys):
        column = columns_of_words(left)
        quick = quick_of(left, measure, column)
        for blocks in others:
            right_keys, _, right = _uploaded(blocks, measure, device)
            if len(right_keys):
                search = _Search(
                    (left, right), (quick, quick_of(right, measure, column)), measure, k, (keys, right_keys)
                )
                search.find_targets(nearest.scores[:, -1])
                for rows, lists in zip(rows_of_blocks, of_blocks, strict=True):
                    merge(lists, _on_host(search.lists.view(rows), right_keys))
                del search
            del right  # before the next ones come
    yield from zip((keys[rows] for rows in rows_of_blocks), of_blocks, strict=True)


def _uploaded(
    blocks: Iterable[Embeddings], measure: Measure, device: torch.device
) -> tuple[np.ndarray, list[slice], Questions]:
    """Put blocks on a device, and return the keys of all their questions, the rows of each block, and the questions."""
    keys, uploaded = map(list, zip(*(upload(block, measure, device) for block in blocks), strict=True))
    ends = np.cumsum([0, *map(len, keys)]).tolist()
    return np.concatenate(keys), [slice(*rows) for rows in pairwise(ends)], concatenate(uploaded)


def _on_host(lists: Lists, keys: np.ndarray) -> Nearest:
    """Return the lists with keys in place of row numbers."""
    key_of_row = torch.from_numpy(np.append(keys, -1)).to(lists.others.device)  # row -1, no neighbour, has key -1
    return Nearest(key_of_row[lists.others.long()].cpu().numpy(), lists.scores.cpu().numpy())


class _Search:
    """A search for the neighbours of the left side's questions on the right side; `lists` has what it found so far."""

    def __init__(
        self,
        sides: tuple[Questions, Questions],
        quick: tuple[Quick, Quick],
        measure: Measure,
        k: int,
        keys: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """Prepare the search. `keys` are both sides'; a question is not the neighbour of one with its key."""
        self._sides, self._quick, self._measure, self._k = sides, quick, measure, k
        device = sides[0].squares.device
        self._by = kernels if kernels.is_available(device) else plain
        self._slack = slack_of(*quick)
        self.lists = empty_lists(quick[0].size, k, device)
        order = np.argsort(keys[1])
        indices, is_same = indices_among(keys[1][order], keys[0])
        selves, ranks = np.where(is_same, order[indices], -1).astype(np.int32), np.argsort(order).astype(np.int32)
        self._ranks, self._selves = torch.from_numpy(ranks).to(device), torch.from_numpy(selves).to(device)
        self._numbers = torch.arange(quick[0].size, device=device)
        self._panel = min(_LARGEST_PANEL, max(_SMALLEST_PANEL, -(-quick[1].size // _PANELS)))
        self._panel += -self._panel % _TILE

    def find_all(self, share: int = 0, shares: int = 1) -> None:
        """Compare all questions with each other, if both sides are the same; or the pairs of one of some shares."""
        count, panel = self._quick[0].size, self._panel
        known = self._begin()
        panels = -(-count // panel)
        is_compared = torch.zeros((panels, panels), dtype=torch.bool)

        def around(first: int, stop: int) -> list[Span]:
            """Return the rows of the panels from `first` to `stop` - 1 of the circle."""
            start = first % panels
            spans = (start, min(start + stop - first, panels)), (0, start + stop - first - panels)
            return [(begin * panel, min(end * panel, count)) for begin, end in spans if begin < end]

        for first, last in _rounds(panels):
            is_half = 2 * last == panels  # opposite panels are compared once, from the first half of the circle
            compared: list[list[Span]] = [[] for _ in range(panels)]
            for number in range(share, panels, shares):
                (rows,) = around(number, number + 1)
                for columns in around(number + first, number + last + (0 if is_half and number >= last else 1)):
                    self._by.find(*self._quick, rows, columns, self.lists, self.lists)
                    others = slice(columns[0] // panel, -(-columns[1] // panel))
                    is_compared[number, others] = is_compared[others, number] = True
                    compared[number].append(columns)
                    for other in range(others.start, others.stop):
                        if other != number:
                            compared[other].append(rows)
            self._settle_all(compared)
        self._check(known if shares > 1 else known.fill_(-torch.inf), is_compared)

    def _check(self, known: torch.Tensor, is_compared: torch.Tensor | None = None) -> None:
        """Compare the lists of some questions with the best by the exact scores of the right side, in plain torch.

        Lists may lack neighbours whose scores do not reach `known` (float64, one per question), and those in panels
        that were not compared with the question's (bool, a row and a column per panel). Raises ClusterError if one
        lacks another: then a kernel, the driver or the GPU is wrong.
        """
        left, right, device = self._quick[0].size, self._quick[1].size, self._ranks.device
        rows = torch.arange(min(_CHECKED, left), device=device) * left // min(_CHECKED, left)
        best = empty_lists(len(rows), self._k, device)
        for start in range(0, right, _CHECKED_AT_ONCE):
            others = torch.arange(start, min(start + _CHECKED_AT_ONCE, right), dtype=torch.int32, device=device)
            counts = torch.full_like(best.counts, len(others))
            lists = best._replace(counts=counts, buffer=others.expand(len(rows), -1))
            scores = plain.score(self._measure, *self._sides, rows, lists, self._selves)
            if is_compared is not None:
                is_mine = is_compared.to(device)[(rows // self._panel)[:, None], others // self._panel]
                scores.masked_fill_(~is_mine, -torch.inf)
            plain.settle(lists, scores, self._ranks, keeps=True)
        least = known[rows].clamp_min(-1e300)[:, None]
        least += _ROUNDED * least.abs()  # as many may have just this score
        both = self.lists.scores[rows], best.scores
        found, expected = (scores.masked_fill(scores < least, -torch.inf) for scores in both)
        if not torch.allclose(found, expected, rtol=_ROUNDED):
            raise ClusterError(
                f"a GPU of the node {socket.gethostname()} found other neighbours than exact scores give; nothing of "
                "that was kept. Run with --gpus none, and report it"
            )

    def find_targets(self, known: np.ndarray) -> None:
        """Compare both sides, for neighbours that reach the `known` k-th best scores (float64)."""
        known_scores = torch.from_numpy(known).to(self._ranks.device)
        self.lists.bounds[:] = known_scores - self._slack
        self._begin()
        count, start = self._quick[0].size, 0
        while start < self._quick[1].size:
            columns = start, min(max(self._panel, 2 * start), self._quick[1].size)
            for first in range(0, count, _LARGEST_PANEL):  # as a launch has less than 2^31 tiles
                rows = first, min(first + _LARGEST_PANEL, count)
                self._by.find(*self._quick, rows, columns, self.lists, None)
            self._settle_all([[columns]] * (1 + count // self._panel))
            start = columns[1]
        self._check(known_scores)

    def _begin(self) -> torch.Tensor:
        """Raise the bounds by a sample, found again later; return each question's k-th best score in it (float64)."""
        left, right = self._quick
        size = min(right.size, max(self._panel, _SAMPLE * self._k))
        sample = torch.arange(size, device=self._ranks.device) * right.size // size
        sampled, kth = right.take(sample), []
        for start in range(0, left.size, _LARGEST_PANEL):
            rows = start, min(start + _LARGEST_PANEL, left.size)
            values, columns = self._by.highest(left, sampled, rows)
            top = values.topk(min(_SEEDS * self._k, values.shape[1], self.lists.room), dim=1).indices
            lists = self.lists.view(slice(*rows))
            lists.buffer[:, : top.shape[1]] = sample[columns.gather(1, top)].int()
            lists.counts[:] = top.shape[1]
            kth.append(self._settle(lists, self._numbers[slice(*rows)], keeps=False))
        return torch.cat(kth)

    def _settle_all(self, compared: list[list[Span]]) -> None:
        """Empty all buffers into the lists. `compared` has the rows that each panel was just compared with."""
        at_once = max(1, _SCORED_AT_ONCE // self.lists.room)
        for start in range(0, len(self._numbers), at_once):
            batch = slice(start, start + at_once)
            self._settle(self.lists.view(batch), self._numbers[batch])
        lost = self.lists.counts.nonzero()[:, 0]
        if len(lost):
            self._search_again(lost, compared)

    def _settle(self, lists: Lists, rows: torch.Tensor, keeps: bool = True) -> torch.Tensor:
        """Score the candidates in some buffers, and empty those that had room for all; return the k-th best scores."""
        scores = self._by.score(self._measure, *self._sides, rows, lists, self._selves)
        kth = self._by.settle(lists, scores, self._ranks, keeps)
        torch.maximum(lists.bounds, (kth - self._slack).float(), out=lists.bounds)
        lists.counts.masked_fill_(lists.counts <= lists.room, 0)
        return kth

    def _search_again(self, rows: torch.Tensor, compared: list[list[Span]]) -> None:
        """Repeat the last comparison of some questions, with buffers that have room for all of their candidates."""
        room = self.lists.room
        rows = rows[self.lists.counts[rows].argsort(descending=True)]
        while len(rows):
            size = (int(self.lists.counts[rows[0]]) // room + 1) * room  # for the question itself, too
            count = max(1, _SEARCHED_AGAIN // size)
            self._search_batch_again(rows[:count].sort().values, size, compared)
            rows = rows[count:]

    def _search_batch_again(self, rows: torch.Tensor, size: int, compared: list[list[Span]]) -> None:
        """Repeat the last comparison of `rows` (ascending), panel by panel, with buffers of `size`."""
        room, buffer = self.lists.room, self.lists.buffer.new_empty((len(rows), size))
        scores, others, bounds, counts = (column[rows] for column in self.lists[:4])
        lists = Lists(scores, others, bounds, counts.zero_(), buffer)
        left, start = self._quick[0].take(rows), 0
        panels = (rows // self._panel).unique(return_counts=True)
        for panel, count in zip(*(each.tolist() for each in panels), strict=True):
            for span in compared[panel]:
                self._by.find(left, self._quick[1], (start, start + count), span, lists, None)
            start += count
        for first in range(0, int(counts.max()), room):
            batch = (counts - first).clamp(0, room), buffer[:, first : first + room].contiguous()
            self._settle(Lists(scores, others, bounds, *batch), rows)
        counts.zero_()
        for column, values in zip(self.lists[:4], lists[:4], strict=True):
            column[rows] = values


def _rounds(panels: int) -> Iterator[tuple[int, int]]:
    """Yield the distances in the circle, first and last, of the panels that are compared in each round."""
    first, last = 0, 0
    while first <= panels // 2:
        yield first, last
        first, last = last + 1, min(last + max(1, (2 * last + 1) // 4), panels // 2)
