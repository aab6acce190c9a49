"""Printing the progress of training: each epoch as it ends, and on a terminal the running one."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dupq import storage
from dupq.report import charts
from dupq.runs import log
from dupq.system import repeating

if TYPE_CHECKING:
    from dupq.training.checkpoints import Epoch
    from dupq.training.loop import Losses

_log = logging.getLogger(__name__)
POLL_SECONDS = 2.0
PROGRESS = "epoch.json"  # of a training: how far the running epoch is


@contextlib.contextmanager
def shown(curve: str, progress: str) -> Iterator[None]:
    """Print each epoch as it ends, and on a terminal how far the next one is.

    The workers may be on other machines, but they report through files: `curve` and `progress` are their URIs.
    """
    told = _epochs_before(curve)

    def follow() -> None:
        nonlocal told
        told = _print_epochs(curve, told)
        _print_progress(progress)

    storage.delete(progress)
    try:
        with repeating(follow, POLL_SECONDS):
            yield
    finally:
        _print_epochs(curve, told)
        log.clear()
        storage.delete(progress)


def watch(
    progress: str | None, epoch: int, epochs: int, steps: int, done: int
) -> Callable[[int, Callable[[], "Losses"]], None]:
    """Return what a worker calls after each step: every now and then it writes to the file `progress` how far it is.

    Of the epoch's `steps`, `done` come before those that are counted. None: nobody looks.
    """
    start = told = time.monotonic()

    def tell(step: int, losses: Callable[[], "Losses"]) -> None:
        nonlocal told
        now = time.monotonic()
        if progress is None or now - told < POLL_SECONDS:
            return
        told = now
        left = max(0, steps - done - step)
        row = {"epoch": epoch, "epochs": epochs, "step": done + step, "steps": steps, "loss": losses().mean}
        storage.write_json(progress, {**row, "seconds_left": (now - start) / step * left})

    return tell


def _epochs_before(uri: str) -> int:
    """The epochs of an earlier attempt."""
    done = len(storage.read_json(uri)) if storage.exists(uri) else 0
    if done:
        _log.info(f"  going on after epoch {done}")
    return done


def _print_epochs(uri: str, told: int) -> int:
    """Print the epochs after the first `told`; returns how many were told by then."""
    curve = storage.read_json(uri) if storage.exists(uri) else []
    for row in curve[told:]:
        learned = f"loss {row['loss']:.4f}" if row["loss"] else "nothing trained"  # no bodies, say, or no weights
        _log.info(f"  epoch {row['epoch']:3}  {learned}{_measured(row, curve)}", extra={"told": row})
    return max(told, len(curve))  # it is shorter where workers begin again at a checkpoint


def _measured(row: "Epoch", curve: list["Epoch"]) -> str:
    from dupq.training.checkpoints import measured, measured_by

    found, name = measured(row), measured_by(row)
    if found is None or name is None:
        return ""
    before = [measured(other) or 0.0 for other in curve if other["epoch"] < row["epoch"]]
    mark = "  best so far" if found > max(before, default=-1.0) else ""
    return f"  {charts.NAMES[name]} {found:.3f}{mark}"


def _print_progress(uri: str) -> None:
    if log.is_live() and storage.exists(uri):
        log.draw(progress_line(storage.read_json(uri)))


def progress_line(progress: dict[str, float]) -> str:
    """The progress of the running epoch, in one line."""
    return (
        f"fit: epoch {progress['epoch']} of {progress['epochs']}, step {progress['step']:,} of "
        f"{progress['steps']:,}, loss {progress['loss']:.4f}, {progress['seconds_left']:.0f} s left in it"
    )
