"""Checkpoints: the state of training after an epoch, on disk, as safetensors and JSON; nothing is ever pickled.

epoch-00003.safetensors   the trained tensors of the network and the optimizer's state;
                          for an older best epoch, the network alone
latest.json               the epoch of the newest checkpoint and the learning curve up to it; written after it

Not every epoch is saved, because an epoch of a small archive takes less time than writing its checkpoint. A training
that is killed repeats at most `training.checkpoint_seconds` of work. Random generators have no state to save: each
epoch seeds them by its number, so an interrupted epoch is repeated exactly.
"""

import math
import re
import time
from dataclasses import dataclass, field
from typing import Any, NotRequired

import numpy as np
import safetensors
import safetensors.numpy
import torch
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.saved import write_tensors
from dupq.errors import DupqError
from dupq.storage import read_as

_FILE = re.compile(r"epoch-(\d{5,})\.safetensors")


class Epoch(TypedDict):
    """A row of the learning curve."""

    epoch: int
    loss: float
    development_map: float | None  # None with too few development questions
    development_body_map: NotRequired[float | None]  # measured instead: titles must find their own bodies
    examples: int


MEASURES = ("development_map", "development_body_map")  # the first one that is not None decides


class _Pointer(TypedDict):
    """latest.json."""

    curve: list[Epoch]


def quality(row: Epoch) -> float | None:
    """Return the measure that decides which epoch is best; None if none was measured."""
    name = quality_measure(row)
    return None if name is None else dict[str, Any](row)[name]


def quality_measure(row: Epoch) -> str | None:
    """Return the name of the measure that decides which epoch is best."""
    values = dict[str, Any](row)
    return next((name for name in MEASURES if values.get(name) is not None), None)


@dataclass
class Progress:
    """The epochs done so far: the curve has one row per epoch."""

    curve: list[Epoch] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The epoch of highest quality, the first of equal ones; the last epoch if none is measured; 0 before any."""
        if self.curve and quality(self.curve[-1]) is None:
            return len(self.curve)
        best = max((quality(row) or 0.0 for row in self.curve), default=0.0)
        return next((row["epoch"] for row in self.curve if quality(row) == best), 0)

    def is_over(self, epochs: int, patience: int, least: int = 0) -> bool:
        """Return whether all epochs are done, or `patience` (if not 0) epochs after `least` brought nothing better."""
        waited = len(self.curve) - max(self.best, least)
        return len(self.curve) >= epochs or (patience > 0 and waited >= patience)


class Checkpoints:
    """The checkpoints of one training: the newest one and that of the best epoch.

    Memory: the trained tensors of the network after the best epoch.
    """

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        """Keep checkpoints in `folder`, local or on S3, saved at least `seconds` apart."""
        self._folder, self._seconds = folder, seconds
        self._saved_at = -math.inf
        self._best: dict[str, np.ndarray] = {}

    def save(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        progress: Progress,
        is_last: bool = False,
    ) -> None:
        """Write the state after the curve's last epoch, if it is time or the epoch `is_last`.

        Then delete older checkpoints that are no longer needed. Newer ones stay: they belong to an attempt that
        replaced this one when it was taken for dead.
        """
        epoch = len(progress.curve)
        if progress.best == epoch:
            self._best = {f"network/{name}": tensor.copy() for name, tensor in trained_tensors(network).items()}
        if not is_last and time.monotonic() - self._saved_at < self._seconds:
            return
        if 0 < progress.best < epoch and not storage.exists(self._file(progress.best)):
            write_tensors(self._file(progress.best), self._best)
        tensors = {f"network/{name}": tensor for name, tensor in trained_tensors(network).items()}
        if optimizer is not None:
            tensors |= {f"optimizer/{name}": value for name, value in _optimizer_state(optimizer).items()}
        write_tensors(self._file(epoch), tensors)
        storage.write_json(storage.join(self._folder, "latest.json"), {"epoch": epoch, "curve": progress.curve})
        for file in storage.list_files(self._folder, ".safetensors"):
            number = _FILE.fullmatch(file.relative)
            if number and int(number[1]) < epoch and int(number[1]) != progress.best:
                storage.delete(file.uri)
        self._saved_at = time.monotonic()

    def resume(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Progress:
        """Load the newest checkpoint, if there is one, into network and optimizer, and return its progress."""
        pointer = storage.join(self._folder, "latest.json")
        if not storage.exists(pointer):
            return Progress()
        remedy = "remove the folder that it is in to start the training anew"
        progress = Progress(read_as(pointer, _Pointer, remedy)["curve"])
        if not all(storage.exists(self._file(epoch)) for epoch in (len(progress.curve), progress.best)):
            return Progress()  # a newer attempt deleted them before an older one overwrote its pointer
        tensors = self._read(len(progress.curve))
        restore(network, _below("network/", tensors))
        if optimizer is not None:
            _load_optimizer_state(optimizer, _below("optimizer/", tensors))
        return progress

    def restore_best(self, network: torch.nn.Module, progress: Progress) -> None:
        """Load the weights of the best epoch into the network."""
        restore(network, _below("network/", self._best or self._read(progress.best)))

    def _file(self, epoch: int) -> str:
        return storage.join(self._folder, f"epoch-{epoch:05d}.safetensors")

    def _read(self, epoch: int) -> dict[str, np.ndarray]:
        uri = self._file(epoch)
        try:
            return safetensors.numpy.load(storage.read_bytes(uri))
        except safetensors.SafetensorError as error:
            raise DupqError(f"{uri}: not readable ({error}); remove it to start the training anew") from error


def trained_tensors(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the tensors of a network that training changes: all but frozen ones, such as fixed word vectors."""
    fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    return {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items() if name not in fixed}


def restore(network: torch.nn.Module, tensors: dict[str, np.ndarray]) -> None:
    """Set the named tensors of a network."""
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)


def _below(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """Return the optimizer's state of each parameter as PARAMETER NUMBER/ENTRY NAME."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}/{name}": value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.array(value)
        for number, entries in state.items()
        for name, value in entries.items()
        if value is not None  # SGD without momentum
    }


def _load_optimizer_state(optimizer: torch.optim.Optimizer, tensors: dict[str, np.ndarray]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for entry, value in tensors.items():
        number, _, name = entry.partition("/")
        is_count = value.ndim == 0 and value.dtype == np.int64  # torch's own optimizers count in float32
        state.setdefault(int(number), {})[name] = int(value) if is_count else torch.from_numpy(value)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
