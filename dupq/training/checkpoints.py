"""Checkpoints: the state of training after an epoch, on disk, as safetensors; nothing is ever pickled.

The file has the trained tensors of the network, also as they were after the best epoch if that was an earlier one, the
state of the optimizer, and the learning curve (JSON in UTF-8). It is replaced as a whole, so they belong together.

Not every epoch is saved, because an epoch of a small archive takes less time than writing its checkpoint. A training
that is killed repeats at most `training.checkpoint_seconds` of work. Random generators have no state to save: each
epoch seeds them by its number, so an interrupted epoch is repeated exactly.
"""

import json
import math
import time
from collections import defaultdict
from typing import Any, NotRequired

import numpy as np
import safetensors
import safetensors.numpy
import torch
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.saved import write_tensors
from dupq.errors import DupqError
from dupq.training.optimisation import Optimizer

_CURVE = "curve"
MEASURES = ("development_map", "development_body_map")  # the first one that is not None decides


class Epoch(TypedDict):
    """A row of the learning curve."""

    epoch: int
    loss: float
    development_map: float | None  # None with too few development questions
    development_body_map: NotRequired[float | None]  # measured instead: titles must find their own bodies
    examples: int


def quality(row: Epoch) -> tuple[str | None, float | None]:
    """Return the name and the value of the measure that decides which epoch is best; None if none was measured."""
    values = dict[str, Any](row)
    return next(((name, values[name]) for name in MEASURES if values.get(name) is not None), (None, None))


def best_epoch(curve: list[Epoch]) -> int:
    """Return the epoch of highest quality, the first of equal ones; the last one if none is measured; 0 before any."""
    if not curve or quality(curve[-1])[0] is None:
        return len(curve)
    return max(curve, key=lambda row: quality(row)[1] or 0.0)["epoch"]


class Checkpoints:
    """The newest checkpoint of one training. Memory: the trained tensors of the network after the best epoch."""

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        """Keep the checkpoint in `folder`, local or on S3; save one at least `seconds` after another."""
        self._uri, self._seconds = storage.join(folder, "checkpoint.safetensors"), seconds
        self._saved_at = -math.inf
        self._best: dict[str, np.ndarray] = {}

    def save(self, network: torch.nn.Module, optimizer: Optimizer | None, curve: list[Epoch]) -> None:
        """Replace the checkpoint by the state after the curve's last epoch, if it is time."""
        fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
        states = network.state_dict()
        trained = {name: tensor.detach().cpu().numpy() for name, tensor in states.items() if name not in fixed}
        is_best = best_epoch(curve) == len(curve)
        if is_best:
            self._best = {name: tensor.copy() for name, tensor in trained.items()}
        if time.monotonic() - self._saved_at < self._seconds:
            return
        best = {} if is_best else self._best
        state = {
            f"{number}/{name}": value.detach().cpu().numpy()
            for number, (_, state) in enumerate(_states(optimizer))
            for name, value in state.items()
            if value is not None  # SGD without momentum
        }
        folders = {"network": trained, "best": best, "optimizer": state}
        tensors = {f"{folder}/{name}": tensor for folder, inside in folders.items() for name, tensor in inside.items()}
        write_tensors(self._uri, {_CURVE: np.frombuffer(storage.json_bytes(curve), np.uint8), **tensors})
        self._saved_at = time.monotonic()

    def resume(self, network: torch.nn.Module, optimizer: Optimizer | None) -> list[Epoch]:
        """Load the checkpoint, if there is one, into network and optimizer, and return its curve."""
        if not storage.exists(self._uri):
            return []
        try:
            tensors = safetensors.numpy.load(storage.read_bytes(self._uri))
            curve: list[Epoch] = json.loads(tensors.pop(_CURVE).tobytes())
        except (safetensors.SafetensorError, KeyError, ValueError) as error:
            raise DupqError(f"{self._uri}: not readable ({error}); remove it to start the training again") from error
        folders = defaultdict[str, dict[str, np.ndarray]](dict)  # "network" is empty if all its tensors are fixed
        for path, tensor in tensors.items():
            folder, _, name = path.partition("/")
            folders[folder][name] = tensor
        _restore(network, folders["network"])
        states = _states(optimizer)
        for entry, value in folders["optimizer"].items():
            number, _, name = entry.partition("/")
            parameter, state = states[int(number)]
            state[name] = torch.from_numpy(value).to("cpu" if name == "step" else parameter.device)
        self._best = folders["best"] or folders["network"]
        return curve

    def restore_best(self, network: torch.nn.Module) -> None:
        """Load the weights of the best epoch, saved or resumed, into the network."""
        _restore(network, self._best)


def _restore(network: torch.nn.Module, tensors: dict[str, np.ndarray]) -> None:
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)


def _states(optimizer: Optimizer | None) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """Return the parameters of an optimizer, if there is one, with its state of each."""
    if optimizer is None:
        return []
    return [(one, optimizer.state[one]) for group in optimizer.param_groups for one in group["params"]]
