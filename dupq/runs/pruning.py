"""Removing what nothing needs: runs, the work of finished ones, and what trainings left."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from dupq import storage
from dupq.errors import DupqError
from dupq.runs import inventory
from dupq.runs.listing import line_of, size_of
from dupq.runs.retention import Keep, KnownRun, removable
from dupq.runs.tidying import tidy


def prune(output: str, encoders: Sequence[str], keep: Keep, now: datetime, is_dry: bool) -> Iterator[str]:
    """Remove runs below `output` that `keep` lets go, and what is left over; a line for each.

    Raises DupqError if there is no run.
    """
    runs = inventory.known_runs(output, now)
    if not runs:
        raise DupqError(f"{output}: no runs here; give the --output of jobs/dedup.py")
    verb, freed = ("would remove" if is_dry else "removed"), 0
    going = removable(runs, keep, now)
    for run in going:
        if is_dry or _remove(output, run, now):
            freed += run.size
            yield f"{verb}  {line_of(run, now)}"
    for run in runs:
        if run.is_whole and run not in going and (size := _tidy(storage.join(output, run.run_id), is_dry)):
            freed += size
            yield f"{verb}  {run.run_id}  {size_of(size)} of its work"
    for encoder in encoders:
        for training in inventory.encoder_leftovers(encoder, now):
            if is_dry or _remove(storage.join(encoder, "work"), training, now):
                freed += training.size
                yield f"{verb}  {line_of(training, now)}  a training for {encoder}"
    yield f"{verb}  {size_of(freed)} in all; {len(runs) - len(going)} of {len(runs)} runs are kept"


def _remove(folder: str, run: KnownRun, now: datetime) -> bool:
    """Remove a run, unless something happened to it since it was looked at."""
    if inventory.known_run(folder, run.run_id, now) != run:
        return False
    inventory.remove(storage.join(folder, run.run_id))
    return True


def _tidy(run: str, is_dry: bool) -> int:
    """Remove the work of a finished run, unless it was made to keep it; returns the bytes."""
    settings = inventory.json_of(storage.join(run, "config.json"))
    if settings.get("run", {}).get("keep_work"):
        return 0
    return tidy(run, really=not is_dry)
