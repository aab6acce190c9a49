"""Steps of our optimizers against torch's, dense and sparse."""

import pytest
import torch
from optimised import EVERY_ROW, SOME_ROWS, table, trained

from dupq.training.optimisation import Adam


@pytest.mark.parametrize("is_sparse", [False, True])
def test_adam_takes_the_steps_of_torch(is_sparse: bool) -> None:
    words, reference = table(is_sparse), table(is_sparse=False)
    actual = trained(Adam([words.weight], 0.01), words, EVERY_ROW)
    assert torch.allclose(actual, trained(torch.optim.Adam([reference.weight], lr=0.01), reference, EVERY_ROW))


def test_adam_takes_the_steps_of_torchs_sparse_one() -> None:
    words, reference = table(is_sparse=True), table(is_sparse=True)
    actual = trained(Adam([words.weight], 0.01), words, SOME_ROWS)
    assert torch.allclose(actual, trained(torch.optim.SparseAdam([reference.weight], lr=0.01), reference, SOME_ROWS))


def test_rows_without_a_gradient_stay_as_they_are() -> None:
    words = table(is_sparse=True)
    before = words.weight.detach().clone()
    after = trained(Adam([words.weight], 0.5), words, SOME_ROWS)
    assert (after == before).all(dim=1).tolist() == [False, False, True, False, True, False]
