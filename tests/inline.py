"""Jobs without Ray: their tasks run one after the other in this process. What Ray itself does is tested with Ray."""

from collections.abc import Iterator
from contextlib import contextmanager

from dupq.job import cluster


@contextmanager
def without_ray() -> Iterator[None]:
    """Run all tasks here, as if there were 16 CPUs. Also a decorator of a function, or of a fixture that returns."""
    with cluster.in_process(16):
        yield
