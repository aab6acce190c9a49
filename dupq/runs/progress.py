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
from typing import Any

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.json_files import Time, read_whole
from dupq.runs import log
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
    _watched.progress = Progress(
        state="running",
        stage=stage,
        step="",
        done=0,
        total=0,
        since=now,
        began=began,
        inputs=dict(inputs),
        updated=now,
    )
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
    """Tells of the pieces of one step after another."""

    def __init__(self, label: str, seconds_between: float = SECONDS_BETWEEN_LINES) -> None:
        """`label` is the stage; time begins now."""
        self._label, self._seconds = label, seconds_between
        self._start = self._told = time.monotonic()

    def show(self, done: int, total: int, memory_mb: float = 0.0, step: str = "") -> None:
        """So many pieces are done; `memory_mb` is that of the largest task so far, 0: not known."""
        now = time.monotonic()
        is_due = done < total and (log.is_live() or now - self._told >= self._seconds)
        if not is_due:
            if done >= total:
                log.clear()
            return
        self._told = now
        rate = done / max(now - self._start, 1e-9)
        left = (total - done) / rate if done else None
        counted = f"{self._label}: {done:,}/{total:,}{f' {step}' if step else ''}"
        known = [pace(rate), f"{memory_mb:,.0f} MB" if memory_mb else "", f"{log.duration(left)} left"] if left else []
        line = ", ".join([counted, *filter(None, known)])
        if log.is_live():
            log.draw(line)
            return
        told = {"step": step or self._label, "done": done, "total": total, "per_second": round(rate, 4)}
        told |= {"seconds_left": left and round(left), "memory_mb": round(memory_mb) or None}
        log.progress_line(_log, line, told)

    def end(self) -> None:
        """Take the live line away."""
        log.clear()


def pace(rate: float) -> str:
    """A rate (per second) in numbers that can be read: 120/s, 3.5/s, 12/min, 4.0/h."""
    unit, seconds = next((each for each in _UNITS if rate * each[1] >= 1), _UNITS[-1])
    value = rate * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"
