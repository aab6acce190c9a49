"""How fast training is on a GPU, by how its steps are computed; benchmarks/gpu.py has the other parts.

    python benchmarks/train_gpu.py [--json FILE] [--preset NAME …] [--cpu-rehearsal]

For each preset and variant: questions a second, steps a second, the peak of the GPU's memory, and how far the losses of
the first steps are from those of the CPU.

- `as_it_is`: sparse gradients of the word vectors, products of bfloat16, batches of 512 pairs;
- `dense`: gradients of the whole table of 200,000 words; `float32`: products of float32; `compiled`: torch.compile;
- `batch_…`: larger batches; `workers`: one worker for each GPU where there are several (nccl).

Each is a process with a time limit of its own, 60 s, of which one that fails loses nothing of the others. Networks are
not trained and questions are made up, of 80 words on average. `--cpu-rehearsal` runs it at tiny sizes on the CPU, where
torch.compile compiles nothing.
"""

import argparse
import functools
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu import device, find_checkout, show
from on_gpu.parts import Figures, Scale, in_process
from on_gpu.training import AS_IT_IS, PRESETS, Variant, learned

from dupq import system

VARIANTS = {
    "as_it_is": AS_IT_IS,
    "dense": Variant(is_sparse=False),
    "float32": Variant(is_bfloat16=False),
    "compiled": Variant(is_compiled=True),
    "batch_2048": Variant(batch_size=2_048),
    "batch_8192": Variant(batch_size=8_192),
    "batch_8192_dense": Variant(is_sparse=False, batch_size=8_192),
}
_SECONDS = 60


def main() -> None:
    """Measure every variant, print the figures, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--preset", action="append", choices=PRESETS, help="only this; may be repeated")
    parser.add_argument("--cpu-rehearsal", action="store_true", help="tiny sizes on the CPU: does it run?")
    options = parser.parse_args()
    find_checkout()
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it says where it cannot compile
    about = in_process(functools.partial(device, options.cpu_rehearsal), _SECONDS)
    if "error" in about:
        sys.exit(f"{about['error']}; --cpu-rehearsal runs the same at tiny sizes on the CPU")
    scale = Scale(system.CPU if options.cpu_rehearsal else system.GPU, about["gpus"], options.cpu_rehearsal)
    found: dict[str, Any] = {"device": about}
    limit = _SECONDS * (10 if options.cpu_rehearsal else 1)  # where other work may be going on
    for preset in options.preset or PRESETS:
        found[preset] = {
            name: in_process(functools.partial(measured, scale, preset, variant, workers), limit)
            for name, (variant, workers) in variants(scale).items()
        }
        show(preset, found[preset])
        if options.json:
            Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


def variants(scale: Scale) -> dict[str, tuple[Variant, int]]:
    """Every variant with its number of workers."""
    alone = {name: (variant, 1) for name, variant in VARIANTS.items()}
    if scale.gpus < 2:
        return alone
    return alone | {"workers": (AS_IT_IS, scale.gpus), "workers_dense": (VARIANTS["dense"], scale.gpus)}


def measured(scale: Scale, preset: str, variant: Variant, workers: int) -> Iterator[Figures]:
    yield learned(scale, preset, variant, workers)


if __name__ == "__main__":
    main()
