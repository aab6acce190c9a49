"""Texts on a GPU, made into batches there, whose sizes the host knows by itself: it need not wait for the GPU."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch

from dupq.text.questions import FIRST_WORD, PADDING
from dupq.text.token_arrays import TokenIds

_MOST_IDS = 1 << 18  # of a padded batch: 2,048 texts of 128 words take 630 MB at 600 float32 per word
_SHORT = 16  # at most 16,384 texts: windows and a teacher's marks make short ones longer
_NO_WORD = torch.iinfo(torch.int64).max  # behind all words


def is_gpu(device: torch.device) -> bool:
    """Return whether to compute as a GPU does: by few, large operations, and not by loops of the host."""
    return device.type != "cpu"


def moved(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return `values` on the device. The copy to a GPU is from pinned memory and not waited for."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Batch(NamedTuple):
    """Token ids (int64, shape (rows, length)), their lengths, and the indices of the texts in the first rows."""

    ids: torch.Tensor
    lengths: torch.Tensor
    texts: np.ndarray  # on the host


class DeviceTexts(NamedTuple):
    """n texts: text i has `lengths[i]` of the `ids`, from `begins[i]` on."""

    ids: torch.Tensor  # int32, on the device; the last one is padding
    begins: np.ndarray  # int64, (n,)
    lengths: np.ndarray  # int64, (n,)

    @classmethod
    def of(cls, texts: TokenIds, device: torch.device) -> Self:
        """Copy texts to the device. Its memory: 4 bytes per id, which is 440 MB for a million texts of 110 words."""
        ids = torch.from_numpy(np.append(texts.ids, np.int32(PADDING))).to(device)  # pinned memory would be kept
        return cls(ids, texts.offsets[:-1], texts.lengths)

    def take(self, rows: np.ndarray) -> "DeviceTexts":
        """Return the texts `rows` (int64, repeats allowed). No id is copied."""
        return DeviceTexts(self.ids, self.begins[rows], self.lengths[rows])

    def flat(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the T ids of all texts, the text of each (int64, (T,)), and where each text begins (int64, (n,))."""
        starts, device = np.cumsum(self.lengths) - self.lengths, self.ids.device
        moves, begins, lengths = moved(np.stack([self.begins - starts, starts, self.lengths]), device)
        size = int(self.lengths.sum())
        texts = torch.repeat_interleave(lengths, output_size=size)
        return self.ids[torch.arange(size, device=device) + moves[texts]], texts, begins

    def batches(self) -> Iterator[Batch]:
        """Yield padded batches of texts.

        A GPU takes as long for 20 small batches as for 20 large ones. So there are at most four, of lengths over a
        half, a quarter and an eighth of the longest, and of the rest; more only of texts with many ids.
        """
        rows, device, start = np.argsort(-self.lengths, kind="stable"), self.ids.device, 0
        lengths = self.lengths[rows]
        while start < len(rows):
            length = int(lengths[start])
            shorter = length // 2 if length > lengths[0] // 8 else -1
            stop = min(int(np.searchsorted(-lengths, -shorter)), start + max(1, _MOST_IDS // max(_SHORT, length)))
            own = rows[start:stop]
            begins, sizes = moved(np.stack([self.begins[own], self.lengths[own]]), device)
            columns = torch.arange(max(1, length), device=device)
            indices = (begins[:, None] + columns).masked_fill(columns >= sizes[:, None], len(self.ids) - 1)
            yield Batch(self.ids[indices].long(), sizes, own)
            start = stop


class ByWord(NamedTuple):
    """The entries of bags that count, ordered by word: `distinct[i]` has those from `firsts[i]` on."""

    texts: torch.Tensor  # int64: the text of each
    entries: torch.Tensor  # int64
    distinct: torch.Tensor  # int64, (U,), ascending
    firsts: torch.Tensor  # int64, (U,)


class Bags(NamedTuple):
    """The words of n texts. A word's gradient is the sum of a bag, too, by which a GPU computes it."""

    words: torch.Tensor  # (T,), ascending in each text
    begins: torch.Tensor  # (n,), in the type of `words`: where each bag begins
    by_word: ByWord | tuple[()] = ()  # on a GPU


def bags_on_device(texts: DeviceTexts, dropout: float) -> tuple[Bags, torch.Tensor]:
    """Return the bags of the known words of texts, and each entry's count in its text (int64, (T,)), or 0.

    There is an entry for each id, so that the host knows their number. An entry has 0, and does not count, if the word
    is unknown, was in the text before, or is left out, which happens with probability `dropout`. The host waits for the
    device once, for the numbers of entries that count and of words.
    """
    ids, rows, begins = texts.flat()
    keys = (rows << 32 | ids).sort().values
    words = keys & 0xFFFFFFFF
    counts = counts_of(keys) * (words >= FIRST_WORD)
    if dropout:
        counts = counts * (torch.rand(len(words), device=words.device) >= dropout)
    by_word, entries = words.masked_fill(counts == 0, _NO_WORD).sort(stable=True)
    is_first = (by_word.diff(prepend=by_word.new_full((1,), -1)) != 0) & (by_word != _NO_WORD)
    known, distinct = torch.stack([(counts > 0).sum(), is_first.sum()]).tolist()  # waits
    firsts = is_first.byte().argsort(descending=True, stable=True)[:distinct]
    entries = entries[:known]
    return Bags(words, begins, ByWord(rows[entries], entries, by_word[firsts], firsts)), counts


def counts_of(words: torch.Tensor) -> torch.Tensor:
    """Return how often each word of ascending rows (…, L) is in its row (int64), at its first position; 0 at others."""
    first = torch.searchsorted(words, words)
    counts = torch.searchsorted(words, words, right=True) - first
    return counts * (first == torch.arange(words.shape[-1], device=words.device))
