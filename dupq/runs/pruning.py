"""Removing what nothing needs: the work of finished runs, runs that retention gives up, and what trainings left."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from dupq import storage
from dupq.errors import DupqError
from dupq.runs import inventory
from dupq.runs.inventory import DAMAGED, Keep, KnownRun, State, line_of, removable, size_of
from dupq.runs.layout import RunLayout
from dupq.runs.records import Config
from dupq.storage import read_whole

_log = logging.getLogger(__name__)


def needed_later(run: str) -> frozenset[str]:
    """The files and folders of the work of a finished run that are still read.

    By a later run with --previous: the texts, the lists, a teacher's vectors, and what these were made by. By
    `Run.at`: the calibration and the rarities. By `Run.similar` and look-ups with datasketch: the
    signatures.
    """
    files = RunLayout(run)
    neighbours = files.neighbours
    texts = (files.texts, files.contents, files.texts_made_as, files.encoding.made_as)
    lists = (neighbours.request, neighbours.nearest)
    others = (files.calibration, files.rarities, files.signatures)
    return frozenset((*texts, *lists, *files.teacher, *others))


def tidy(run: str, really: bool = True) -> int:
    """Remove what nothing needs of the work of a finished run; returns its bytes. Without `really`, count only."""
    return inventory.clear(storage.join(run, "work"), needed_later(run), really)


def tidy_at_end(run: str, really: bool = True) -> int:
    """As `tidy`; a failure is only told: the run is whole, and the next attempt or `dupq prune` tidies again."""
    try:
        return tidy(run, really)
    except DupqError as error:
        _log.warning(f"{run}: what is left of the work could not be listed or removed ({error})")
        return 0


def prune(output: str, encoders: Sequence[str], keep: Keep, now: datetime, is_dry: bool) -> Iterator[str]:
    """Remove runs below `output` that `keep` lets go, and what is left over; a line for each.

    A line too for each damaged run, which is left alone. Raises DupqError, before anything is removed, if there is no
    run or no encoder.
    """
    runs = inventory.known_runs(output, now)
    if not runs:
        raise DupqError(f"{output}: no runs here; give the --output of dupq dedup")
    leftovers = {encoder: inventory.encoder_leftovers(encoder, now) for encoder in encoders}
    verb, freed = ("would remove" if is_dry else "removed"), 0
    going = removable(runs, keep, now)
    for run in going:
        if is_dry or _remove(output, run, now):
            freed += run.size
            yield f"{verb}  {line_of(run, now)}"
    for run in runs:
        if run.state is State.DAMAGED:
            yield f"left alone  {line_of(run, now)}  {DAMAGED}"
        if run.is_whole and run not in going and (size := _tidy(output, run, now, is_dry)):
            freed += size
            yield f"{verb}  {run.run_id}  {size_of(size)} of its work"
    for encoder, trainings in leftovers.items():
        for training in trainings:
            if is_dry or _remove(storage.join(encoder, "work"), training, now):
                freed += training.size
                yield f"{verb}  {line_of(training, now)}  a training for {encoder}"
        for folder, size in inventory.teacher_leftovers(encoder, trainings, now).items():
            if not is_dry:
                storage.delete_folder(folder)
            freed += size
            yield f"{verb}  {size_of(size)} that a teacher encoded for {encoder}"
    yield f"{verb}  {size_of(freed)} in all; {len(runs) - len(going)} of {len(runs)} runs are kept"


def _remove(folder: str, run: KnownRun, now: datetime) -> bool:
    """Remove a run, unless something happened to it since it was looked at."""
    if not _is_as_it_was(folder, run, now):
        return False
    inventory.remove(storage.join(folder, run.run_id))
    return True


def _tidy(output: str, run: KnownRun, now: datetime, is_dry: bool) -> int:
    """Remove the work of a finished run; returns the bytes.

    Not of one that was made to keep it, and not if something happened to it since it was looked at: it may be at work.
    """
    place = storage.join(output, run.run_id)
    config = read_whole(storage.join(place, "config.json"), Config) or {}
    if config.get("run", {}).get("keep_work") or not _is_as_it_was(output, run, now):
        return 0
    return tidy(place, really=not is_dry)


def _is_as_it_was(folder: str, run: KnownRun, now: datetime) -> bool:
    return inventory.known_run(folder, run.run_id, now) == run
