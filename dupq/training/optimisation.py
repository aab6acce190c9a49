"""One training step: losses, which are sums over the rows of a batch; sums over the workers; and the optimizer."""

from collections import defaultdict
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import distributed

from dupq.encoders.on_device import moved
from dupq.encoders.protocol import Embedding
from dupq.settings.sections import TrainingSettings
from dupq.system import papers

TEMPERATURE = 0.05  # divides cosines before a softmax over the batch, as in SimCSE (Gao et al. 2021)


def seed_dropout(seed: int, epoch: int, rank: int = 0) -> None:
    """Seed torch's generators, from which dropout draws, for an epoch of a worker."""
    torch.manual_seed(int(np.random.SeedSequence((seed, epoch, rank)).generate_state(1, np.uint64)[0]))


def linear_decay(epoch: int, epochs: int) -> tuple[float, float]:
    """Return the shares of the learning rate at the start and end of an epoch (from 1) if it falls to 0 over all."""
    return 1.0 - (epoch - 1) / epochs, 1.0 - epoch / epochs


def decay(epoch: int, training: TrainingSettings) -> tuple[float, float]:
    """Return the shares of the learning rate at the start and end of an epoch of known duplicates."""
    return linear_decay(epoch, training.epochs) if training.decay == "linear" else (1.0, 1.0)


def phase_settings(training: TrainingSettings, batch_size: int, learning_rate: float) -> TrainingSettings:
    """Return the training settings of a phase before known duplicates."""
    return training.changed(batch_size=batch_size, learning_rate=learning_rate)


