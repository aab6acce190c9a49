"""A GPU is tried before torch computes on it, and what is repeated outlasts a storage that is away."""

import threading
from collections.abc import Callable

import pytest
import torch

from dupq import system
from dupq.errors import DupqError, StorageError
from dupq.system import repeating

TRIED = system.trouble_with.__wrapped__  # not what an earlier call found


def raising(error: Exception) -> Callable[..., torch.Tensor]:
    def ones(*_: object, **__: object) -> torch.Tensor:
        raise error

    return ones


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it"), "driver"),
        (RuntimeError(""), "RuntimeError"),
    ],
)
def test_what_torch_says_of_a_gpu_that_it_cannot_use_becomes_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "ones", raising(error))
    trouble = TRIED("cuda:0")
    assert trouble is not None
    assert said in trouble
    assert "\n" not in trouble


def test_a_device_that_multiplies_wrongly_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TRIED("cpu") is None
    monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.full((16, 16), 2.0))
    assert TRIED("cpu") == "a product that is 4096 comes out as 16384"


def test_only_a_gpu_is_tried_and_one_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "trouble_with", lambda gpu: f"{gpu} is broken")
    assert system.usable(system.CPU) == torch.device("cpu")
    with pytest.raises(DupqError, match=r"GPU of the node .*: cuda:0 is broken; mend .* or run with --gpus none$"):
        system.usable(system.GPU)


def test_a_storage_that_is_away_for_a_while_ends_nothing() -> None:
    calls, was_called_again = [], threading.Event()

    def work() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise StorageError("away")
        was_called_again.set()

    with repeating(work, 0.001):
        assert was_called_again.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(repeat)")]
