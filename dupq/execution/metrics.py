"""Prometheus metrics of stages, through Ray: each node's agent exports them, where Ray runs one (docs/operations.md).

Ray puts `ray_` in front of the names.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from ray.util.metrics import Gauge as RayGauge

from dupq.runs import log

_TAGS = ("run", "stage")


class Gauge(Protocol):
    """As far as it is used."""

    def set(self, value: float, tags: dict[str, str]) -> None:
        """The value from now on."""


def ray_gauge(name: str, description: str) -> Gauge:
    """A gauge that Ray exports."""
    return RayGauge(name, description, tag_keys=_TAGS)


class StageMetrics(logging.Handler):
    """Sets the gauges from the line that ends a stage; other lines are none of its business."""

    def __init__(self, make: Callable[[str, str], Gauge] = ray_gauge) -> None:
        """`make` makes a gauge of a name and a description."""
        super().__init__()
        self._rows = make("dupq_stage_rows", "Rows that a stage wrote.")
        self._seconds = make("dupq_stage_seconds", "Seconds that a stage took.")
        self._memory = make("dupq_stage_peak_memory_bytes", "Peak memory of the largest task of a stage.")

    def emit(self, record: logging.LogRecord) -> None:
        """Set the gauges, if the record tells of a stage."""
        stage = getattr(record, "stage_record", None)
        if stage is None:
            return
        tags = {"run": str(log.place.run), "stage": stage["name"]}
        self._rows.set(stage["rows_out"], tags)
        self._seconds.set(stage["seconds"], tags)
        self._memory.set(stage["peak_memory_mb"] * 2**20, tags)


_handlers: list[StageMetrics] = []


def export() -> None:
    """Export what stages log from now on; once is enough."""
    if not _handlers:
        _handlers.append(StageMetrics())
        logging.getLogger("dupq").addHandler(_handlers[0])
