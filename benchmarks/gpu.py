"""What a machine with a CUDA GPU does with dupq: is it right, and how fast beside the GPU's peak and beside CPUs?

    python benchmarks/gpu.py [--json FILE] [--part NAME …] [--cpu-rehearsal]

- `search_dense`, `search_hybrid`: the ten nearest of each of 200,000 to 2 million × 300, what took how long, the
  recall, and 24 million projected by N²;
- `kernels`: those of the search beside plain torch, lists beside the CPU's, and operations a second;
- `peers`: torch, faiss for GPUs and FlashLib on 200,000 × 300, those that are installed;
- `search_sustained`: the same as `search_dense` of 8 million, a minute without a pause, with clocks and watts;
- `job_dedup`: a run of 200,000 made questions with an encoder of cs.stackexchange.com (DUPQ_SHARED_DATA), stage by
  stage, and training that encoder;
- `training`: questions a second by preset, with one worker for each GPU (nccl) where there are several, and by two
  CPUs; losses beside those of the CPU;
- `encoding_stage`: the stage `encode` of 600,000 beside `encode` alone, for a CNN and an LSTM.

These take less than 8 minutes. With `--part` also:

- `job_cpus`: the run of `job_dedup` by the CPUs of the machine;
- `job_train`: a CNN by the GPU and by two CPUs;
- `stage`: the stage `neighbours` of 200,000 with words, its files and processes included, and by the CPUs;
- `encoding`: questions a second by preset and batch; embeddings beside those of the CPU.

CPUs prepare the two jobs while the GPU is busy for a minute. Shares are of the fastest product of large matrices,
measured in the same part. Each part is a process with a time limit of its own: what it has found by then is kept, and
one that fails loses nothing of the others. The JSON is written after each figure. But for the jobs, networks are not
trained and questions are made up. The exit code is 1 if a part failed, or something was wrong.

Nothing need be installed but the libraries of dupq: the checkout is found from where this file is.

`--cpu-rehearsal` runs the same code at tiny sizes on the CPU, the kernel in Triton's interpreter where Triton is
installed: its figures mean nothing.
"""

import argparse
import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMITS = {  # seconds
    "search_dense": 35,
    "search_hybrid": 45,
    "kernels": 45,
    "peers": 20,
    "search_sustained": 75,
    "job_dedup": 75,
    "training": 45,
    "encoding_stage": 45,
    "job_cpus": 120,
    "job_train": 100,
    "stage": 80,  # of which a GPU takes 23, and CPUs that compile first over 27
    "encoding": 30,
}
SECOND = ("job_cpus", "job_train", "stage", "encoding")  # of a call of their own
PREPARED = ("job_dedup", "job_cpus")  # of what CPUs prepare, from the beginning of `search_sustained` on
PREPARATION_SECONDS = 120
TRIAL_SECONDS = 30
_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the parts, print what they found, write the JSON; exits with 1 if anything failed."""
    options = arguments()
    find_checkout()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a part's processes end with this one
    if options.cpu_rehearsal:
        os.environ["TRITON_INTERPRET"] = "1"  # which Triton sees when it is imported
    from on_gpu.parts import in_process

    slack = 10 if options.cpu_rehearsal else 1  # where other work may be going on
    about = in_process(functools.partial(device, options.cpu_rehearsal), TRIAL_SECONDS * slack)
    if "error" in about:
        sys.exit(f"{about['error']}; --cpu-rehearsal runs the same at tiny sizes on the CPU")
    found: dict[str, Any] = {"device": about}
    show("device", about)
    parts = options.part or [name for name in LIMITS if name not in SECOND]
    with preparation(parts, options.cpu_rehearsal) as prepare:
        measure(parts, about, found, options.json, slack, prepare)
    if found["failed"]:
        sys.exit(f"failed: {', '.join(found['failed'])}")


def measure(
    parts: list[str], about: dict[str, Any], found: dict[str, Any], output: str | None, slack: int,
    prepare: Callable[[float], None],
) -> None:  # fmt: skip
    """Run the parts, and write what they found after each figure; `prepare` prepares jobs and waits for that."""
    from on_gpu.parts import in_process

    for name in parts:
        if name in ("search_sustained", *PREPARED):
            prepare(PREPARATION_SECONDS * slack if name in PREPARED else 0)
        module = name.partition("_")[0]
        with contextlib.suppress(Exception):  # no part need import it again; what is wrong is told in the part
            importlib.import_module(f"on_gpu.{module}")

        def write(figures: dict[str, Any], name: str = name) -> None:
            found[name] = figures
            found["failed"] = failures(found)
            if output:
                Path(output).write_text(json.dumps(found, indent=2) + "\n")

        write(in_process(functools.partial(figures_of, name, about), LIMITS[name] * slack, write))
        show(name, found[name])


@contextlib.contextmanager
def preparation(parts: list[str], is_rehearsal: bool) -> Iterator[Callable[[float], None]]:
    """Give a function that prepares the jobs among `parts` in a process, and waits until some seconds after its start.

    At the end of the block the process and its jobs end.
    """
    if not set(parts) & set(PREPARED):
        yield lambda _: None
        return
    from on_gpu import job

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DUPQ_PREPARED"] = folder
        process = multiprocessing.get_context("fork").Process(target=job.prepare, args=(is_rehearsal, folder))

        @functools.cache
        def begun() -> float:
            process.start()
            return time.monotonic()

        try:
            yield lambda seconds: process.join(max(0.0, begun() + seconds - time.monotonic()))
        finally:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()  # if it is not yet a group
                process.join()


def find_checkout() -> None:
    """Have dupq and the papers' presets found, installed or not, by this process and by the jobs that it starts."""
    own = [str(_ROOT), str(_ROOT / "papers")]
    sys.path[:0] = own
    os.environ["PYTHONPATH"] = os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--part", action="append", choices=list(LIMITS), help="only this; may be repeated")
    parser.add_argument("--cpu-rehearsal", action="store_true", help="tiny sizes on the CPU: does it run?")
    return parser.parse_args()


