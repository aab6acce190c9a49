"""Printing the progress of ingest: one live line on a terminal, else a line every now and then."""

import logging
import sys
import threading
import time

from dupq.runs import log

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
        if self._is_live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """What there is to say after `seconds`."""
        share = min(1.0, self._read / max(1, self._total))
        left = f"{_duration(seconds / share - seconds)} left" if share else "time left unknown"
        return (
            f"ingest: {_size(self._read)} of {_size(self._total)} ({share:.0%}), {self._rows:,} rows, "
            f"{self._rows / max(seconds, 1e-9):,.0f} rows/s, {self._rejects:,} rejects, {left}"
        )

    def _print(self, line: str) -> None:
        if self._is_live:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            log.progress_line(_log, line)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
