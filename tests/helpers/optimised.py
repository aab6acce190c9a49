"""A table that optimizers train."""

import torch

from dupq.training.optimisation import Optimizer


def trained(optimizer: Optimizer, table: torch.nn.Embedding, steps: list[list[int]]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(table.weight.shape, generator=generator, dtype=torch.float64)
    for rows in steps:
        table.zero_grad()
        (table(torch.tensor(rows)) - target[rows]).pow(2).sum().backward()
        optimizer.step()
    return table.weight.detach().clone()


def table(is_sparse: bool) -> torch.nn.Embedding:
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return torch.nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=is_sparse)


EVERY_ROW = [[0, 1, 2, 3, 4, 5]] * 4 + [[5, 4, 3, 2, 1, 0, 0, 2]] * 4
SOME_ROWS = [[0, 1], [1, 1, 3], [0], [3, 1], [5, 0, 5]]
