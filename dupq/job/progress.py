"""The progress of a run, for operators: `progress.json` in its folder, and log lines that are shown and kept in
`run.log`.

While a stage works, a thread writes both files every few seconds, even if nothing has changed, so that a reader sees
that the job is alive. `tell` changes memory only. A file that cannot be written never fails the run.

On a terminal one line is drawn again and again, from `drawn` to its end: what the job does, the number of that phase,
and the time. The lines of stages are then left out there.

All of dupq logs to children of the logger `dupq`. A plain line is the message alone, with the prefix `error: ` for
errors. A JSON line has the time (UTC), the level, the stage, the run, and the record's `fields`.
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
from typing import Any, Literal, cast

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.storage import Time, read_or_none
from dupq.system import repeating

SECONDS_BETWEEN = 10.0
ALIVE = timedelta(minutes=5)  # since the last write: the job may still be at work, as clocks differ a little
_NAME, _LOG = "progress.json", "run.log"
_drawing = threading.Lock()
_is_drawn = False
_logger = logging.getLogger("dupq")
_logger.propagate = False


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
    """The run that this process works on."""

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
    """Keep progress.json and run.log of `run` (URI) up to date during a stage."""
    is_new, now = run != current.uri, _now()
    began = now if is_new else current.progress["began"]
    step = {"state": "running", "stage": stage, "step": "", "done": 0, "total": 0, "inputs": dict(inputs)}
    current.progress = cast(Progress, {**step, "since": now, "began": began, "updated": now})
    current.uri, current.run, current.stage = run, storage.name(run), stage
    if is_new:
        _close_run_log()
        with contextlib.suppress(DupqError):
            _logger.addHandler(_RunLog(storage.join(run, _LOG)))
        _write()
    try:
        with repeating(_write, SECONDS_BETWEEN):
            yield
    except BaseException:
        current.progress["state"] = "failed"
        raise
    finally:
        _write()


def _write() -> None:
    with _writing, contextlib.suppress(DupqError, OSError):
        current.progress["updated"] = _now()
        storage.write_json(storage.join(str(current.uri), _NAME), current.progress)
        write_run_log()


def tell(step: str, done: int, total: int) -> None:
    """Record in memory that `done` of `total` tasks of a step are done. No effect outside a stage."""
    if current.uri is not None:
        current.progress.update({"step": step, "done": done, "total": total})


def end(run: str | None, state: str) -> None:
    """Record that `run` (URI) ended in `state`. No effect if this process does not work on it."""
    if run is not None and run == current.uri:
        current.progress["state"] = state
        _write()
        current.uri = current.stage = None


def leave() -> None:
    """Detach the lines that follow from the run, until the next one begins."""
    _close_run_log()
    current.run = current.stage = None


def read_progress(run: str) -> Progress | None:
    """Return the progress of `run` (URI); None if progress.json is missing or damaged."""
    return read_or_none(storage.join(run, _NAME), Progress)


def is_alive(progress: Progress, now: datetime) -> bool:
    """Return whether the job that wrote this seems to be at work."""
    return progress["state"] == "running" and now - datetime.fromisoformat(progress["updated"]) < ALIVE


def _draw(line: str) -> None:
    """Draw a line over the one drawn before; an empty one removes it."""
    global _is_drawn
    with _drawing:
        if line or _is_drawn:
            shown = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r\033[2K{shown}", end="", file=sys.stderr, flush=True)  # which clears the line first
        _is_drawn = bool(line)


def clear() -> None:
    """Remove the drawn line, if any, so that the next line is printed whole."""
    _draw("")


class _Work:
    """What a job does now, for the line that is drawn on a terminal."""

    def __init__(self, phases: int, quiet: tuple[str, ...]) -> None:
        """Begin before the first of so many phases."""
        self.phases, self.quiet, self.number = phases, quiet, 0
        self.what, self.detail, self.began = "starting", "", time.monotonic()

    def draw(self) -> None:
        """Draw the line, unless the work has ended."""
        if _work is not self:
            return
        phase = f"  [{self.number} of {self.phases}]" if self.phases > 1 and self.number else ""
        _draw(f"{self.what} …{phase}  {duration(time.monotonic() - self.began)}{self.detail}")


_work: _Work | None = None


@contextlib.contextmanager
def drawn(phases: int = 1, quiet: tuple[str, ...] = ()) -> Iterator[None]:
    """Draw on a terminal what a job of so many `phase`s does, and leave out what the loggers `quiet` say there."""
    global _work
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")  # `ray submit` by cron: ""
    if not (isinstance(_shown.formatter, _Plain) and is_terminal):
        yield
        return
    _work = _Work(phases, quiet)
    try:
        with repeating(_work.draw, _SECONDS_DRAWN):
            yield
    finally:
        stop_drawing()


def stop_drawing() -> None:
    """Remove the drawn line for good."""
    global _work
    _work = None
    clear()


def phase(what: str) -> None:
    """Say that the job begins another phase, if that is drawn."""
    if _work:
        _work.what, _work.number, _work.detail = what, _work.number + 1, ""


def duration(seconds: float) -> str:
    """Return a time such as 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
        trace = f"{self.formatException(record.exc_info)}\n" if record.exc_info else ""
        return f"{trace}{prefix}{record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        line = {
            **fields,
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
    """Prints results to stdout, and errors, tracebacks and progress to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        is_progress = getattr(record, "is_progress", False)
        if _work and record.levelno < logging.WARNING and record.name.startswith(_work.quiet) and not is_progress:
            return
        is_aside = record.levelno >= logging.ERROR or record.exc_info or is_progress
        stream, text = sys.stderr if is_aside else sys.stdout, self.format(record)
        clear()
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:  # its reader has ended, as `head` does, and Python's exit would write again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError:  # its disk is full: that must not fail the run
            pass


class _RunLog(logging.Handler):
    """Collects the lines of a run; `write` rewrites run.log with all of them, after those of earlier attempts."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.setFormatter(_Json())
        self._uri = uri
        self._content = storage.read_bytes(uri) if storage.exists(uri) else b""
        self._written = len(self._content)  # bytes

    def emit(self, record: logging.LogRecord) -> None:
        self._content += self.format(record).encode() + b"\n"

    def write(self) -> None:
        content = self._content  # a line that arrives now is written next time
        if len(content) > self._written:
            storage.write_bytes(self._uri, content)
            self._written = len(content)


