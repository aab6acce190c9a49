"""Which gauges a stage that ends sets."""

import logging
from pathlib import Path

from dupq.execution.metrics import StageMetrics
from dupq.execution.tasks import Report
from dupq.runs import writer
from dupq.settings.config import Settings


class Noted:
    """A gauge that notes what it is set to."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {}

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tags["run"], tags["stage"]] = value


def test_a_stage_that_ends_sets_rows_seconds_and_memory_and_other_lines_nothing(tmp_path: Path) -> None:
    gauges: dict[str, Noted] = {}

    def make(name: str, description: str) -> Noted:
        assert description.endswith(".")
        return gauges.setdefault(name, Noted())

    handler, logger = StageMetrics(make), logging.getLogger("dupq")
    logger.addHandler(handler)
    try:
        run = writer.open_run(str(tmp_path), {}, {}, Settings(), {})
        logger.info("archive: /x")
        assert all(not gauge.values for gauge in gauges.values())
        run.stage("texts", lambda: Report(tasks=2, rows_in=8, rows_out=7, peak_memory_mb=3.0))
    finally:
        logger.removeHandler(handler)
    place = (run.run_id, "texts")
    assert gauges["dupq_stage_rows"].values == {place: 7}
    assert gauges["dupq_stage_peak_memory_bytes"].values == {place: 3 * 2**20}
    assert 0 <= gauges["dupq_stage_seconds"].values[place] < 60
