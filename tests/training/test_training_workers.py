"""Real gloo processes, without Ray."""

import functools
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from encoder_settings import where_read
from torch import distributed, multiprocessing

from dupq.encoders import on_device
from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.links import split_links
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.training.loop import embed, epoch_examples, texts_by_key, train_epoch
from dupq.training.optimisation import TEMPERATURE, optimizer_for
from dupq.training.pairs import DistillationTargets, Pairs, Rankings

DUPLICATES = np.array([*((3 * i, 3 * i + 1) for i in range(36)), *((3 * i, 3 * i + 2) for i in range(9))])
TAUGHT = ("training.loss=softmax", "training.optimizer=adam")
SOFTMAX = ("training.loss=softmax",)


def start(assignments: tuple[str, ...]) -> tuple[Settings, Encoder, dict[int, np.ndarray]]:
    chosen = config.load("dupq", ["training.batch_size=4", "training.negatives=2", *assignments])
    chosen = where_read(chosen, units=6, dropout=0.0, word_vectors="learned")
    generator = np.random.default_rng(1)
    sequences = {key: generator.integers(1, 60, 3 + key % 30).astype(np.int32) for key in range(120)}
    network = build(chosen.encoder, generator.normal(size=(60, 8)).astype(np.float32), seed=1)
    return chosen, network, sequences


# 45 pairs in batches of 4: in the last one is one pair, and nothing for the second worker
@functools.cache
def learned(assignments: tuple[str, ...], worker: tuple[int, int]) -> tuple[dict[str, Any], np.ndarray]:
    """The weights after three epochs as worker (rank, workers), and the loss of each step."""
    chosen, network, sequences = start(assignments)
    training = chosen.training
    optimizer = optimizer_for(network, training)
    split = split_links(DUPLICATES, training)
    losses = []
    for epoch in (1, 2, 3):
        examples: Pairs | Rankings | DistillationTargets
        if set(TAUGHT) <= set(assignments):
            vectors = np.random.default_rng(epoch).normal(size=(45, 5)).astype(np.float32)
            examples = DistillationTargets(np.arange(45), vectors)
        else:
            examples = epoch_examples(DUPLICATES, np.arange(120), split, training, epoch)
        actual = train_epoch(network, optimizer, sequences, examples, training, worker)
        losses.append(actual.sums / actual.examples)
    return network.state_dict(), np.concatenate(losses)


def one_worker(rank: int, workers: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=workers)
    for number, case in enumerate(CASES):
        torch.save(learned(case, (rank, workers)), f"{folder}/{number}-{rank}.pt")
        with mock.patch.object(on_device, "is_gpu", return_value=True):
            torch.save(learned.__wrapped__(case, (rank, workers)), f"{folder}/{number}-{rank}-device.pt")
    (Path(folder) / f"learned-{rank}").touch()
    while len(list(Path(folder).glob("learned-*"))) < workers:  # which is still connected to this one
        time.sleep(0.01)
    os._exit(0)  # a process that ends as usual may be aborted by gloo's threads


CASES = [  # papers/tests/test_paper_training.py has other losses and networks
    (*SOFTMAX, "training.negatives=1", "training.learning_rate=0.01"),
    TAUGHT,
    (*SOFTMAX, "training.negatives=0", "training.batch_size=11"),
]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes learned in all cases: they start once, which takes longer than to learn."""
    folder = tmp_path_factory.mktemp("two")
    multiprocessing.spawn(one_worker, args=(2, str(folder)), nprocs=2)
    return folder


@pytest.mark.parametrize("way", ["", "-device"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_two_processes_take_the_steps_of_one(number: int, way: str, two_processes: Path) -> None:
    """On CPUs, and as GPUs compute."""
    alone, losses = learned(CASES[number], (0, 1))
    both = [torch.load(two_processes / f"{number}-{rank}{way}.pt", weights_only=False) for rank in (0, 1)]
    for weights, shared_losses in both:
        assert len(losses) >= 12
        # 36 steps, each a sum of some 40 numbers in another order: 1,440 roundings of 2^-24. These networks amplify
        # little: with all first weights 2^-23 of themselves off, losses are 1e-6 off and weights 7e-7
        assert shared_losses[:20] == pytest.approx(losses[:20], abs=1e-4)
        for name, expected in alone.items():
            assert torch.equal(both[0][0][name], weights[name]), name
            assert torch.allclose(weights[name], expected, atol=1e-4), name
    assert losses.std() > 0


def test_a_softmax_step_is_that_of_its_definition() -> None:
    """Pair by pair, with the score of one pair at a time."""
    chosen, network, sequences = start((*SOFTMAX, "training.batch_size=9", "training.negatives=2"))
    split = split_links(DUPLICATES, chosen.training)
    examples = epoch_examples(DUPLICATES[[0, 1, 2, 36, 37, 20, 21, 22, 23]], np.arange(120), split, chosen.training, 1)

    def score(left: int, right: int) -> float:
        actual = embed(network, texts_by_key(sequences, torch.device("cpu")), np.array([left, right]))
        return network.score(actual.rows(0, 1), actual.rows(1, 2)).item()

    expected = 0.0
    for left, right, negatives in zip(examples.left, examples.right, examples[2], strict=True):
        others = [other for other in examples.right if other // 3 != left // 3]
        scores = np.array([score(left, other) for other in [right, *others, *negatives]]) / TEMPERATURE
        expected += np.log(np.exp(scores).sum()) - scores[0]
    still = torch.optim.SGD([parameter for parameter in network.parameters() if parameter.requires_grad], lr=0.0)
    actual = train_epoch(network, still, sequences, examples, chosen.training)
    assert actual.sums == pytest.approx([expected], rel=1e-4)
