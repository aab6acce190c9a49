"""Running a function over many shards as Ray tasks, with counts, retries and progress."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import ray

from dupq import storage
from dupq.errors import DupqError
from dupq.execution.memory import measured

# The counts of a task: rows_in, rows_out, anything else by its name, and with CAP in front of the name how often a
# limit left something out.
Counts = dict[str, int]
CAP = "cap: "

Result = TypeVar("Result")
_SECONDS_BETWEEN_LINES = 60
RETRIES = 3  # of a task whose worker or node died; an error of the code is not retried


@dataclass
class Report:
    """What a stage counted, and its memory."""

    tasks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    peak_memory_mb: float = 0.0  # of the largest task
    counts: dict[str, int] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)  # limits that left something out

    def add(self, other: "Report") -> None:
        """Add another step of the same stage, except for its rows, which are the same ones."""
        self.tasks += other.tasks
        self.peak_memory_mb = max(self.peak_memory_mb, other.peak_memory_mb)
        for mine, theirs in ((self.counts, other.counts), (self.caps, other.caps)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0) + value


def summarise(outcomes: Sequence[tuple[Counts, float]]) -> Report:
    """The report of tasks that each gave counts and a peak memory (MB)."""
    report = Report(tasks=len(outcomes))
    for counts, peak in outcomes:
        report.rows_in += counts.get("rows_in", 0)
        report.rows_out += counts.get("rows_out", 0)
        report.peak_memory_mb = max(report.peak_memory_mb, peak)
        for name, value in counts.items():
            kept = report.caps if name.startswith(CAP) else report.counts
            if name not in ("rows_in", "rows_out"):
                kept[name.removeprefix(CAP)] = kept.get(name.removeprefix(CAP), 0) + value
    return report


def run_tasks(
    label: str, work: Callable[..., Counts], calls: Sequence[tuple[object, ...]], cpus: float = 1, gpus: int = 0
) -> Report:
    """Call `work` once for each tuple of arguments, in parallel, and sum up the counts.

    The answer does not depend on their order. The first error ends the stage; a task whose worker died is
    started again.
    """
    task = ray.remote(measured).options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
    waiting = [task.remote(work, *arguments) for arguments in calls]
    outcomes: list[tuple[Counts, float]] = []
    progress = Progress(label, len(calls))
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=1)
        outcomes.append(result_of(ready[0]))
        progress.show(len(outcomes))
    return summarise(outcomes)


def result_of(reference: "ray.ObjectRef[Result]") -> Result:
    """The result of a task; raises its DupqError as it was raised there."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, DupqError):
            raise error.cause from None
        raise


def skip_or(output: str, work: Callable[[], Counts]) -> Counts:
    """The counts of `output` if an earlier attempt at this run finished it, else those of making it."""
    if storage.exists(output):
        return storage.read_counts(output)
    return work()


class Progress:
    """Prints a stage's progress: a live line on a terminal, otherwise one a minute (the stage prints its end)."""

    def __init__(self, label: str, total: int) -> None:
        """`total` is the number of pieces of work."""
        self._label, self._total, self._start = label, total, time.monotonic()
        self._told = self._start

    def show(self, done: int) -> None:
        """Draw the line for `done` pieces."""
        now = time.monotonic()
        left = (now - self._start) / max(1, done) * (self._total - done)
        if not sys.stderr.isatty():
            if now - self._told >= _SECONDS_BETWEEN_LINES and done < self._total:
                self._told = now
                print(f"{self._label}: {done}/{self._total}, {left:.0f} s left", file=sys.stderr, flush=True)
            return
        end = "\r" if done < self._total else "\r\033[K"
        print(f"\r\033[K{self._label}: {done}/{self._total}, {left:.0f} s left", end=end, file=sys.stderr, flush=True)
