"""What a step of training computes: losses, each a sum over the rows of a batch; sums over the workers; and the change
of the weights.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.autograd.function import BackwardCFunction, FunctionCtx

from dupq.encoders.protocol import Embedding, Encoder, is_zero
from dupq.neighbours.embeddings import Kind
from dupq.settings.sections import TrainingSettings
from dupq.system import papers
from dupq.text.questions import PADDING

TEMPERATURE = 0.05  # what scores are divided by in the phases before known duplicates


def seed_dropout(seed: int, epoch: int, rank: int = 0) -> None:
    """Seed torch's generators, which dropout draws from: one seed for each epoch of each worker."""
    torch.manual_seed(int(np.random.SeedSequence((seed, epoch, rank)).generate_state(1, np.uint64)[0]))


def falling(epoch: int, epochs: int) -> tuple[float, float]:
    """The shares of the learning rate at the ends of an epoch (from 1), if it falls to 0 over all."""
    return 1.0 - (epoch - 1) / epochs, 1.0 - epoch / epochs


def rates(epoch: int, training: TrainingSettings) -> tuple[float, float]:
    """Likewise of an epoch of known duplicates, as `training.decay` says."""
    return falling(epoch, training.epochs) if training.decay == "linear" else (1.0, 1.0)


def as_training(training: TrainingSettings, batch_size: int, learning_rate: float) -> TrainingSettings:
    """Return what an epoch of a phase before known duplicates is trained with: `training`, but for what it has."""
    return training.changed(batch_size=batch_size, learning_rate=learning_rate, temperature=TEMPERATURE)


def distillation(scores: torch.Tensor, taught: torch.Tensor, own: torch.Tensor, temperature: float) -> torch.Tensor:
    """How far the distributions over the other texts of a batch are from a teacher's: the sum of KL(teacher || own).

    Both are softmaxes of scores (n, B) over the temperature, without the text itself, which is column `own` (n,). The
    teacher thus passes on which texts are alike, in whatever space (Peng et al. 2019, correlation congruence; the
    distributions of Fang et al. 2021, SEED, section 3.2).
    """
    rows = torch.arange(len(own), device=own.device)

    def logarithms(side: torch.Tensor) -> torch.Tensor:
        others = (side / temperature).index_put((rows, own), side.new_tensor(-1e4))
        return torch.nn.functional.log_softmax(others, dim=1)

    return torch.nn.functional.kl_div(logarithms(scores), logarithms(taught), log_target=True, reduction="sum")


def score_matrix(network: Encoder, left: Embedding, right: Embedding) -> torch.Tensor:
    """The scores (n, m) of every left with every right embedding: those of `network.score`."""
    dense, lexical = network.mix()
    scores = dense * _similarities(network.kind, left.dense, right.dense)
    if is_zero(lexical):
        return scores
    return scores + lexical * _bag_cosines(left, right)


def _bag_cosines(left: Embedding, right: Embedding) -> torch.Tensor:
    """The cosines (n, m) of bags, as a product of matrices with a column for each word that is there."""
    words, places = torch.unique(torch.cat([left.bag[0].flatten(), right.bag[0].flatten()]), return_inverse=True)
    split = places.split([left.bag[0].numel(), right.bag[0].numel()])
    units = []
    for (ids, weights), columns in zip((left.bag, right.bag), split, strict=True):
        matrix = weights.new_zeros(len(ids), len(words)).scatter_add(1, columns.view_as(ids), weights)
        units.append(torch.nn.functional.normalize(matrix, dim=1, eps=1e-12))
    return units[0] @ units[1].T


def _similarities(kind: Kind, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if kind == "cosine":
        normal = torch.nn.functional.normalize
        return normal(left, dim=-1, eps=1e-12) @ normal(right, dim=-1, eps=1e-12).T
    order = 1.0 if kind == "manhattan" else 2.0
    return torch.exp(-torch.cdist(left, right, p=order, compute_mode="donot_use_mm_for_euclid_dist"))


# Communication between the workers of one training at each step, on CPUs (gloo) and on GPUs (nccl) alike.
#
# Every worker has the whole network and takes its share of each batch, so sums over workers are those of the whole
# batch. Gradients of word vectors stay sparse: only the rows of the words in the batch are sent, never the table (nccl
# cannot sum sparse tensors, and a dense one would be the table's size). Without a process group, or with one worker,
# nothing is sent.


def is_shared() -> bool:
    """Whether there are other workers."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def sum_gradients(network: torch.nn.Module) -> None:
    """Make each gradient the sum of all workers'. Each worker has one for the same parameters."""
    if not is_shared():
        return
    learned = [parameter for parameter in network.parameters() if parameter.grad is not None]
    dense = [parameter.grad for parameter in learned if parameter.grad is not None and not parameter.grad.is_sparse]
    if dense:
        together = torch.cat([gradient.reshape(-1) for gradient in dense])
        distributed.all_reduce(together)
        pieces = together.split([gradient.numel() for gradient in dense])
        for gradient, piece in zip(dense, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))
    for parameter in learned:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = _sparse_sum(parameter.grad)


