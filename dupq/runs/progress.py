"""How far a run is, for operators: `progress.json` in its folder, and lines that are shown and kept in `run.log` there.

While a stage works, a thread writes both every few seconds, also if nothing new is done: so a reader knows that the job
is alive. `tell` changes memory only. A file that cannot be written never fails the run.

All of dupq logs to children of the logger `dupq`. A line is shown as its message alone, an error behind `error: `; as
JSON it has the time (UTC), the level, the stage, the run, and what else the record tells.
"""

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Literal, cast

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.storage import Time, read_or_none
from dupq.system import repeating

SECONDS_BETWEEN = 10.0
ALIVE = timedelta(minutes=5)  # since it was written last: then its job may still be at work; clocks differ a little
_NAME, _LOG = "progress.json", "run.log"


class Progress(TypedDict):
    """progress.json. Times are UTC, in ISO 8601."""

    state: str  # running, failed, cut off, gate missed, finished
    stage: str
    step: str  # of the stage
    done: int  # tasks of the step
    total: int  # 0: not known yet
    since: Time  # when the stage began
    began: Time  # when this attempt at the run began
    inputs: dict[str, Any]  # as in manifest.json
    updated: Time


class _Current:
    """The run that this process is at work on."""

    uri: str | None = None
    progress: Progress
    run: str | None = None  # its id, in lines
    stage: str | None = None


current = _Current()
_writing = threading.Lock()


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
        current.progress["state"] = "failed"
        raise
    finally:
        _write()


def _enter(run: str, stage: str, inputs: Mapping[str, object]) -> None:
    is_new, now = run != current.uri, _now()
    began = now if is_new else current.progress["began"]
    step = {"state": "running", "stage": stage, "step": "", "done": 0, "total": 0, "inputs": dict(inputs)}
    current.progress = cast(Progress, {**step, "since": now, "began": began, "updated": now})
    current.uri, current.run, current.stage = run, storage.name(run), stage
    if is_new:
        _end_kept()
        with contextlib.suppress(DupqError):
            _logger.addHandler(_Kept(storage.join(run, _LOG)))
        _write()


def _write() -> None:
    with _writing, contextlib.suppress(DupqError, OSError):
        current.progress["updated"] = _now()
        storage.write_json(storage.join(str(current.uri), _NAME), current.progress)
        write_kept()


def tell(step: str, done: int, total: int) -> None:
    """Note that `done` of `total` tasks of a step are done; without effect outside a stage. Nothing is written yet."""
    if current.uri is not None:
        current.progress.update({"step": step, "done": done, "total": total})


def end(run: str, state: str) -> None:
    """Note that the run at `run` has ended so; without effect if this process has done nothing for it."""
    if run == current.uri:
        current.progress["state"] = state
        _write()
        current.uri = current.stage = None


def end_as(state: str) -> None:
    """Note that the run that this process is at work on, if there is one, has ended so."""
    if current.uri is not None:
        end(current.uri, state)


def leave() -> None:
    """Take the lines that follow for those of no run, until the next one begins."""
    _end_kept()
    current.run = current.stage = None


def read_progress(run: str) -> Progress | None:
    """How far the run at `run` is; None if nothing, or nothing readable, tells it."""
    return read_or_none(storage.join(run, _NAME), Progress)


def is_alive(progress: Progress, now: datetime) -> bool:
    """Whether the job that wrote this is at work, as far as one can see."""
    return progress["state"] == "running" and now - time_of(progress) < ALIVE


def time_of(progress: Progress) -> datetime:
    """When it was written."""
    return datetime.fromisoformat(progress["updated"])


# A line at the bottom of a terminal that is drawn over and over.

_RED, _YELLOW, _PLAIN = "\033[31m", "\033[33m", "\033[0m"
_START_OF_LINE = "\r\033[2K"  # of a line that is empty from now on
_drawing = threading.Lock()
_is_drawn = False


