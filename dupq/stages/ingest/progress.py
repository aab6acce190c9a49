"""Printing the progress of ingest: one live line on a terminal, else a line every now and then."""

import logging
import threading
import time

from dupq.runs import log, terminal
from dupq.runs.terminal import Drawn, duration

_log = logging.getLogger(__name__)
_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 10.0


class IngestProgress:
    """Counts what was read, from any thread."""

    def __init__(self, total: int) -> None:
        """`total` is the size in bytes of all files, as they are, packed or not."""
        self._total = total
        self._read = self._rows = self._rejects = 0
        self._is_live = log.is_live()
        self._start = self._shown = time.monotonic()
        self._lock = threading.Lock()

    def add(self, read: int, rows: int, rejects: int) -> None:
        """`read` more bytes of files, with so many rows, are done."""
        with self._lock:
            self._read += read
            self._rows += rows
            self._rejects += rejects
            now = time.monotonic()
            if now - self._shown >= (_LIVE_SECONDS if self._is_live else _PLAIN_SECONDS):
                self._shown = now
                self._print(self.line(now - self._start))

    def end(self) -> None:
        """Take the live line away."""
        terminal.clear()

    def line(self, seconds: float) -> str:
        """What there is to say after `seconds`."""
        share = self._share()
        left = f"{duration(seconds / share - seconds)} left" if share else "time left unknown"
        return (
            f"ingest: {_size(self._read)} of {_size(self._total)} ({share:.0%}), {self._rows:,} rows, "
            f"{self._rows / max(seconds, 1e-9):,.0f} rows/s, {self._rejects:,} rejects, {left}"
        )

    def _print(self, line: str) -> None:
        if self._is_live:
            label, _, said = line.partition(": ")
            terminal.draw(Drawn(label, self._share(), said))
        else:
            told = {
                "step": "ingest",
                "done": self._read,
                "total": self._total,
                "rows": self._rows,
                "rejects": self._rejects,
            }
            log.progress_line(_log, line, told)

    def _share(self) -> float:
        return min(1.0, self._read / max(1, self._total))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"
