"""Where torch computes. Nobody looks for a GPU that was not given to them; one that was given is tried first."""

import functools
import socket
import warnings
from typing import TYPE_CHECKING

from dupq.errors import DupqError

if TYPE_CHECKING:
    import torch

CPU, GPU = "cpu", "cuda:0"  # a task has one GPU, which is the first that it sees


@functools.cache
def trouble_with(gpu: str) -> str | None:
    """Why torch cannot compute on `gpu`, in one line; None if it can: the driver, the chip and torch fit together."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of an unknown chip, and then fails
            ones = torch.ones(16, 16, dtype=torch.bfloat16, device=gpu)
            total = float((ones @ ones).float().sum())
    except (RuntimeError, AssertionError) as error:  # the second where torch is built for CPUs
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return None if total == 16.0**3 else f"a product that is {16**3} comes out as {total:g}"


def usable(name: str) -> "torch.device":
    """The device of that name. Raises DupqError for a GPU that torch cannot use."""
    import torch

    trouble = None if name == CPU else trouble_with(name)
    if trouble is not None:
        raise DupqError(
            f"torch cannot use the GPU of the node {socket.gethostname()}: {trouble}; mend its driver or torch, or run "
            "with --gpus none"
        )
    return torch.device(name)
