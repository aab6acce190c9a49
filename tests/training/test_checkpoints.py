"""A training that is cut off goes on as if nothing had happened; what is seen of one; the steps of its optimizer."""

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimised import EVERY_ROW, SOME_ROWS, table, trained

from dupq import storage
from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.errors import DupqError
from dupq.links import split_links
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.training.fit import shown
from dupq.training.checkpoints import Checkpoints, Epoch, best_epoch, quality
from dupq.training.loop import epoch_examples, train_epoch
from dupq.training.optimisation import Adam, optimizer_for

DUPLICATES, MAPS = np.array([(2 * i, 2 * i + 1) for i in range(20)]), [0.1, 0.4, 0.2, 0.3]


def start(optimizer: str, vectors: str = "learned") -> tuple[Settings, Encoder, torch.optim.Optimizer]:
    how = (f"encoder.word_vectors={vectors}", f"training.optimizer={optimizer}", "training.negatives_drawn=each-epoch")
    small = ("encoder.units=6", "training.batch_size=4", "training.negatives=2")
    chosen = config.load("dos-santos-bow-cnn", [*how, *small])
    network = build(chosen.encoder, np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32), seed=1)
    return chosen, network, optimizer_for(network, chosen.training)


def go_on(folder: str, optimizer: str, epochs: int, seconds: float = 0.0) -> dict[str, torch.Tensor]:
    """Train until there are `epochs`, from the newest checkpoint on; MAPS stand for what is measured."""
    chosen, network, rule = start(optimizer)
    sequences = {key: np.random.default_rng(key).integers(1, 30, 9).astype(np.int32) for key in range(40)}
    split = split_links(DUPLICATES, chosen.training)
    checkpoints = Checkpoints(folder, seconds)
    curve = checkpoints.resume(network, rule)
    while len(curve) < epochs:
        epoch = len(curve) + 1
        examples = epoch_examples(DUPLICATES, np.arange(40), split, chosen.training, epoch)
        loss = train_epoch(network, rule, sequences, examples, chosen.training).mean
        row: Epoch = {"epoch": epoch, "loss": loss, "development_map": MAPS[epoch - 1], "examples": len(examples.left)}
        curve.append(row)
        checkpoints.save(network, rule, curve)
    return network.state_dict()


@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
def test_a_training_in_pieces_is_that_in_one(optimizer: str, tmp_path: Path) -> None:
    whole = go_on(str(tmp_path / "whole"), optimizer, 4)
    for epochs in (1, 3, 4):
        resumed = go_on(str(tmp_path / "pieces"), optimizer, epochs)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    [file] = (tmp_path / "pieces").iterdir()
    assert file.read_bytes() == (tmp_path / "whole" / file.name).read_bytes()


def test_word_vectors_that_are_fixed_are_in_no_checkpoint(tmp_path: Path) -> None:
    _, network, rule = start("sgd", "fixed")
    Checkpoints(str(tmp_path)).save(network, rule, [{"epoch": 1, "development_map": 0.1}])
    held = safetensors.numpy.load((tmp_path / "checkpoint.safetensors").read_bytes())
    assert "network/convolution.weight" in held
    assert "network/words.weight" not in held


def test_a_training_saved_rarely_is_the_same_and_has_its_best_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = go_on(str(tmp_path / "whole"), "adam", 4)
    rarely = tmp_path / "rarely"
    go_on(str(rarely), "adam", 3, seconds=3600)  # killed: of its epochs only the first is saved
    _, network, rule = start("adam")
    assert len(Checkpoints(str(rarely)).resume(network, rule)) == 1
    actual = go_on(str(rarely), "adam", 4, seconds=3600)
    assert all(torch.equal(whole[name], actual[name]) for name in whole)

    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    go_on(str(tmp_path / "twice"), "adam", 4, seconds=3)  # the first and the last epoch are saved
    _, network, rule = start("adam")
    checkpoints = Checkpoints(str(tmp_path / "twice"))
    assert len(checkpoints.resume(network, rule)) == 4
    checkpoints.restore_best(network)
    second = go_on(str(tmp_path / "two"), "adam", 2)
    assert all(torch.equal(network.state_dict()[name], second[name]) for name in second)


def test_a_checkpoint_that_is_gone_starts_anew_and_one_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    go_on(str(tmp_path), "sgd", 2)
    file = tmp_path / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    _, network, rule = start("sgd")
    with pytest.raises(DupqError, match=r"checkpoint\.safetensors: not readable"):
        Checkpoints(str(tmp_path)).resume(network, rule)
    file.unlink()
    assert Checkpoints(str(tmp_path)).resume(network, rule) == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12))
def test_the_best_epoch_is_the_first_of_the_highest_quality_by_links_or_else_by_bodies(maps: list[int]) -> None:
    for name in ("development_map", "development_body_map"):
        curve = [{"epoch": epoch, "development_map": None, name: value / 3} for epoch, value in enumerate(maps, 1)]
        assert best_epoch(curve) == (maps.index(max(maps)) + 1 if maps else 0)
        assert [quality(row) for row in curve] == [(name, value / 3) for value in maps]
    assert best_epoch([{"epoch": epoch, "development_map": None} for epoch in (1, 2, 3)]) == 3


def test_an_epoch_without_examples_is_told_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Titles alone leave the epochs of titles and bodies nothing; a loss of 0 would look like perfection."""
    row = {"epoch": 1, "loss": 0.0, "development_map": 0.5, "examples": 0}
    curve = str(tmp_path / "curve.json")
    with caplog.at_level("INFO"), shown(curve):
        storage.write_json(curve, [row, {**row, "epoch": 2, "loss": 0.25, "examples": 9}])
    messages = [record.getMessage().strip() for record in caplog.records]
    assert messages == [
        "epoch   1  nothing trained  development MAP 0.500  best so far",
        "epoch   2  loss 0.2500  development MAP 0.500",
    ]


def test_a_network_of_fixed_tensors_alone_goes_on(tmp_path: Path) -> None:
    network = torch.nn.Embedding(3, 2, _freeze=True)
    row: Epoch = {"epoch": 1, "loss": 0.0, "development_map": None, "examples": 0}
    Checkpoints(str(tmp_path)).save(network, None, [row])
    later = Checkpoints(str(tmp_path))

    assert later.resume(network, None) == [row]
    later.restore_best(network)


@pytest.mark.parametrize(
    ("is_sparse", "of_torch", "steps"),
    [(False, "Adam", EVERY_ROW), (True, "Adam", EVERY_ROW), (True, "SparseAdam", SOME_ROWS)],
)
def test_adam_takes_the_steps_of_torchs(is_sparse: bool, of_torch: str, steps: list[list[int]]) -> None:
    words, reference = table(is_sparse), table(of_torch == "SparseAdam")
    expected = trained(getattr(torch.optim, of_torch)([reference.weight], lr=0.01), reference, steps)
    assert torch.allclose(trained(Adam([words.weight], 0.01), words, steps), expected)


def test_rows_without_a_gradient_stay_as_they_are() -> None:
    words = table(is_sparse=True)
    before = words.weight.detach().clone()
    after = trained(Adam([words.weight], 0.5), words, SOME_ROWS)
    assert (after == before).all(dim=1).tolist() == [False, False, True, False, True, False]
