"""How far a step is: a live line on a terminal; elsewhere a line every now and then, as an object with `--log json`."""

import logging
import time

from dupq.runs import log, terminal
from dupq.runs.terminal import Drawn

_log = logging.getLogger(__name__)
SECONDS_BETWEEN = 60.0  # plain lines
_UNITS = (("s", 1), ("min", 60), ("h", 3_600))


class Line:
    """Tells of the pieces of one step after another."""

    def __init__(self, label: str, seconds_between: float = SECONDS_BETWEEN) -> None:
        """`label` is the stage; time begins now."""
        self._label, self._seconds = label, seconds_between
        self._start = self._told = time.monotonic()

    def show(self, done: int, total: int, memory_mb: float = 0.0, step: str = "") -> None:
        """So many pieces are done; `memory_mb` is that of the largest task so far, 0: not known."""
        now = time.monotonic()
        rate = done / max(now - self._start, 1e-9)
        left = (total - done) / rate if done else None
        counted = f"{done:,}/{total:,}{f' {step}' if step else ''}"
        said = ", ".join([counted, *([pace(rate)] if done else []), *([f"{memory_mb:,.0f} MB"] if memory_mb else [])])
        if log.is_live():
            share = done / total if total else None
            if done < total:
                terminal.draw(Drawn(self._label, share, said, left))
            else:
                terminal.clear()
        elif now - self._told >= self._seconds and done < total:
            self._told = now
            ending = "" if left is None else f", {left:.0f} s left"
            told = {"step": step or self._label, "done": done, "total": total, "per_second": round(rate, 4)}
            told |= {"seconds_left": left and round(left), "memory_mb": round(memory_mb) or None}
            log.progress_line(_log, f"{self._label}: {said}{ending}", told)

    def end(self) -> None:
        """Take the live line away."""
        terminal.clear()


def pace(rate: float) -> str:
    """A rate (per second) in numbers that can be read: 120/s, 3.5/s, 12/min, 4.0/h."""
    unit, seconds = next((each for each in _UNITS if rate * each[1] >= 1), _UNITS[-1])
    value = rate * seconds
    return f"{value:,.0f}/{unit}" if value >= 10 else f"{value:.1f}/{unit}"
