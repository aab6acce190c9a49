"""Listens to a job in its own process: a line of JSON for each stage, when its line is logged.

Workers are only looked at from outside, so what is measured is the job as it is.
"""

import json
import logging
import time
from pathlib import Path
from typing import Any

from benchmarks.whole_job.usage import disk, usage
from dupq.job import tasks


class Meter(logging.Handler):
    """Appends a line a stage to a file; stages that are there already are left as they are."""

    def __init__(self, job: str, file: Path, folder: Path) -> None:
        """`folder` is what the job writes into."""
        super().__init__()
        self._job, self._file, self._folder = job, file, folder
        self._known = {line["stage"] for line in read(file) if line["job"] == job}
        self._is_rest = folder.exists()  # of a stage that an attempt before this one began
        self._begin()

    def _begin(self) -> None:
        self._then, self._start = usage(), time.monotonic()
        tasks.reset_peak()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a stage's end."""
        stage = getattr(record, "fields", {})
        if "peak_memory_mb" not in stage:
            return  # no stage's line
        if "finished before" not in record.getMessage():
            self.stage_ended(stage["name"], stage["seconds"], stage["rows_in"], stage["peak_memory_mb"])
        self._begin()

    def stage_ended(self, name: str, seconds: float | None, rows: int, peak_mb: float) -> None:
        """Write the line of a stage; without its `seconds`, those since the one before."""
        now, then = usage(), self._then
        if name in self._known:
            return
        line = {
            "job": self._job,
            "stage": name,
            "seconds": round(time.monotonic() - self._start, 2) if seconds is None else seconds,
            "driver_cpu_s": round(now.own_cpu - then.own_cpu, 2),
            "tasks_cpu_s": round(now.other_cpu - then.other_cpu, 2),
            "rows": rows,
            "task_mb": round(peak_mb),
            "driver_mb": round(tasks.peak_mb()),
            "written": now.written - then.written,
            "disk": disk(self._folder),
            "is_rest": self._is_rest,
        }
        self._is_rest = False
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The lines that meters wrote."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
