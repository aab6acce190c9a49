"""The best of each question so far, on the device, and the pairs that may be among them."""

from typing import NamedTuple

import torch

_SMALLEST, _LARGEST = 128, 1_024  # a question's list and buffer, which one program of a kernel sorts
_BUFFER_SHARE = 0.3  # of the device's free memory


class Lists(NamedTuple):
    """Of each of n questions its k best, the best first, and a buffer of candidates.

    A pair with a quick score below `bounds` is not among the k best. `counts` is how many candidates were found since
    the buffer was emptied: if there are more than it has room for, the rest of them is lost, and is searched again.
    """

    scores: torch.Tensor  # float64, (n, k), -inf after the last
    others: torch.Tensor  # int32, (n, k), row numbers, -1 after the last
    bounds: torch.Tensor  # float32, (n,)
    counts: torch.Tensor  # int32, (n,)
    buffer: torch.Tensor  # int32, (n, room)

    @property
    def room(self) -> int:
        """Of a question's buffer."""
        return self.buffer.shape[1]

    def part(self, rows: slice) -> "Lists":
        """A view of some questions' lists."""
        return Lists(*(column[rows] for column in self))


def empty_lists(questions: int, k: int, device: torch.device) -> Lists:
    """Nothing yet. Memory: 12 bytes a question for each of k, and 4 for each place in the buffer."""
    room = room_for(questions, k, device)
    return Lists(
        torch.full((questions, k), -torch.inf, dtype=torch.float64, device=device),
        torch.full((questions, k), -1, dtype=torch.int32, device=device),
        torch.full((questions,), -torch.inf, device=device),
        torch.zeros(questions, dtype=torch.int32, device=device),
        torch.empty((questions, room), dtype=torch.int32, device=device),
    )


def room_for(questions: int, k: int, device: torch.device) -> int:
    """Of a buffer: together with a list as many as a power of two."""
    size = _SMALLEST
    while size < 4 * k:
        size *= 2
    if device.type == "cuda":
        free = _BUFFER_SHARE * torch.cuda.mem_get_info(device)[0]
        while size < _LARGEST and 8 * size * questions <= free:
            size *= 2
    return size - k
