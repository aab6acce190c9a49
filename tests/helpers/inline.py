"""Jobs without Ray: their tasks run one after the other in this process. What Ray itself does is tested with Ray."""

from collections.abc import Iterator
from contextlib import contextmanager

from dupq.job import cluster


@contextmanager
def without_ray(cpus: int = 16) -> Iterator[None]:
    """Run all tasks here, as if there were so many CPUs. Also a decorator of a function, or a fixture that returns."""
    before, cluster._here = cluster._here, cpus
    try:
        yield
    finally:
        cluster._here = before
