"""Compile, once, what jobs and the Python API call, so that no run waits for it: for images, and after an update."""

import argparse
import logging
import tempfile
import time

from dupq.cli.options import add_gpus
from dupq.extras import is_installed

_log = logging.getLogger(__name__)
DESCRIPTION = "Compile what jobs call and keep it, so that no run waits for it."
_SHORT = ("training.epochs=1", "title_body.epochs=1", "word_vectors.epochs=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_gpus(parser)


def run(arguments: argparse.Namespace) -> None:
    """Call what has to be compiled, GPU kernels too, where there is a GPU; say what it took.

    That is find_duplicates and, if Ray is installed, the jobs on a small sample archive, by two presets.
    """
    from dupq import find_duplicates
    from dupq.kernel_cache import compile_seconds

    start = time.monotonic()
    logging.getLogger("dupq").setLevel(logging.WARNING)
    find_duplicates(["How do I bake bread?", "How do I bake some bread?", "Where is my bicycle?"])
    if is_installed("ray"):
        _do_the_jobs(arguments.gpus)
    logging.getLogger("dupq").setLevel(logging.INFO)
    _log.info(
        f"compiled: {time.monotonic() - start:.0f} s, of which numba took {compile_seconds():.0f} s; a run finds what "
        "was kept"
    )


def _do_the_jobs(gpus: int | None) -> None:
    from dupq.execution import cluster
    from dupq.execution.gpus import gpus_for
    from dupq.pipelines.arguments.from_dump import FromDumpJob
    from dupq.pipelines.from_dump import from_dump
    from dupq.sample.archive import write_sample

    cluster.connect("local")
    gpus = gpus_for(gpus).now()  # a number: `auto` would leave so few questions to CPUs
    with tempfile.TemporaryDirectory(prefix="dupq-warm-") as folder:
        sample = write_sample(f"{folder}/dump", questions=300)
        for preset in ("sample", "dupq"):
            job = FromDumpJob((str(sample.archive),), f"{folder}/{preset}", preset, None, _SHORT, gpus)
            from_dump(job, job.check())
