"""Lines for operators: shown as text or as JSON, and kept as JSON in `run.log` beside the run.

All of dupq logs to children of the logger `dupq`. With the default, a line is shown as its message alone, an error
behind `error: `; as JSON it has the time (UTC), the level, the stage, the run, and what else the record tells.
"""

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Literal

from dupq import storage
from dupq.errors import DupqError

_RED, _YELLOW, _PLAIN = "\033[31m", "\033[33m", "\033[0m"
_START_OF_LINE = "\r\033[2K"  # of a line that is empty from now on
_lock = threading.Lock()
_is_drawn = False


def is_one(stream: IO[str]) -> bool:
    """Whether a stream is a terminal that a line can be drawn over on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def draw(line: str) -> None:
    """Draw how far something is at the bottom of the terminal, over what was drawn there before."""
    _show(_START_OF_LINE + line[: shutil.get_terminal_size().columns - 1], is_drawn=True)


def clear() -> None:
    """Take the drawn line away, if there is one, so that the next line is printed whole."""
    if _is_drawn:
        _show(_START_OF_LINE, is_drawn=False)


def _show(text: str, is_drawn: bool) -> None:
    global _is_drawn
    with _lock:
        print(text, end="", file=sys.stderr, flush=True)
        _is_drawn = is_drawn


def coloured(text: str, is_error: bool, stream: IO[str]) -> str:
    """A line that begins with what it is, `error: …` or `warning: …`, with that coloured, where that is wanted."""
    if os.environ.get("NO_COLOR") or not is_one(stream):
        return text
    kind, colon, rest = text.partition(": ")
    return f"{_RED if is_error else _YELLOW}{kind}{colon}{_PLAIN}{rest}"


def duration(seconds: float) -> str:
    """A time: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


NAME = "run.log"
Kind = Literal["plain", "json"]
_logger = logging.getLogger("dupq")


class _Place:
    """What this process is at work on."""

    run: str | None = None  # its id
    stage: str | None = None


place = _Place()


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = {logging.WARNING: "warning: ", logging.ERROR: "error: "}.get(record.levelno, "")
        trace = f"{self.formatException(record.exc_info)}\n" if record.exc_info else ""
        return f"{trace}{prefix}{record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: Mapping[str, object] = getattr(record, "told", {})
        line = {
            **told,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "run": place.run,
            "stage": place.stage,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Shown(logging.Handler):
    """Shows results on stdout; errors, tracebacks and progress on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        is_aside = record.levelno >= logging.ERROR or record.exc_info or getattr(record, "is_progress", False)
        stream, text = sys.stderr if is_aside else sys.stdout, self.format(record)
        if isinstance(self.formatter, _Plain) and record.levelno >= logging.WARNING and not record.exc_info:
            text = coloured(text, record.levelno >= logging.ERROR, stream)
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
_kept: _Kept | None = None


def show_as(kind: Kind) -> None:
    """Show lines as text or as JSON from now on."""
    _shown.setFormatter(_Json() if kind == "json" else _Plain())


def is_live() -> bool:
    """Whether a line that is drawn over and over is wanted: only on a terminal."""
    return isinstance(_shown.formatter, _Plain) and is_one(sys.stderr)


def progress_line(logger: logging.Logger, message: str, told: Mapping[str, object] | None = None) -> None:
    """A line that says how far something is; as JSON with `told` beside it."""
    logger.info(message, extra={"is_progress": True, "told": told or {}})


def keep(uri: str) -> None:
    """Keep the lines that follow in the file `uri`, and no longer in the one before. Raises DupqError."""
    global _kept
    _end_kept()
    _kept = _Kept(uri)
    _logger.addHandler(_kept)


def leave() -> None:
    """What follows is of no run, until the next one begins."""
    _end_kept()
    place.run = place.stage = None


def _end_kept() -> None:
    """Keep no more lines; a log that cannot be written must not stop the next run's."""
    global _kept
    with contextlib.suppress(DupqError):
        write_kept()
    if _kept is not None:
        _logger.removeHandler(_kept)
    _kept = None


def write_kept() -> None:
    """Write the file that lines are kept in, if there is one and there are new lines. Raises DupqError."""
    if _kept is not None:
        _kept.write()