def _sparse_sum(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.coalesce()
    rows, values = gradient.indices()[0], gradient.values()
    counts = _gathered(torch.tensor([len(rows)], device=values.device))
    most = int(torch.stack(counts).max())
    room = most - len(rows)
    all_rows = _gathered(torch.nn.functional.pad(rows, (0, room)))
    all_values = _gathered(torch.nn.functional.pad(values, (0, 0, 0, room)))
    sizes = [int(count) for count in counts]
    rows = torch.cat([found[:size] for found, size in zip(all_rows, sizes, strict=True)])
    values = torch.cat([found[:size] for found, size in zip(all_values, sizes, strict=True)])
    return torch.sparse_coo_tensor(rows[None], values, gradient.shape, check_invariants=False).coalesce()


def _gathered(own: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all workers, which have the same shape, in their order."""
    found = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(found, own.contiguous())
    return found


def whole_batch(own: Embedding, places: np.ndarray, size: int) -> Embedding:
    """The embeddings of all `size` texts of a batch, of which this worker has those at `places` (maybe none).

    Gradients flow back through it: each worker gets the sum of all workers' gradients for its own embeddings.
    """
    rows = torch.from_numpy(places).to(own.dense.device)
    own = own.rows(0, len(places))
    if not is_shared():
        return own.take(torch.argsort(rows))
    dense = _scattered(own.dense, rows, size)
    if own.words is None:
        return Embedding(dense)
    own_words, own_weights = own.bag
    width = torch.tensor([own_words.shape[1]], device=rows.device)
    distributed.all_reduce(width, op=distributed.ReduceOp.MAX)
    front = (int(width) - own_words.shape[1], 0)  # padding comes first in a bag
    words = _scattered(torch.nn.functional.pad(own_words, front, value=PADDING), rows, size)
    weights = _scattered(torch.nn.functional.pad(own_weights, front), rows, size)
    return Embedding(dense, words, weights)


def _scattered(own: torch.Tensor, rows: torch.Tensor, size: int) -> torch.Tensor:
    found: torch.Tensor = _Scattered.apply(own, rows, size)  # type: ignore[no-untyped-call]
    return found


class _Scattered(torch.autograd.Function):
    """Rows of all workers to one matrix: a sum of matrices that are zero but for a worker's own rows."""

    @staticmethod
    def forward(ctx: FunctionCtx, own: torch.Tensor, rows: torch.Tensor, size: int) -> torch.Tensor:
        ctx.save_for_backward(rows)
        whole = own.new_zeros((size, *own.shape[1:]))
        whole[rows] = own
        distributed.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: BackwardCFunction, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        gradient = gradient.contiguous().clone()
        distributed.all_reduce(gradient)
        return gradient[rows], None, None


def sum_of_all(values: np.ndarray, device: torch.device) -> np.ndarray:
    """The sum over all workers of arrays of one shape (float64)."""
    if not is_shared():
        return values
    tensor = torch.from_numpy(values).to(device)
    distributed.all_reduce(tensor)
    return tensor.cpu().numpy()


def from_first(values: np.ndarray, device: torch.device) -> np.ndarray:
    """What the first worker has, for all; each gives an array of that shape and type."""
    if not is_shared():
        return values
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(device)
    distributed.broadcast(tensor, 0)
    return tensor.cpu().numpy()


def meet() -> None:
    """Wait until all workers have come to this point."""
    if is_shared():
        distributed.barrier()


# An optimizer that updates only the word vectors of the words in a batch.
#
# The gradient of the word vectors is sparse. torch's Adam takes dense ones only, and would touch the whole table at
# each step; this one touches the rows of the batch's words, and remembers past gradients of a row only from the steps
# in which it had one.


def optimizer_for(network: torch.nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The optimizer of all parameters that are learned: Adam, but where the papers' settings name another one."""
    for_papers = papers_training(settings)
    if for_papers is not None:
        found: torch.optim.Optimizer = for_papers.optimizer_for(network, settings)
        return found
    return Adam(learned(network), settings.learning_rate)


def papers_training(settings: TrainingSettings) -> ModuleType | None:
    """What trains by settings of the papers (papers/dupq_papers/training.py); None for dupq's own."""
    return None if type(settings) is TrainingSettings else papers("training")[0]


def learned(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that training changes."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


class Adam(torch.optim.Optimizer):
    """Kingma and Ba 2015, algorithm 1, with its beta_1 = 0.9, beta_2 = 0.999 and epsilon = 1e-8.

    It takes steps of the rows that have a gradient: all of a dense one, those in it of a sparse one.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], learning_rate: float) -> None:
        """Change `parameters` at that rate."""
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
    def _change(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: int) -> torch.Tensor:
        """Return what is taken off the parameter, before the learning rate.

        `first` is m, `second` v; both are changed here. A row's means are corrected by the steps of the whole table.
        """
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        corrected: Any = (second / (1 - 0.999**step)).sqrt().add_(1e-8)
        return first / (1 - 0.9**step) / corrected


def _rows_and_values(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row of a sparse gradient once; autograd forgets of one that it is so already, and to sum it takes time."""
    rows = gradient._indices()[0]
    if not (rows[1:] > rows[:-1]).all():
        gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values()