def device(is_rehearsal: bool) -> Iterator[dict[str, Any]]:
    """What this machine has; `error` if it has no GPU that torch can use."""
    import torch

    from dupq import system
    from dupq.neighbours.gpu import kernels

    yield {
        "date": time.strftime("%Y-%m-%d"),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "triton": None if kernels.triton is None else kernels.triton.__version__,
        "is_rehearsal": is_rehearsal,
        "gpus": 2 if is_rehearsal else 0,
    }
    if is_rehearsal:
        return
    trouble = system.trouble_with(system.GPU)
    if trouble:
        yield {"error": f"torch cannot use a GPU here: {trouble}"}
        return
    chip = torch.cuda.get_device_properties(0)
    yield {
        "name": chip.name,
        "gpus": torch.cuda.device_count(),
        "memory_gb": chip.total_memory / 1e9,
        "compute_capability": f"{chip.major}.{chip.minor}",
        "cuda": torch.version.cuda,
    }


def figures_of(name: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a part yields."""
    from on_gpu.parts import Scale

    from dupq import system

    is_rehearsal = about["is_rehearsal"]
    scale = Scale(system.CPU if is_rehearsal else system.GPU, about["gpus"], is_rehearsal)
    module, _, kind = name.partition("_")
    yield from getattr(importlib.import_module(f"on_gpu.{module}"), kind or "figures")(scale)


def failures(found: dict[str, Any]) -> list[str]:
    """What ended with an error, or is not as it must be."""
    wrong = []
    for name, figures in found.items():
        for key, value in flat(figures) if isinstance(figures, dict) else ():
            is_wrong = (key.endswith("_wrong") and value) or (key.endswith("like_the_cpu") and not value)
            if key == "error" or is_wrong or (key.endswith("recall_at_10") and value < 1):
                wrong.append(f"{name} {key}")
    return wrong


def flat(figures: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """All figures, with the names of what they are in."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


def show(name: str, figures: dict[str, Any]) -> None:
    """The part's figures, one a line."""
    print(name)
    for key, value in flat(figures):
        print(f"    {key:56} {value:,.4g}" if isinstance(value, float) else f"    {key:56} {value}", flush=True)


if __name__ == "__main__":
    main()
