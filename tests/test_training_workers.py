"""Real DistributedDataParallel processes, without Ray."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from dupq import config
from dupq.encoders.build import build
from dupq.training.loop import epoch_examples, train_epoch
from dupq.training.optimizers import optimizer_for
from dupq.training.split import split_links

DUPLICATES = np.array([(2 * i, 2 * i + 1) for i in range(9)])


def learned(preset: str, worker: tuple[int, int]) -> dict[str, torch.Tensor]:
    """The weights after two epochs of some steps, as worker (rank, workers)."""
    chosen = config.load(preset, ["encoder.units=6", "encoder.dropout=0", "encoder.word_vectors=learned"])
    training = dataclasses.replace(chosen.training, batch_size=5, negatives=2)
    generator = np.random.default_rng(1)
    sequences = {key: generator.integers(1, 30, 9).astype(np.int32) for key in range(20)}
    network = build(chosen.encoder, generator.normal(size=(30, 8)).astype(np.float32), seed=1)
    model = network if worker[1] == 1 else DistributedDataParallel(network)
    optimizer = optimizer_for(network, training)
    split = split_links(DUPLICATES, training)
    for epoch in (1, 2):
        examples = epoch_examples(DUPLICATES, np.arange(20), split, training, epoch)
        train_epoch(model, optimizer, sequences, examples, training, worker)
    return network.state_dict()


def one_worker(rank: int, workers: int, preset: str, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=workers)
    torch.save(learned(preset, (rank, workers)), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.parametrize("preset", ["dos-santos-bow-cnn", "othman-alstm"])
def test_two_processes_learn_what_one_learns(preset: str, tmp_path: Path) -> None:
    multiprocessing.spawn(one_worker, args=(2, preset, str(tmp_path)), nprocs=2)
    alone = learned(preset, (0, 1))
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for name, expected in alone.items():
        assert torch.equal(both[0][name], both[1][name]), name
        assert torch.allclose(both[0][name], expected, atol=1e-4), name
