"""Triton kernels: exact scores of candidates, and the best of them.

They are compiled without fused multiplication and addition, so that scores are exact.py's to the last bit.
"""

import os
from pathlib import Path

import torch

from dupq.local_files import can_write, own_folder
from dupq.neighbours.exact import Rule
from dupq.neighbours.gpu.device_questions import Lists, Questions

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for the CPU brings none
    triton = tl = None
if triton is not None and not can_write(Path(os.path.expanduser("~/.triton"))):  # Triton's usual cache of kernels
    _own = own_folder()
    if _own is not None:
        os.environ.setdefault("TRITON_CACHE_DIR", str(_own / "triton"))

__all__ = ["score", "settle", "tl", "triton"]
_CANDIDATES, _DIMENSIONS, _WORDS = 4, 64, 64  # that a program takes at a time


def score(
    rule: Rule, left: Questions, right: Questions, rows: torch.Tensor, lists: Lists, selves: torch.Tensor
) -> torch.Tensor:
    """Return what plain.score does, with any score for entries of buffers that are no candidates."""
    scores = torch.empty(lists.buffer.shape, dtype=torch.float64, device=rows.device)
    weights = torch.tensor([rule.dense, rule.lexical], dtype=torch.float64, device=rows.device)
    has_words = bool(len(left.words) and len(right.words))
    with torch.cuda.device_of(rows):
        _score[(len(rows),)](
            *left, *right, weights, rows, selves, lists.counts, lists.buffer, scores, lists.room, left.vectors.shape[1],
            has_words, _CANDIDATES, _DIMENSIONS, _WORDS, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return scores


def settle(lists: Lists, scores: torch.Tensor, ranks: torch.Tensor, keeps: bool) -> torch.Tensor:
    """Merge the buffers into the lists as plain.settle does."""
    count, k = lists.scores.shape
    kth = torch.full((count,), -torch.inf, dtype=torch.float64, device=scores.device)
    size = triton.next_power_of_2(k + lists.room)
    with torch.cuda.device_of(scores):
        _settle[(count,)](
            lists.scores, lists.others, lists.counts, lists.buffer, scores, ranks, kth, lists.room, k, keeps, size,
            num_warps=max(1, size // 256),
        )  # fmt: skip
    return kth


if triton is not None:

    @triton.jit(do_not_specialize=["room"])
    def _score(
        vectors: tl.tensor, squares: tl.tensor, starts: tl.tensor, words: tl.tensor, weights: tl.tensor,
        bag_squares: tl.tensor, their_vectors: tl.tensor, their_squares: tl.tensor, their_starts: tl.tensor,
        their_words: tl.tensor, their_weights: tl.tensor, their_bag_squares: tl.tensor,
        mix: tl.tensor, rows: tl.tensor, selves: tl.tensor, counts: tl.tensor, buffer: tl.tensor, scores: tl.tensor,
        room: tl.tensor, dimensions: tl.constexpr, has_words: tl.constexpr,
        at_once: tl.constexpr, depth: tl.constexpr, words_at_once: tl.constexpr,
    ) -> None:  # fmt: skip
        """Score the candidates of one question, `at_once` at a time."""
        program = tl.program_id(0)
        count = tl.minimum(tl.load(counts + program), room)
        if count == 0:
            return
        row = tl.load(rows + program).to(tl.int64)
        own_self = tl.load(selves + row)
        buffer += program.to(tl.int64) * room
        scores += program.to(tl.int64) * room
        first = 0
        while first < count:
            entries = first + tl.arange(0, at_once)
            is_one = entries < count
            other = tl.load(buffer + entries, is_one, 0)
            others = other.to(tl.int64)
            sums = tl.zeros((at_once, depth), tl.float64)
            for start in range(0, dimensions, depth):
                inside = start + tl.arange(0, depth)
                is_inside = (inside < dimensions)[None, :] & is_one[:, None]
                x = tl.load(vectors + row * dimensions + inside, inside < dimensions, 0.0)[None, :]
                y = tl.load(their_vectors + others[:, None] * dimensions + inside[None, :], is_inside, 0.0)
                sums += (x.to(tl.float32) * y.to(tl.float32)).to(tl.float64)  # exact, of float16 numbers
            both = tl.load(squares + row) * tl.load(their_squares + others, is_one, 0.0)
            cosine = tl.sum(sums, 1) / tl.sqrt(tl.where(both > 0.0, both, 1.0))
            value = tl.where(both > 0.0, tl.load(mix) * cosine, 0.0)
            if has_words:
                common = _common(
                    *(starts, words, weights, their_starts, their_words, their_weights),
                    *(row, others, is_one, at_once, words_at_once),
                )
                both = tl.load(bag_squares + row) * tl.load(their_bag_squares + others, is_one, 0.0)
                cosine = common / tl.sqrt(tl.where(both > 0.0, both, 1.0))
                value += tl.where(both > 0.0, tl.load(mix + 1) * cosine, 0.0)
            tl.store(scores + entries, tl.where(other == own_self, float("-inf"), value), is_one)
            first += at_once

    @triton.jit
    def _common(
        starts: tl.tensor, words: tl.tensor, weights: tl.tensor, their_starts: tl.tensor, their_words: tl.tensor,
        their_weights: tl.tensor, row: tl.tensor, others: tl.tensor, is_one: tl.tensor,
        at_once: tl.constexpr, words_at_once: tl.constexpr,
    ) -> tl.tensor:  # fmt: skip
        """Return the products of a question's bag with others, whose words are looked up in it by bisection."""
        own = tl.load(starts + row)
        own_count = (tl.load(starts + row + 1) - own).to(tl.int32)
        widest = tl.full((), 1, tl.int32)
        while widest * 2 <= own_count:
            widest *= 2
        first = tl.load(their_starts + others, is_one, 0)
        counts = (tl.load(their_starts + others + 1, is_one, 0) - first).to(tl.int32)
        sums = tl.zeros((at_once, words_at_once), tl.float64)
        start, longest = 0, tl.max(counts, 0)
        while start < longest:
            inside = start + tl.arange(0, words_at_once)
            is_word = inside[None, :] < counts[:, None]
            entries = first[:, None] + inside[None, :]
            word = tl.load(their_words + entries, is_word, -1)
            weight = tl.load(their_weights + entries, is_word, 0.0).to(tl.float32)
            before = tl.zeros((at_once, words_at_once), tl.int32)  # how many of the question's words are not greater
            step = widest
            while step > 0:
                further = before + step
                probe = tl.load(words + own + further - 1, is_word & (further <= own_count), 2147483647)
                before = tl.where(probe <= word, further, before)
                step //= 2
            is_common = is_word & (before > 0)
            last = tl.load(words + own + before - 1, is_common, -2)
            is_common &= last == word
            own_weight = tl.load(weights + own + before - 1, is_common, 0.0).to(tl.float32)
            sums += (own_weight * weight).to(tl.float64)  # exact, of float16 numbers
            start += words_at_once
        return tl.sum(sums, 1)

    @triton.jit(do_not_specialize=["room"])
    def _settle(
        scores: tl.tensor, others: tl.tensor, counts: tl.tensor, buffer: tl.tensor, new_scores: tl.tensor,
        ranks: tl.tensor, kth: tl.tensor, room: tl.tensor, k: tl.constexpr, keeps: tl.constexpr, size: tl.constexpr,
    ) -> None:  # fmt: skip
        """Merge one question's buffer into its list."""
        program = tl.program_id(0).to(tl.int64)
        count = tl.load(counts + program)
        if count == 0:
            return
        entry = tl.arange(0, size)
        is_new = (entry >= k) & (entry < k + tl.minimum(count, room))
        score = tl.load(scores + program * k + entry, entry < k, float("-inf"))
        other = tl.load(others + program * k + entry, entry < k, -1)
        new = program * room + entry - k
        score = tl.where(is_new, tl.load(new_scores + new, is_new, 0.0), score)
        other = tl.where(is_new, tl.load(buffer + new, is_new, 0), other)
        rank = tl.load(ranks + other, score > float("-inf"), 0)
        for index in range(k):
            best = tl.max(score, 0)
            first = tl.min(tl.where(score == best, rank, 2147483647), 0)
            is_it = (score == best) & (rank == first) & (score > float("-inf"))
            if keeps:
                chosen = tl.max(tl.where(is_it, other, -1), 0)
                tl.store(scores + program * k + index, best, count <= room)
                tl.store(others + program * k + index, chosen, count <= room)
            if index == k - 1:
                tl.store(kth + program, best)
            score = tl.where(is_it, float("-inf"), score)
