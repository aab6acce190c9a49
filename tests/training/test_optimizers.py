"""Steps of our optimizers against torch's, dense and sparse."""

import pytest
import torch

from dupq.training.optimisation import Adadelta, Adam, clip_gradients


def trained(optimizer: torch.optim.Optimizer, table: torch.nn.Embedding, steps: list[list[int]]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(table.weight.shape, generator=generator, dtype=torch.float64)
    for rows in steps:
        optimizer.zero_grad()
        (table(torch.tensor(rows)) - target[rows]).pow(2).sum().backward()
        optimizer.step()
    return table.weight.detach().clone()


def table(is_sparse: bool) -> torch.nn.Embedding:
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return torch.nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=is_sparse)


EVERY_ROW = [[0, 1, 2, 3, 4, 5]] * 4 + [[5, 4, 3, 2, 1, 0, 0, 2]] * 4
SOME_ROWS = [[0, 1], [1, 1, 3], [0], [3, 1], [5, 0, 5]]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_adadelta_and_adam_take_the_steps_of_torch(is_sparse: bool) -> None:
    words, reference = table(is_sparse), table(is_sparse=False)
    found = trained(Adadelta([words.weight], 1.0), words, EVERY_ROW)
    expected = trained(torch.optim.Adadelta([reference.weight], lr=1.0, rho=0.95, eps=1e-6), reference, EVERY_ROW)
    assert torch.allclose(found, expected, atol=1e-12)
    words, reference = table(is_sparse), table(is_sparse=False)
    found = trained(Adam([words.weight], 0.01), words, EVERY_ROW)
    assert torch.allclose(found, trained(torch.optim.Adam([reference.weight], lr=0.01), reference, EVERY_ROW))


def test_adam_takes_the_steps_of_torchs_sparse_one() -> None:
    words, reference = table(is_sparse=True), table(is_sparse=True)
    found = trained(Adam([words.weight], 0.01), words, SOME_ROWS)
    assert torch.allclose(found, trained(torch.optim.SparseAdam([reference.weight], lr=0.01), reference, SOME_ROWS))


@pytest.mark.parametrize("kind", [Adadelta, Adam])
def test_rows_without_a_gradient_stay_as_they_are(kind: type[Adadelta | Adam]) -> None:
    words = table(is_sparse=True)
    before = words.weight.detach().clone()
    after = trained(kind([words.weight], 0.5), words, SOME_ROWS)
    assert (after == before).all(dim=1).tolist() == [False, False, True, False, True, False]


def test_an_optimizer_goes_on_from_its_saved_state() -> None:
    words = table(is_sparse=True)
    optimizer = Adadelta([words.weight], 1.0)
    whole = trained(optimizer, words, SOME_ROWS * 2)
    words = table(is_sparse=True)
    first = Adadelta([words.weight], 1.0)
    trained(first, words, SOME_ROWS)
    second = Adadelta([words.weight], 1.0)
    second.load_state_dict(first.state_dict())
    assert torch.equal(trained(second, words, SOME_ROWS), whole)


def test_a_gradient_is_shortened_only_if_it_is_too_long() -> None:
    network = torch.nn.Sequential(table(is_sparse=True), torch.nn.Linear(3, 2, dtype=torch.float64))

    def gradients(limit: float) -> list[torch.Tensor]:
        network.zero_grad()
        network(torch.tensor([0, 2, 2])).square().sum().backward()
        clip_gradients(network, limit)
        return [parameter.grad.to_dense().flatten() for parameter in network.parameters()]  # type: ignore[union-attr]

    whole = torch.cat(gradients(1e9))
    length = float(whole.norm())
    assert torch.equal(torch.cat(gradients(length * 1.01)), whole)
    assert torch.allclose(torch.cat(gradients(length / 4)), whole / 4)
