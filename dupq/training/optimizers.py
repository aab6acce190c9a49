"""Optimizers that update only the word vectors of the words in a batch.

The gradient of the word vectors is sparse. torch's Adadelta and Adam take dense ones only, and would touch the whole
table at each step; these two touch the rows of the batch's words, and remember past gradients of a row only from the
steps in which it had one.
"""

import abc
from collections.abc import Callable
from typing import Any

import torch

from dupq.settings.training import TrainingSettings


def optimizer_for(network: torch.nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The optimizer of `settings`, over all parameters that are learned."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    rate = settings.learning_rate
    match settings.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate)
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate)
        case "adadelta":
            return Adadelta(parameters, rate)
        case "adam":
            return Adam(parameters, rate)


def clip_gradients(network: torch.nn.Module, length: float) -> None:
    """Shorten the gradient of all parameters together to at most `length` (Pascanu et al. 2013, algorithm 1)."""
    gradients = []
    for parameter in network.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad)
    squares = [(grad.values() if grad.is_sparse else grad).double().square().sum() for grad in gradients]
    total = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    if total > length:
        for grad in gradients:
            grad.mul_(length / total)


class _RowOptimizer(torch.optim.Optimizer, abc.ABC):
    """Steps of the rows that have a gradient: all of a dense one, those in it of a sparse one."""

    def __init__(self, parameters: list[torch.nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step along the gradients; `closure` is not used."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group["lr"])

    def _step(self, parameter: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        state = self.state[parameter]
        if not state:
            state.update(step=0, first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
        state["step"] += 1
        if not gradient.is_sparse:
            parameter.sub_(self._change(gradient, state["first"], state["second"], state["step"]), alpha=rate)
            return
        rows, values = _rows_and_values(gradient)
        first, second = state["first"][rows], state["second"][rows]
        parameter.index_add_(0, rows, self._change(values, first, second, state["step"]), alpha=-rate)
        state["first"][rows], state["second"][rows] = first, second

    @staticmethod
    @abc.abstractmethod
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """What is taken off the parameter, before the learning rate; the running means are brought up to date."""


def _rows_and_values(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row of a sparse gradient once; autograd forgets of one that it is so already, and to sum it takes time."""
    rows = gradient._indices()[0]
    if not (rows[1:] > rows[:-1]).all():
        gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


class Adadelta(_RowOptimizer):
    """Zeiler 2012, algorithm 1, with its rho = 0.95 and epsilon = 1e-6: the paper's learning rate is 1."""

    @staticmethod
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """`first` is E[g^2], `second` E[dx^2]."""
        first.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
        change = (second + 1e-6).sqrt() / (first + 1e-6).sqrt() * gradient
        second.mul_(0.95).addcmul_(change, change, value=0.05)
        return change


class Adam(_RowOptimizer):
    """Kingma and Ba 2015, algorithm 1, with its beta_1 = 0.9, beta_2 = 0.999 and epsilon = 1e-8."""

    @staticmethod
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """`first` is m, `second` v; a row's means are corrected by the steps of the whole table."""
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        corrected: Any = (second / (1 - 0.999**step)).sqrt().add_(1e-8)
        return first / (1 - 0.9**step) / corrected
