"""Questions on a device."""

from typing import NamedTuple

import torch

from dupq.neighbours.exact import Side


class DeviceSide(NamedTuple):
    """The arrays of an exact.Side as tensors of a device."""

    vectors: torch.Tensor
    squares: torch.Tensor
    starts: torch.Tensor
    words: torch.Tensor
    weights: torch.Tensor
    bag_squares: torch.Tensor


def on_device(side: Side, device: torch.device) -> DeviceSide:
    """A side on a device. Memory there: 4 bytes a dimension and 8 a word."""
    return DeviceSide(*(torch.from_numpy(column).to(device) for column in side))


def row_of_each_word(starts: torch.Tensor) -> torch.Tensor:
    """The bag (int64) that each word of consecutive bags is in; `starts` has one entry more than there are bags."""
    return torch.repeat_interleave(starts.diff())