def distillation(scores: torch.Tensor, teacher_scores: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the sum over n texts of KL(teacher || network), distributions over the other texts of the batch.

    Both are softmaxes of scores (n, B) over TEMPERATURE, without the text itself, which is at `columns` (n,). So
    the teacher passes on which texts are alike, in whatever space (Peng et al. 2019, correlation congruence; the
    distributions of Fang et al. 2021, SEED, section 3.2).
    """

    def log_shares(matrix: torch.Tensor) -> torch.Tensor:
        others = (matrix / TEMPERATURE).scatter(1, columns[:, None], -1e4)
        return torch.nn.functional.log_softmax(others, dim=1)

    return torch.nn.functional.kl_div(log_shares(scores), log_shares(teacher_scores), log_target=True, reduction="sum")


# Communication between the workers of one training at each step, on CPUs (gloo) and on GPUs (nccl) alike.
#
# Every worker has the whole network and takes its share of each batch, so sums over workers are those of the whole
# batch. Gradients of word vectors stay sparse: workers exchange the rows of the batch's words only, never the table
# (nccl cannot sum sparse tensors, and a dense one would have the table's size). A single worker sends nothing.


def is_shared() -> bool:
    """Return whether there are other workers."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def sum_gradients(network: torch.nn.Module) -> None:
    """Replace each gradient by its sum over all workers, which have gradients of the same parameters."""
    if not is_shared():
        return
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    dense = [gradient for gradient in gradients if not gradient.is_sparse]
    if dense:
        flat = torch.cat([gradient.reshape(-1) for gradient in dense])
        distributed.all_reduce(flat)
        for gradient, total in zip(dense, flat.split([gradient.numel() for gradient in dense]), strict=True):
            gradient.copy_(total.view_as(gradient))
    for parameter in network.parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = _sparse_sum(parameter.grad)


def _sparse_sum(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.coalesce()
    rows, values = gradient.indices()[0], gradient.values()
    sizes = [int(count) for count in _gathered(torch.tensor([len(rows)], device=values.device))]
    missing = max(sizes) - len(rows)
    padded = torch.nn.functional.pad(rows, (0, missing)), torch.nn.functional.pad(values, (0, 0, 0, missing))
    rows, values = (
        torch.cat([tensor[:size] for tensor, size in zip(_gathered(own), sizes, strict=True)]) for own in padded
    )
    return torch.sparse_coo_tensor(rows[None], values, gradient.shape, check_invariants=False).coalesce()


def _gathered(own: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors of all workers, in their order; all have the same shape."""
    tensors = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(tensors, own.contiguous())
    return tensors


def whole_batch(own: Embedding, indices: np.ndarray, size: int) -> Embedding:
    """Return the embeddings of all `size` texts of a batch; this worker has those at `indices` (maybe none).

    Differentiable: each worker gets the sum of all workers' gradients of its own embeddings.
    """
    rows = moved(indices, own.dense.device)
    own = own.rows(0, len(indices))
    if not is_shared():
        return own.take(torch.argsort(rows))
    bag = own.bag
    if bag:
        width = torch.tensor([bag[0].shape[1]], device=rows.device)
        distributed.all_reduce(width, op=distributed.ReduceOp.MAX)
        front = int(width) - bag[0].shape[1]  # padding comes first in a bag, with id 0 and weight 0
        bag = tuple(torch.nn.functional.pad(side, (front, 0)) for side in bag)
    return Embedding(_scattered(own.dense, rows, size), tuple(_scattered(side, rows, size) for side in bag))


def _scattered(own: torch.Tensor, rows: torch.Tensor, size: int) -> torch.Tensor:
    """Return the matrix with the rows of all workers: a sum of matrices that are zero outside a worker's own rows."""
    whole = own.new_zeros((size, *own.shape[1:])).index_copy(0, rows, own)
    distributed.all_reduce(whole.detach())  # in place
    if whole.requires_grad:
        whole.register_hook(_summed)
    return whole


def _summed(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.contiguous().clone()
    distributed.all_reduce(gradient)
    return gradient


def sum_over_workers(values: np.ndarray, device: torch.device) -> np.ndarray:
    """Return the sum over all workers of arrays of one shape and type."""
    if not is_shared():
        return values
    tensor = torch.from_numpy(values).to(device)
    distributed.all_reduce(tensor)
    return tensor.cpu().numpy()


def wait_for_workers() -> None:
    """Wait until all workers have reached this point."""
    if is_shared():
        distributed.barrier()


# An optimizer that updates only the word vectors of the words in a batch.
#
# The gradient of the word vectors is sparse. torch's Adam takes dense gradients only and would touch the whole table at
# each step. This one touches the rows of the batch's words; a row's means are of the steps that had the row.


def optimizer_for(network: torch.nn.Module, settings: TrainingSettings) -> "Optimizer":
    """Return the optimizer of all trained parameters: Adam, or another one if the papers' settings name it."""
    paper = papers_training(settings)
    if paper is not None:
        optimizer: Optimizer = paper.optimizer_for(network, settings)
        return optimizer
    return Adam(trained_parameters(network), settings.learning_rate)


def papers_training(settings: TrainingSettings) -> ModuleType | None:
    """Return the module that trains by the papers' settings (papers/dupq_papers/training.py); None for dupq's own."""
    return None if type(settings) is TrainingSettings else papers("training")[0]


def trained_parameters(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters that training changes."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


class Adam:
    """Algorithm 1 of Kingma and Ba 2015, with its beta_1 = 0.9, beta_2 = 0.999 and epsilon = 1e-8.

    A sparse gradient changes its own rows only. It has of `torch.optim.Optimizer` what training uses, and not its base
    class, whose first use imports a compiler for 1.5 seconds.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], learning_rate: float) -> None:
        """Begin with no steps taken."""
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, "lr": learning_rate}]
        self.state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group["lr"])

    def _step(self, parameter: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state.update(first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
        state["step"] += 1
        step = int(state["step"])
        if not gradient.is_sparse:
            parameter.sub_(self._change(gradient, state["first"], state["second"], step), alpha=rate)
            return
        rows = gradient._indices()[0]
        # autograd loses the mark that it is coalesced (see `_WeightedSums`), and doing it takes time
        if not gradient.is_coalesced() and not (rows[1:] > rows[:-1]).all():
            gradient = gradient.coalesce()
        rows, values = gradient._indices()[0], gradient._values()
        first, second = state["first"][rows], state["second"][rows]
        parameter.index_add_(0, rows, self._change(values, first, second, step), alpha=-rate)
        state["first"][rows], state["second"][rows] = first, second

    @staticmethod
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """Return the amount to subtract from the parameter, before the learning rate.

        `first` is m and `second` is v; both are updated. Their bias is corrected by the steps of the whole table.
        """
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        corrected: Any = (second / (1 - 0.999**step)).sqrt().add_(1e-8)
        return first / (1 - 0.9**step) / corrected


Optimizer: TypeAlias = Adam | torch.optim.Optimizer  # the latter in the papers only