_shown = _Shown()
_shown.setFormatter(_Plain())
_logger.addHandler(_shown)
_logger.setLevel(logging.INFO)


def show_as(kind: Literal["plain", "json"]) -> None:
    """Show lines as text or as JSON from now on."""
    _shown.setFormatter(_Json() if kind == "json" else _Plain())


def progress_line(logger: logging.Logger, message: str, fields: Mapping[str, object] | None = None) -> None:
    """Log a line of progress, with `fields` in its JSON form."""
    logger.info(message, extra={"is_progress": True, "fields": fields or {}})


def write_run_log() -> None:
    """Write the run.log of the current run if there are new lines. Raises DupqError."""
    for handler in _logger.handlers:
        if isinstance(handler, _RunLog):
            handler.write()


def _close_run_log() -> None:
    """Write run.log and stop collecting lines; a failure must not stop the next run."""
    for handler in [handler for handler in _logger.handlers if isinstance(handler, _RunLog)]:
        with contextlib.suppress(DupqError):
            handler.write()
        _logger.removeHandler(handler)


_log = logging.getLogger(__name__)
SECONDS_BETWEEN_LINES = 60.0  # plain lines
_SECONDS_DRAWN = 0.5  # between two drawn lines
_LONG_SECONDS = 10.0  # left of a step, from which on the drawn line says how far it is
_UNITS = (("s", 1), ("min", 60), ("h", 3_600))


class Line:
    """Shows a step's progress: in the drawn line if there is one, else a line per minute."""

    def __init__(self, label: str, total: int, is_shown: bool = True) -> None:
        """Start the clock for `total` tasks."""
        self._label, self._total, self._is_shown = label, total, is_shown
        self._start = self._last_shown = time.monotonic()

    def show(self, done: int, memory_mb: float = 0.0) -> None:
        """Show how many tasks are done; `memory_mb` is the peak of the largest one so far, 0 if unknown."""
        if not self._is_shown:
            return
        tell(self._label, done, self._total)
        now = time.monotonic()
        rate = done / max(now - self._start, 1e-9)
        left = (self._total - done) / rate if done else None
        if _work:
            is_long = left is not None and left >= _LONG_SECONDS
            _work.detail = f"  {done:,} of {self._total:,}, {duration(left or 0)} left" if is_long else ""
            return
        if done >= self._total or now - self._last_shown < SECONDS_BETWEEN_LINES:
            return
        self._last_shown = now
        details = [pace(rate), f"{memory_mb:,.0f} MB" if memory_mb else "", f"{duration(left)} left"] if left else []
        line = ", ".join([f"{self._label}: {done:,}/{self._total:,}", *filter(None, details)])
        fields = {"step": self._label, "done": done, "total": self._total, "per_second": round(rate, 4)}
        fields |= {"seconds_left": left and round(left), "memory_mb": round(memory_mb) or None}
        progress_line(_log, line, fields)


def pace(rate: float) -> str:
    """Return a rate (per second) in a readable unit: 120/s, 3.5/s, 12/min, 4.0/h."""
    unit, seconds = next((entry for entry in _UNITS if rate * entry[1] >= 1), _UNITS[-1])
    value = rate * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"
