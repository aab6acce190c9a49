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
from typing import Any, NotRequired

import numpy as np
import safetensors
import safetensors.numpy
import torch
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.saved import write_tensors
from dupq.errors import DupqError
from dupq.training.optimisation import Adam, Optimizer

_CURVE = "curve"


class Epoch(TypedDict):
    """A row of the learning curve."""

    epoch: int
    loss: float
    development_map: float | None  # None with too few development questions
    development_body_map: NotRequired[float | None]  # measured instead: titles must find their own bodies
    examples: int


MEASURES = ("development_map", "development_body_map")  # the first one that is not None decides


def quality(row: Epoch) -> float | None:
    """Return the measure that decides which epoch is best; None if none was measured."""
    name = quality_measure(row)
    return None if name is None else dict[str, Any](row)[name]


def quality_measure(row: Epoch) -> str | None:
    """Return the name of the measure that decides which epoch is best."""
    values = dict[str, Any](row)
    return next((name for name in MEASURES if values.get(name) is not None), None)


def best_epoch(curve: list[Epoch]) -> int:
    """Return the epoch of highest quality, the first of equal ones; the last one if none is measured; 0 before any."""
    if not curve or quality(curve[-1]) is None:
        return len(curve)
    return max(curve, key=lambda row: quality(row) or 0.0)["epoch"]


def is_over(curve: list[Epoch], epochs: int, patience: int, least: int = 0) -> bool:
    """Return whether all epochs are done, or `patience` (if not 0) epochs after `least` brought nothing better."""
    waited = len(curve) - max(best_epoch(curve), least)
    return len(curve) >= epochs or (patience > 0 and waited >= patience)


class Checkpoints:
    """The newest checkpoint of one training. Memory: the trained tensors of the network after the best epoch."""

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        """Keep the checkpoint in `folder`, local or on S3; save one at least `seconds` after another."""
        self._uri, self._seconds = storage.join(folder, "checkpoint.safetensors"), seconds
        self._saved_at = -math.inf
        self._best: dict[str, np.ndarray] = {}

    def save(self, network: torch.nn.Module, optimizer: Optimizer | None, curve: list[Epoch]) -> None:
        """Replace the checkpoint by the state after the curve's last epoch, if it is time."""
        trained = trained_tensors(network)
        is_best = best_epoch(curve) == len(curve)
        if is_best:
            self._best = {name: tensor.copy() for name, tensor in trained.items()}
        if time.monotonic() - self._saved_at < self._seconds:
            return
        tensors = {_CURVE: np.frombuffer(storage.json_bytes(curve), np.uint8)}
        tensors |= _below("network", trained) | ({} if is_best else _below("best", self._best))
        if optimizer is not None:
            tensors |= _below("optimizer", _optimizer_state(optimizer))
        write_tensors(self._uri, tensors)
        self._saved_at = time.monotonic()

    def resume(self, network: torch.nn.Module, optimizer: Optimizer | None) -> list[Epoch]:
        """Load the checkpoint, if there is one, into network and optimizer, and return its curve."""
        if not storage.exists(self._uri):
            return []
        try:
            tensors = safetensors.numpy.load(storage.read_bytes(self._uri))
            curve: list[Epoch] = json.loads(tensors.pop(_CURVE).tobytes())
        except (safetensors.SafetensorError, KeyError, ValueError) as error:
            raise DupqError(f"{self._uri}: not readable ({error}); remove it to start the training anew") from error
        parts: dict[str, dict[str, np.ndarray]] = {"network": {}}  # empty if all its tensors are fixed
        for name, tensor in tensors.items():
            part, _, name_in_part = name.partition("/")
            parts.setdefault(part, {})[name_in_part] = tensor
        restore(network, parts["network"])
        if optimizer is not None:
            _load_optimizer_state(optimizer, parts.get("optimizer", {}))
        self._best = parts.get("best", parts["network"])
        return curve

    def restore_best(self, network: torch.nn.Module) -> None:
        """Load the weights of the best epoch, saved or resumed, into the network."""
        restore(network, self._best)


def trained_tensors(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors of a network that training changes: all but frozen ones, such as fixed word vectors."""
    fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    return {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items() if name not in fixed}


def restore(network: torch.nn.Module, tensors: dict[str, np.ndarray]) -> None:
    """Set the named tensors of a network."""
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)


def _below(folder: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{folder}/{name}": value for name, value in tensors.items()}


def _optimizer_state(optimizer: Optimizer) -> dict[str, np.ndarray]:
    """Return the optimizer's state of each parameter as PARAMETER NUMBER/ENTRY NAME."""
    return {
        f"{number}/{name}": value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.array(value)
        for number, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state[parameter].items()
        if value is not None  # SGD without momentum
    }


def _load_optimizer_state(optimizer: Optimizer, tensors: dict[str, np.ndarray]) -> None:
    parameters = _parameters(optimizer)
    for entry, value in tensors.items():
        number, _, name = entry.partition("/")
        parameter, kept = parameters[int(number)], torch.from_numpy(value)
        if name != "step":
            optimizer.state[parameter][name] = kept.to(parameter.device)
        else:  # torch's own optimizers count in tensors on the CPU
            optimizer.state[parameter][name] = int(value) if isinstance(optimizer, Adam) else kept


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
