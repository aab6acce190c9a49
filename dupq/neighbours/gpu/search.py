"""The whole search: which questions meet when, and the lists of all of them.

Every pair is multiplied once, for both of its questions. First each question is compared with a sample, for a bound
that its neighbours must reach. Then panels of questions lie in a circle: each meets itself, those beside it, those two
apart, three, four, five to six, seven to nine, and so on, so that a question has seen about half as many again after
each round, and finds about k / 2 times what its quick scores let through. After a round the candidates are scored
exactly, and bounds rise. Nothing of this returns to the host.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch

from dupq.neighbours.candidates import Nearest, empty_nearest, merge
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import Rule, rule_of
from dupq.neighbours.gpu import kernels, plain
from dupq.neighbours.gpu.device_questions import (
    Lists,
    Questions,
    Quick,
    below,
    columns_of_words,
    empty_lists,
    quick_of,
    slack_of,
    together,
    upload,
)
from dupq.neighbours.gpu.plain import Span

_SMALLEST_PANEL, _LARGEST_PANEL, _PANELS = 1 << 12, 1 << 17, 16
_SAMPLE = 1_024  # questions for each of k: at least four groups, of which one score counts
_SEEDS = 4  # candidates of the sample for each of k: the best by their quick scores are not so by the exact ones
_SCORED_AT_ONCE = 1 << 25  # places in buffers
_FOUND_AGAIN = 1 << 27  # the same of questions whose buffers were too small
Watch = Callable[[str, Lists], None]  # told after each step, for benchmarks


def nearest_of_all(
    pieces: Iterable[Embeddings], measure: Measure, k: int, device: torch.device, watch: Watch = lambda *_: None
) -> Iterator[tuple[np.ndarray, Nearest]]:
    """The k best of each question of all pieces among all others: by piece the keys, and their lists.

    Questions with a zero vector and no words are left out. Memory of the device: 4 bytes a dimension of a question (6
    for Manhattan distances), with words 768 more and 6 a word, and 150 and 500 to 2,000 for its list and buffer.
    """
    rule = rule_of(measure)
    of_pieces, there = zip(*(upload(piece, rule, device) for piece in pieces), strict=True)
    keys, questions = np.concatenate(of_pieces), together(list(there))
    del there
    if len(keys):
        quick = quick_of(questions, rule, _columns_of(questions, rule))
        search = _Search((questions, questions), (quick, quick), rule, k, (keys, keys))
        watch("prepared", search.lists)
        search.find_all(watch)
        lists = search.lists
    else:
        lists = empty_lists(0, k, device)
    start = 0
    for mine in of_pieces:
        yield mine, _on_host(lists.part(slice(start, start + len(mine))), keys)
        start += len(mine)


def nearest_targets(
    queries: Embeddings, targets: Iterable[Embeddings], measure: Measure, k: int, device: torch.device
) -> tuple[np.ndarray, Nearest]:
    """The k best of each query among all targets: the queries' keys, ascending, and their lists.

    A query is not its own neighbour, and empty ones are neither query nor neighbour, as in `nearest_of_all`.
    """
    rule = rule_of(measure)
    order = np.argsort(queries.keys)
    keys, mine = upload(queries.take(order), rule, device)
    nearest = empty_nearest(len(keys), k)
    if not len(keys):
        return keys, nearest
    column = _columns_of(mine, rule)
    quick = quick_of(mine, rule, column)
    for target in targets:
        their_keys, theirs = upload(target, rule, device)
        if len(their_keys):
            other = quick_of(theirs, rule, column)
            search = _Search((mine, theirs), (quick, other), rule, k, (keys, their_keys))
            search.find_targets(nearest.scores[:, -1])
            merge(nearest, _on_host(search.lists, their_keys))
    return keys, nearest


def _columns_of(questions: Questions, rule: Rule) -> torch.Tensor | None:
    return columns_of_words(questions) if rule.lexical and len(questions.words) else None


def _on_host(lists: Lists, keys: np.ndarray) -> Nearest:
    """The lists, with the keys of the others."""
    there = torch.from_numpy(np.append(keys, -1)).to(lists.others.device)  # the last for what is no neighbour: -1
    others, scores = there[lists.others.long()].cpu().numpy(), lists.scores.cpu().numpy()
    return Nearest(others, scores, np.zeros(len(others), np.int64))


class _Search:
    """The lists of the left side's questions, and what changes them."""

    def __init__(
        self,
        sides: tuple[Questions, Questions],
        quick: tuple[Quick, Quick],
        rule: Rule,
        k: int,
        keys: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """`keys` are those of both sides, the left one's also of what is not its neighbour on the right."""
        self._sides, self._quick, self._rule, self._k = sides, quick, rule, k
        device = sides[0].squares.device
        self._by = kernels if kernels.is_available(device) else plain
        self._slack = slack_of(*quick, rule)
        self.lists = empty_lists(quick[0].size, k, device)
        order = np.argsort(keys[1], kind="stable")
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order))
        places = order[np.searchsorted(keys[1], keys[0], sorter=order).clip(max=len(order) - 1)]
        selves = np.where(keys[1][places] == keys[0], places, -1).astype(np.int32)
        self._ranks, self._selves = torch.from_numpy(ranks).to(device), torch.from_numpy(selves).to(device)
        self._numbers = torch.arange(quick[0].size, device=device)
        self._panel = min(_LARGEST_PANEL, max(_SMALLEST_PANEL, -(-quick[1].size // _PANELS)))
        self._panel += -self._panel % 256  # whole tiles

    def find_all(self, watch: Watch) -> None:
        """Compare all questions with each other: both sides are the same."""
        count, panel = self._quick[0].size, self._panel
        self._begin()
        watch("begun", self.lists)
        panels = -(-count // panel)

        def around(first: int, stop: int) -> list[Span]:
            """The rows of some panels of the circle."""
            start = first % panels
            spans = (start, min(start + stop - first, panels)), (0, start + stop - first - panels)
            return [(one * panel, min(other * panel, count)) for one, other in spans if one < other]

        for first, last in _rounds(panels):
            is_half = 2 * last == panels  # opposite panels meet once: that of the first half meets the other
            for number in range(panels):
                (rows,) = around(number, number + 1)
                for columns in around(number + first, number + last + (0 if is_half and number >= last else 1)):
                    self._by.find(*self._quick, rows, columns, self.lists, self.lists)
            watch("found", self.lists)

            def met(number: int, first: int = first, last: int = last, is_half: bool = is_half) -> list[Span]:
                before = around(number - last + is_half, number - first + 1) if first else []
                return [*around(number + first, number + last + 1), *before]

            self._settle_all(met)
            watch("settled", self.lists)

    def find_targets(self, known: np.ndarray) -> None:
        """Compare the left side with the right one, for what reaches the `known` k-th best scores (float64)."""
        self.lists.bounds[:] = below(torch.from_numpy(known).to(self._ranks.device), self._slack, self._rule)
        self._begin()
        rows, start = (0, self._quick[0].size), 0
        while start < self._quick[1].size:
            columns = start, min(max(self._panel, 2 * start), self._quick[1].size)
            self._by.find(*self._quick, rows, columns, self.lists, None)

            def met(_: int, columns: Span = columns) -> list[Span]:
                return [columns]

            self._settle_all(met)
            start = columns[1]

    def _begin(self) -> None:
        """Raise the bounds by the scores of a sample; its pairs are found again."""
        left, right = self._quick
        size = min(right.size, max(self._panel, _SAMPLE * self._k))
        sample = torch.arange(size, device=self._ranks.device) * right.size // size
        some = right.take(sample)
        for start in range(0, left.size, _LARGEST_PANEL):
            rows = start, min(start + _LARGEST_PANEL, left.size)
            values, places = self._by.highest(left, some, rows)
            top = values.topk(min(_SEEDS * self._k, values.shape[1], self.lists.room), dim=1).indices
            mine = self.lists.part(slice(*rows))
            mine.buffer[:, : top.shape[1]] = sample[places.gather(1, top)].int()
            mine.counts[:] = top.shape[1]
            self._settle(mine, self._numbers[slice(*rows)], keeps=False)

    def _settle_all(self, met: Callable[[int], list[Span]]) -> None:
        """Empty all buffers into the lists; `met` tells which rows a panel's questions have just met."""
        at_once = max(1, _SCORED_AT_ONCE // self.lists.room)
        for start in range(0, len(self._numbers), at_once):
            some = slice(start, start + at_once)
            self._settle(self.lists.part(some), self._numbers[some])
        lost = self.lists.counts.nonzero()[:, 0]
        if len(lost):
            self._find_again(lost, met)

    def _settle(self, lists: Lists, rows: torch.Tensor, keeps: bool = True) -> None:
        """Score what some questions' buffers have, and empty those that were large enough."""
        scores = self._by.scored(self._rule, *self._sides, rows, lists, self._selves)
        kth = self._by.settle(lists, scores, self._ranks, keeps)
        torch.maximum(lists.bounds, below(kth, self._slack, self._rule), out=lists.bounds)
        lists.counts.masked_fill_(lists.counts <= lists.room, 0)

    def _find_again(self, rows: torch.Tensor, met: Callable[[int], list[Span]]) -> None:
        """Compare some questions again with what they have just met, with buffers for all that they found then.

        Those with about as many together, as each has as much room; among these, panel by panel.
        """
        room = self.lists.room
        sizes = 2 * room * 2 ** (self.lists.counts[rows] // room).double().log2().long()
        rows = rows[(sizes * (1 + len(self._numbers)) + rows).argsort()]
        start = 0
        for size, count in zip(*(each.tolist() for each in sizes.unique(return_counts=True)), strict=True):
            for some in rows[start : start + count].split(max(1, _FOUND_AGAIN // size)):
                self._find_some_again(some, size, met)
            start += count

    def _find_some_again(self, rows: torch.Tensor, size: int, met: Callable[[int], list[Span]]) -> None:
        buffer = self.lists.buffer.new_empty((len(rows), size))
        scores, others, bounds, counts = (column[rows] for column in self.lists[:4])
        lists = Lists(scores, others, bounds, torch.zeros_like(counts), buffer)
        some, start = self._quick[0].take(rows), 0
        panels = (rows // self._panel).unique(return_counts=True)
        for panel, count in zip(*(each.tolist() for each in panels), strict=True):
            stop = start + count
            for span in met(panel):
                self._by.find(some, self._quick[1], (start, stop), span, lists, None)
            start = stop
        room = self.lists.room
        for first in range(0, int(lists.counts.max()), room):
            counts, buffer = (lists.counts - first).clamp(0, room), lists.buffer[:, first : first + room].contiguous()
            self._settle(lists._replace(counts=counts, buffer=buffer), rows)
        lists.counts.zero_()
        for column, values in zip(self.lists[:4], lists[:4], strict=True):
            column[rows] = values


def _rounds(panels: int) -> Iterator[tuple[int, int]]:
    """How far apart in the circle panels are that meet, from and to, by round."""
    first, last = 0, 0
    while first <= panels // 2:
        yield first, last
        first, last = last + 1, min(last + max(1, (2 * last + 1) // 4), panels // 2)
