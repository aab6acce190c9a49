"""Checkpoints: the state of training after an epoch, on disk, as safetensors and JSON; nothing is ever pickled.

epoch-00003.safetensors   the trained tensors of the network, the optimizer's state;
                          of the best epoch, if that is another one, the network alone
latest.json               the epoch of the newest one, and the learning curve up to it; written after it

Not every epoch is saved, as one of a small archive takes less time than writing its checkpoint: what a training that is
killed repeats is bounded in time.
There is no state of random generators: each epoch's are seeded by its number, so that an epoch that was cut off is
repeated exactly.
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
    development_map: float | None  # None where there are too few development questions
    development_body_map: NotRequired[float | None]  # of titles and their own bodies, in its place
    examples: int


MEASURES = ("development_map", "development_body_map")  # the first that there is decides


class _Pointer(TypedDict):
    """latest.json."""

    curve: list[Epoch]


def measured(row: Epoch) -> float | None:
    """What an epoch is compared with others by: the first of the MEASURES that it has; None if it has none."""
    name = measured_by(row)
    return None if name is None else dict[str, Any](row)[name]


def measured_by(row: Epoch) -> str | None:
    """The name of that measure."""
    values = dict[str, Any](row)
    return next((name for name in MEASURES if values.get(name) is not None), None)


@dataclass
class Progress:
    """How far training has come: the curve has one row an epoch."""

    curve: list[Epoch] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The epoch that is `measured` best, the first of equal ones; 0 before any.

        Where there is nothing to measure it by, the last epoch.
        """
        if self.curve and measured(self.curve[-1]) is None:
            return len(self.curve)
        best = max((measured(row) or 0.0 for row in self.curve), default=0.0)
        return next((row["epoch"] for row in self.curve if measured(row) == best), 0)

    def is_over(self, epochs: int, patience: int, least: int = 0) -> bool:
        """Whether all epochs are done, or the last `patience` (if it is not 0) after `least` brought nothing better."""
        waited = len(self.curve) - max(self.best, least)
        return len(self.curve) >= epochs or (patience > 0 and waited >= patience)


class Checkpoints:
    """The checkpoints of one training: the newest one, and that of the best epoch.

    Memory: the trained tensors of the network, as they were after the best epoch.
    """

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        """`folder` is local or on S3; there are at least `seconds` between two that are saved."""
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
        """Write the state after an epoch, the last of the curve, if it is time to or it `is_last` of all.

        Then remove checkpoints that are no longer needed. Only older ones: an attempt that was taken for dead removes
        nothing of one that has overtaken it.
        """
        epoch = len(progress.curve)
        if progress.best == epoch:
            self._best = {f"network/{name}": tensor.copy() for name, tensor in learned(network).items()}
        if not is_last and time.monotonic() - self._saved_at < self._seconds:
            return
        if 0 < progress.best < epoch and not storage.exists(self._file(progress.best)):
            write_tensors(self._file(progress.best), self._best)
        tensors = {f"network/{name}": tensor for name, tensor in learned(network).items()}
        if optimizer is not None:
            tensors |= {f"optimizer/{name}": value for name, value in _memory(optimizer).items()}
        write_tensors(self._file(epoch), tensors)
        storage.write_json(storage.join(self._folder, "latest.json"), {"epoch": epoch, "curve": progress.curve})
        for file in storage.list_files(self._folder, ".safetensors"):
            number = _FILE.fullmatch(file.relative)
            if number and int(number[1]) < epoch and int(number[1]) != progress.best:
                storage.delete(file.uri)
        self._saved_at = time.monotonic()

    def resume(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Progress:
        """Bring network and optimizer to the newest checkpoint, if there is one, and return how far it is."""
        pointer = storage.join(self._folder, "latest.json")
        if not storage.exists(pointer):
            return Progress()
        remedy = "remove the folder that it is in to start the training anew"
        progress = Progress(read_as(pointer, _Pointer, remedy)["curve"])
        if not all(storage.exists(self._file(epoch)) for epoch in (len(progress.curve), progress.best)):
            return Progress()  # removed by a later attempt whose pointer an older one has overwritten
        tensors = self._read(len(progress.curve))
        restore(network, _below("network/", tensors))
        if optimizer is not None:
            _remember(optimizer, _below("optimizer/", tensors))
        return progress

    def restore_best(self, network: torch.nn.Module, progress: Progress) -> None:
        """Bring the network to its best epoch."""
        restore(network, _below("network/", self._best or self._read(progress.best)))

    def _file(self, epoch: int) -> str:
        return storage.join(self._folder, f"epoch-{epoch:05d}.safetensors")

    def _read(self, epoch: int) -> dict[str, np.ndarray]:
        uri = self._file(epoch)
        try:
            return safetensors.numpy.load(storage.read_bytes(uri))
        except safetensors.SafetensorError as error:
            raise DupqError(f"{uri}: not readable ({error}); remove it to start the training anew") from error


def learned(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """The tensors of a network that training changes; the others, among them fixed word vectors, stay as they were."""
    fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    return {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items() if name not in fixed}


def restore(network: torch.nn.Module, tensors: dict[str, np.ndarray]) -> None:
    """Set the tensors of a network that are named."""
    network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)


def _below(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _memory(optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """What an optimizer remembers of each parameter, by the parameter's number and the entry's name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}/{name}": value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.array(value)
        for number, entries in state.items()
        for name, value in entries.items()
        if value is not None  # SGD without momentum
    }


def _remember(optimizer: torch.optim.Optimizer, memory: dict[str, np.ndarray]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for place, value in memory.items():
        number, _, name = place.partition("/")
        is_count = value.ndim == 0 and value.dtype == np.int64  # torch's own counts are of float32
        state.setdefault(int(number), {})[name] = int(value) if is_count else torch.from_numpy(value)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
