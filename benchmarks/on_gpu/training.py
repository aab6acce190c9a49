"""Training as `fit` does it: questions a second, one worker a GPU (nccl), and the losses beside the CPU's."""

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import distributed

from dupq.training import optimisation
from dupq.training.loop import train_epoch
from dupq.training.optimisation import optimizer_for
from dupq.training.pairs import Rankings
from on_gpu.made_up import Sample, sample
from on_gpu.parts import Figures, Scale, together

PRESETS = ("dupq", "bogdanova-max", "othman-lstm")
_LOSS = ("training.loss=softmax", "training.optimizer=adam", "training.negatives=0")
_LIKE_THE_CPU = 0.02  # relative difference of the losses of the first steps, with products of bfloat16
_STEPS_COMPARED, _BATCH_COMPARED = 3, 64  # with the CPU, which is slow
_BATCH, _STEPS, _STEPS_OF_CPUS = 512, 128, 4


def figures(scale: Scale) -> Iterator[Figures]:
    """Each preset by one worker with a GPU, and by two on CPUs; and by one for each GPU where there are several."""
    for preset in PRESETS[:2] if scale.is_rehearsal else PRESETS:
        found = learned(scale, preset)
        found["is_like_the_cpu"] = found["losses_differ_by"] <= _LIKE_THE_CPU
        yield {preset: found}
        by_cpus = learned(scale._replace(device="cpu"), preset, 2, _STEPS_OF_CPUS)
        times = found["steps_per_second"] / by_cpus["steps_per_second"]
        yield {f"{preset}_by_two_cpus": by_cpus, f"{preset}_times_two_cpus": times}
    if scale.gpus < 2:
        yield {"workers": "one GPU: nccl is not measured"}
        return
    several = learned(scale, PRESETS[0], workers=scale.gpus)
    yield {f"{PRESETS[0]}_by_{scale.gpus}_workers": several}


def learned(scale: Scale, preset: str, workers: int = 1, steps: int = _STEPS) -> Figures:
    """Questions a second of an epoch; for one worker how far the losses of its first steps are from the CPU's."""
    with tempfile.TemporaryDirectory() as folder:
        return together(lambda rank: _worker(scale, preset, steps, (rank, workers), folder), workers)


def _worker(scale: Scale, preset: str, steps: int, worker: tuple[int, int], folder: str) -> Figures:
    torch.set_num_threads(1)
    rank, workers = worker
    device = scale.device if scale.device == "cpu" else f"cuda:{rank}"
    if device != "cpu":
        torch.cuda.set_device(device)
    if workers > 1:
        backend = "gloo" if device == "cpu" else "nccl"
        distributed.init_process_group(backend, f"file://{folder}/meeting", rank=rank, world_size=workers)
    batch, compared = scale.size(_BATCH, 4), scale.size(_BATCH_COMPARED, 4)
    pairs = scale.size(steps * _BATCH, 12)
    made = sample(scale, preset, 2 * pairs, _LOSS)
    here = None if workers > 1 else _epoch(made, made.network, _STEPS_COMPARED * compared, compared, (0, 1))[1]
    network: Any = made.network.to(device)
    _, there = _epoch(made, network, _STEPS_COMPARED * compared, compared, worker)  # warms up, and compiles
    spent, losses = _epoch(made, network, pairs, batch, worker)
    found = {"questions_per_second": 2 * pairs / spent, "steps_per_second": len(losses) / spent}
    if device != "cpu":
        found["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    if here is not None:
        found["losses_differ_by"] = float(np.abs(there / here - 1).max())
    if workers > 1:
        distributed.destroy_process_group()
    return found


def _epoch(made: Sample, network: Any, pairs: int, batch: int, worker: tuple[int, int]) -> tuple[float, np.ndarray]:
    """The seconds of an epoch over the first `pairs` pairs of questions, and its losses; the weights are put back."""
    start = {name: value.clone() for name, value in network.state_dict().items()}
    left, training = np.arange(0, 2 * pairs, 2), made.settings.training.changed(batch_size=batch)
    examples = Rankings(left, left + 1, np.zeros((pairs, 0), np.int64), np.arange(pairs))
    sequences, optimizer = dict(enumerate(made.texts)), optimizer_for(network, training)
    optimisation.wait_for_workers()
    begun = time.perf_counter()
    losses = train_epoch(network, optimizer, sequences, examples, training, worker)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    spent = time.perf_counter() - begun
    network.load_state_dict(start)
    return spent, losses.sums / losses.examples
