"""A minute of the search's kernel without a pause: does the chip keep its speed? With its clocks and watts."""

import subprocess
import time
from collections.abc import Iterator

import torch

from dupq.neighbours.gpu import kernels
from dupq.neighbours.gpu.lists import empty_lists
from on_gpu.kernels import unit_rows
from on_gpu.parts import Figures, Scale

SECONDS, EVERY, QUESTIONS = 60, 10, 131_072
_QUERY = ("nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits")


def figures(scale: Scale) -> Iterator[Figures]:
    """Operations a second in each ten seconds, of products of 320 columns."""
    if scale.is_rehearsal:
        yield {"sustained": "not rehearsed"}
        return
    device = torch.device(scale.device)
    rows = unit_rows(QUESTIONS, 320, device)
    lists = empty_lists(QUESTIONS, 10, device)
    lists.bounds.fill_(2.0)
    speeds, clocks = [], []
    for _ in range(SECONDS // EVERY):
        start, rounds, asked = time.perf_counter(), 0, None
        while (spent := time.perf_counter() - start) < EVERY:
            for _ in range(10):
                kernels.find(rows, rows, (0, QUESTIONS), (0, QUESTIONS - 1), lists, lists)
            rounds += 10
            if asked is None and spent > EVERY / 2:
                asked = subprocess.Popen(_QUERY, stdout=subprocess.PIPE, text=True)
            torch.cuda.synchronize()
        speeds.append(2.0 * QUESTIONS**2 * 320 * rounds / spent / 1e12)
        clocks.append(asked.communicate()[0].strip() if asked else "")
        yield {"tflops_each_10_s": list(speeds), "mhz_watts_celsius": list(clocks)}
