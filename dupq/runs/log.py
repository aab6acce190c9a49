"""Lines for operators: shown as text or as JSON, and kept as JSON in `run.log` beside the run.

All of dupq logs to children of the logger `dupq`. With the default, a line is shown as its message alone, an error
behind `error: `; as JSON it has the time (UTC), the level, the stage, the run, and what else the record tells.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from dupq import storage
from dupq.errors import DupqError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

# The line at the bottom of a terminal that is drawn over and over, and colours. Nothing here is called without one.
#
# Rich draws it. It is taken away before any other line is printed, so that both are whole.

_RED, _YELLOW, _PLAIN = "\033[31m", "\033[33m", "\033[0m"
_REFRESHES = 4  # a second
_SAID = 0.5  # seconds that are left
_lock = threading.RLock()
_live: "Live | None" = None


class Drawn(NamedTuple):
    """What the line says."""

    label: str
    share: float | None  # of the work that is done; None: not known
    said: str
    seconds_left: float | None = None  # from now on; it is counted down until the next is drawn


class _Line:
    """What rich draws, each time as time has gone on."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn, self._since = drawn, time.monotonic()

    def __rich__(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        label, share, said, left = self._drawn
        left = (left or 0.0) - (time.monotonic() - self._since)  # none is said where it took longer than was thought
        row = Table.grid(padding=(0, 1))
        for name in ("label", "bar", "said"):
            row.add_column(no_wrap=True, overflow="ellipsis", ratio=1 if name == "said" else None)
        bar = ProgressBar(total=1, completed=share, width=24, complete_style="green") if share is not None else Text("")
        row.add_row(Text(label, "bold"), bar, Text(said + (f", {duration(left)} left" if left >= _SAID else "")))
        return row


def is_one(stream: IO[str]) -> bool:
    """Whether a stream is a terminal that a line can be drawn over on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def draw(drawn: Drawn) -> None:
    """Draw the line on stderr, over the one that was there."""
    global _live
    from rich.console import Console
    from rich.live import Live

    with _lock:
        is_new = _live is None
        if _live is None:
            console = Console(file=sys.stderr, force_terminal=True, highlight=False)  # NO_COLOR is heeded by rich
            _live = Live(
                console=console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                refresh_per_second=_REFRESHES,
            )
            _live.start()
        _live.update(_Line(drawn), refresh=is_new)


def clear() -> None:
    """Take the line away, if there is one."""
    global _live
    with _lock:
        if _live is not None:
            _live.stop()
            _live = None


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
