"""Communication between the workers of one training at each step, on CPUs (gloo) and on GPUs (nccl) alike.

Every worker has the whole network and takes its share of each batch, so sums over workers are those of the whole batch.
Gradients of word vectors stay sparse: only the rows of the words in the batch are sent, never the table (nccl cannot
sum sparse tensors, and a dense one would be the table's size). Without a process group, or with one worker, nothing is
sent.
"""

import numpy as np
import torch
from torch import distributed
from torch.autograd.function import BackwardCFunction, FunctionCtx

from dupq.encoders.protocol import Embedding
from dupq.text.vocabulary import PADDING


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
        return _scattered_alone(own, rows)
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


def _scattered_alone(own: Embedding, rows: torch.Tensor) -> Embedding:
    return own.take(torch.argsort(rows))


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
