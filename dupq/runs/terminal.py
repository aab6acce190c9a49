"""The line at the bottom of a terminal that is drawn over and over, and colours. Nothing here is called without one.

Rich draws it. It is taken away before any other line is printed, so that both are whole.
"""

import os
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

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
