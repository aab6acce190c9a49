"""Listens to a job in its own process: a line of JSON for each stage, with the steps of its tasks.

What a stage took is known when its line is logged. A step is what one call of `run_tasks` does: it is known by the
progress that it shows. Workers are only looked at from outside, so what is measured is the job as it is.
"""

import json
import logging
import re
import time
from pathlib import Path
from typing import Any

from benchmarks.whole_job.usage import disk, usage
from dupq.execution import memory, tasks

_REQUEST = re.compile(rb'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP/1')  # the server colours some lines


class Meter(logging.Handler):
    """Appends a line a stage to a file; stages that are there already are left as they are."""

    def __init__(self, job: str, file: Path, folder: Path, requests: Path | None) -> None:
        """`folder` is what the job writes into; `requests` is the log of an S3 server, a line a request."""
        super().__init__()
        self._job, self._file, self._folder, self._requests = job, file, folder, requests
        self._known = {line["stage"] for line in read(file) if line["job"] == job}
        self._is_rest = folder.exists()  # of a stage that an attempt before this one began
        self._steps: list[dict[str, Any]] = []
        self._peaks: list[float] = []
        self._begin()

    def _begin(self) -> None:
        self._then, self._step_then, self._start = usage(), usage(), time.monotonic()
        self._lines = self._count_requests()
        self._steps.clear()
        memory.give_back()
        memory.reset_peak()

    def _count_requests(self) -> tuple[int, int]:
        """For parts or heads of objects, and all others, which cost more."""
        found = [] if self._requests is None else _REQUEST.findall(self._requests.read_bytes())
        reads = sum(verb in (b"GET", b"HEAD") and b"list-type=" not in place for verb, place in found)
        return reads, len(found) - reads

    def emit(self, record: logging.LogRecord) -> None:
        """Note a stage's end."""
        stage = getattr(record, "stage_record", None)
        if stage is None:
            return
        if "finished before" not in record.getMessage():
            self.stage_ended(stage["name"], stage["seconds"], stage["rows_in"], stage["peak_memory_mb"])
        self._begin()

    def stage_ended(self, name: str, seconds: float | None, rows: int, peak_mb: float) -> None:
        """Write the line of a stage; without its `seconds`, those since the one before."""
        now, then, requests = usage(), self._then, self._count_requests()
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
            "driver_mb": round(memory.peak_mb()),
            "written": now.written - then.written,
            "disk": disk(self._folder),
            "reads": requests[0] - self._lines[0],
            "writes": requests[1] - self._lines[1],
            "is_rest": self._is_rest,
            "steps": list(self._steps),
        }
        self._is_rest = False
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def step_ended(self, label: str, pieces: int) -> None:
        """Note a step's end."""
        now, then = usage(), self._step_then
        step = {"label": label, "tasks": pieces, "cpu_s": round(now.other_cpu - then.other_cpu, 2)}
        self._steps.append(step)
        self._step_then = now

    def peaks(self, peaks: list[float]) -> None:
        """Note the peak memory (MB) of the tasks of the step that ended last."""
        if self._steps and peaks:
            self._steps[-1]["task_mb"] = round(max(peaks))


def read(file: Path) -> list[dict[str, Any]]:
    """The lines that meters wrote."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


_listening: list[Meter] = []


def listen(meter: Meter) -> None:
    """Let this meter, and no other, hear of stages and steps of the jobs of this process."""
    logger = logging.getLogger("dupq")
    for other in _listening:
        logger.removeHandler(other)
    if not _listening:
        _hook()
    _listening[:] = [meter]
    logger.addHandler(meter)


def _hook() -> None:
    begin, show, summarise = tasks.Progress.__init__, tasks.Progress.show, tasks.summarise

    def begun(self: tasks.Progress, label: str, total: int) -> None:
        begin(self, label, total)
        if not total:
            _listening[0].step_ended(label, 0)

    def shown(self: tasks.Progress, done: int, memory_mb: float = 0.0) -> None:
        show(self, done, memory_mb)
        if done == self._total:
            _listening[0].step_ended(self._label, done)

    def summed(outcomes: Any) -> tasks.Report:
        _listening[0].peaks([peak for _, peak in outcomes])
        return summarise(outcomes)

    tasks.Progress.__init__ = begun  # type: ignore[method-assign]
    tasks.Progress.show = shown  # type: ignore[method-assign]
    tasks.summarise = summed  # before the stages are imported, of which one names it