def _is_terminal(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _draw(line: str) -> None:
    """Draw a line over what was drawn there before; an empty one takes it away."""
    global _is_drawn
    with _drawing:
        if line or _is_drawn:
            shown = line[: shutil.get_terminal_size().columns - 1]
            print(_START_OF_LINE + shown, end="", file=sys.stderr, flush=True)
        _is_drawn = bool(line)


def clear() -> None:
    """Take the drawn line away, if there is one, so that the next line is printed whole."""
    _draw("")


def duration(seconds: float) -> str:
    """A time: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


Kind = Literal["plain", "json"]
_logger = logging.getLogger("dupq")


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
        trace = f"{self.formatException(record.exc_info)}\n" if record.exc_info else ""
        return f"{trace}{prefix}{record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: Mapping[str, object] = getattr(record, "fields", {})
        line = {
            **told,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "run": current.run,
            "stage": current.stage,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Shown(logging.Handler):
    """Shows results on stdout; errors, tracebacks and progress on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        is_error = record.levelno >= logging.ERROR
        is_aside = is_error or record.exc_info or getattr(record, "is_progress", False)
        stream, text = sys.stderr if is_aside else sys.stdout, self.format(record)
        is_plain = isinstance(self.formatter, _Plain) and record.levelno >= logging.WARNING and not record.exc_info
        if is_plain and _is_terminal(stream) and not os.environ.get("NO_COLOR"):
            kind, colon, rest = text.partition(": ")
            text = f"{_RED if is_error else _YELLOW}{kind}{colon}{_PLAIN}{rest}"
        clear()
        print(text, file=stream, flush=True)


class _Kept(logging.Handler):
    """Keeps the lines of a run; `write` writes all of them, after those of earlier attempts."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.setFormatter(_Json())
        self._uri = uri
        self._content = storage.read_bytes(uri) if storage.exists(uri) else b""
        self._written = len(self._content)  # bytes

    def emit(self, record: logging.LogRecord) -> None:
        self._content += self.format(record).encode() + b"\n"

    def write(self) -> None:
        content = self._content  # a line that comes now is written the next time
        if len(content) > self._written:
            storage.write_bytes(self._uri, content)
            self._written = len(content)


_shown = _Shown()
_shown.setFormatter(_Plain())
_logger.addHandler(_shown)
_logger.setLevel(logging.INFO)
_logger.propagate = False


def show_as(kind: Kind) -> None:
    """Show lines as text or as JSON from now on."""
    _shown.setFormatter(_Json() if kind == "json" else _Plain())


def progress_line(logger: logging.Logger, message: str, told: Mapping[str, object] | None = None) -> None:
    """A line that says how far something is; as JSON with `told` beside it."""
    logger.info(message, extra={"is_progress": True, "fields": told or {}})


def write_kept() -> None:
    """Write the run.log of the run that this process is at work on, if there are new lines. Raises DupqError."""
    for handler in _logger.handlers:
        if isinstance(handler, _Kept):
            handler.write()


def _end_kept() -> None:
    """Keep no more lines; a log that cannot be written must not stop the next run's."""
    with contextlib.suppress(DupqError):
        write_kept()
    for handler in [handler for handler in _logger.handlers if isinstance(handler, _Kept)]:
        _logger.removeHandler(handler)


_log = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 60.0  # plain lines
_UNITS = (("s", 1), ("min", 60), ("h", 3_600))


class Line:
    """Shows a stage's progress: drawn over and over on a terminal, else a line a minute (the stage prints its end)."""

    def __init__(self, label: str, total: int) -> None:
        """`total` is the number of tasks; time begins now."""
        self._label, self._total = label, total
        self._start = self._told = time.monotonic()

    def show(self, done: int, memory_mb: float = 0.0) -> None:
        """Show how many tasks are done; `memory_mb` is that of the largest one so far, 0: not known."""
        tell(self._label, done, self._total)
        now = time.monotonic()
        is_live = isinstance(_shown.formatter, _Plain) and _is_terminal(sys.stderr)
        if done >= self._total:
            clear()
            return
        if not is_live and now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        rate = done / max(now - self._start, 1e-9)
        left = (self._total - done) / rate if done else None
        known = [pace(rate), f"{memory_mb:,.0f} MB" if memory_mb else "", f"{duration(left)} left"] if left else []
        line = ", ".join([f"{self._label}: {done:,}/{self._total:,}", *filter(None, known)])
        if is_live:
            _draw(line)
            return
        told = {"step": self._label, "done": done, "total": self._total, "per_second": round(rate, 4)}
        told |= {"seconds_left": left and round(left), "memory_mb": round(memory_mb) or None}
        progress_line(_log, line, told)


def pace(rate: float) -> str:
    """A rate (per second) in numbers that can be read: 120/s, 3.5/s, 12/min, 4.0/h."""
    unit, seconds = next((each for each in _UNITS if rate * each[1] >= 1), _UNITS[-1])
    value = rate * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"
