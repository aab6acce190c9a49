"""The optimizers of the papers against torch's."""

import pytest
import torch
from optimised import EVERY_ROW, SOME_ROWS, table, trained

from dupq_papers.training import Adadelta, clip_gradients


@pytest.mark.parametrize("is_sparse", [False, True])
def test_adadelta_takes_the_steps_of_torch(is_sparse: bool) -> None:
    words, reference = table(is_sparse), table(is_sparse=False)
    found = trained(Adadelta([words.weight], 1.0), words, EVERY_ROW)
    expected = trained(torch.optim.Adadelta([reference.weight], lr=1.0, rho=0.95, eps=1e-6), reference, EVERY_ROW)
    assert torch.allclose(found, expected, atol=1e-12)


def test_rows_without_a_gradient_stay_as_they_are() -> None:
    words = table(is_sparse=True)
    before = words.weight.detach().clone()
    after = trained(Adadelta([words.weight], 0.5), words, SOME_ROWS)
    assert (after == before).all(dim=1).tolist() == [False, False, True, False, True, False]


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
