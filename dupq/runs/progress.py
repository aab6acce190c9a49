"""How far a run is: `progress.json` in its folder, for `dupq status` and whoever watches.

While a stage works, a thread writes the file every few seconds, also if nothing new is done: so a reader knows that the
job is alive. What tells progress changes memory only. A file that cannot be written never fails the run.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.runs import log
from dupq.storage import Time, read_whole
from dupq.system import repeating

SECONDS_BETWEEN = 10.0
ALIVE = timedelta(minutes=5)  # since it was written last: then its job may still be at work; clocks differ a little
_NAME = "progress.json"


class Progress(TypedDict):
    """progress.json. Times are UTC, in ISO 8601."""

    state: str  # running, failed, cut off, gate missed, finished
    stage: str
    step: str  # of the stage
    done: int  # pieces of the step
    total: int  # 0: not known yet
    since: Time  # when the stage began
    began: Time  # when this attempt at the run began
    inputs: dict[str, Any]  # as in manifest.json
    updated: Time


class _Watched:
    """The run that this process is at work on."""

    uri: str | None = None
    progress: Progress


_watched = _Watched()
_lock = threading.Lock()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def of_stage(run: str, stage: str, inputs: Mapping[str, object]) -> Iterator[None]:
    """Keep progress.json and run.log of the run at `run` up to date while its stage works."""
    _enter(run, stage, inputs)
    try:
        with repeating(_write, SECONDS_BETWEEN):
            yield
    except BaseException:
        _watched.progress["state"] = "failed"
        raise
    finally:
        _write()


def _enter(run: str, stage: str, inputs: Mapping[str, object]) -> None:
    is_new = run != _watched.uri
    now = _now()
    began = now if is_new else _watched.progress["began"]
    _watched.uri = run
    told = {"state": "running", "stage": stage, "step": "", "done": 0, "total": 0, "inputs": dict(inputs)}
    _watched.progress = cast(Progress, {**told, "since": now, "began": began, "updated": now})
    log.place.run, log.place.stage = storage.name(run), stage
    if is_new:
        with contextlib.suppress(DupqError):
            log.keep(storage.join(run, log.NAME))
        _write()


def _write() -> None:
    with _lock, contextlib.suppress(DupqError, OSError):
        _watched.progress["updated"] = _now()
        storage.write_json(storage.join(str(_watched.uri), _NAME), _watched.progress)
        log.write_kept()


def tell(step: str, done: int, total: int) -> None:
    """So many of the pieces of a step are done; of no effect outside a stage. Nothing is written yet."""
    if _watched.uri is not None:
        _watched.progress.update({"step": step, "done": done, "total": total})


def end(run: str, state: str) -> None:
    """The run at `run` is finished, or failed; of no effect if this process has done nothing for it."""
    if run == _watched.uri:
        _watched.progress["state"] = state
        _write()
        log.place.stage = None
        _watched.uri = None


def end_as(state: str) -> None:
    """What this process is at work on has ended so, if it is at work on a run."""
    if _watched.uri is not None:
        end(_watched.uri, state)


def read_progress(run: str) -> Progress | None:
    """How far the run at `run` is; None if nothing, or nothing readable, tells it."""
    return read_whole(storage.join(run, _NAME), Progress)


def is_alive(progress: Progress, now: datetime) -> bool:
    """Whether the job that wrote this is at work, as far as one can see."""
    return progress["state"] == "running" and now - time_of(progress) < ALIVE


def time_of(progress: Progress) -> datetime:
    """When it was written."""
    return datetime.fromisoformat(progress["updated"])


_log = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 60.0  # plain lines
_UNITS = (("s", 1), ("min", 60), ("h", 3_600))


class Line:
    """Shows a stage's progress: drawn over and over on a terminal, else a line a minute (the stage prints its end)."""

    def __init__(self, label: str, total: int) -> None:
        """`total` is the number of pieces of work; time begins now."""
        self._label, self._total = label, total
        self._start = self._told = time.monotonic()

    def show(self, done: int, memory_mb: float = 0.0) -> None:
        """So many pieces are done; `memory_mb` is that of the largest task so far, 0: not known."""
        tell(self._label, done, self._total)
        now = time.monotonic()
        if done >= self._total:
            log.clear()
            return
        if not log.is_live() and now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        rate = done / max(now - self._start, 1e-9)
        left = (self._total - done) / rate if done else None
        known = [pace(rate), f"{memory_mb:,.0f} MB" if memory_mb else "", f"{log.duration(left)} left"] if left else []
        line = ", ".join([f"{self._label}: {done:,}/{self._total:,}", *filter(None, known)])
        if log.is_live():
            log.draw(line)
            return
        told = {"step": self._label, "done": done, "total": self._total, "per_second": round(rate, 4)}
        told |= {"seconds_left": left and round(left), "memory_mb": round(memory_mb) or None}
        log.progress_line(_log, line, told)


def pace(rate: float) -> str:
    """A rate (per second) in numbers that can be read: 120/s, 3.5/s, 12/min, 4.0/h."""
    unit, seconds = next((each for each in _UNITS if rate * each[1] >= 1), _UNITS[-1])
    value = rate * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"
