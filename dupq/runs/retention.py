"""Which runs may be removed: a pure function of what is known of them (inventory.py finds that out)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

YOUNG = timedelta(days=1)


class State(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    UNFINISHED = "unfinished"  # cut off; the same job finishes it
    GATE_MISSED = "gate missed"
    FINISHED = "finished"
    LATEST = "latest"  # finished, and latest.json points at it
    DAMAGED = "damaged"  # it was finished, but `_SUCCESS` or what that names is damaged or gone; its job repairs it


class KnownRun(NamedTuple):
    """What is known of a run."""

    run_id: str
    state: State
    touched: datetime  # when it was finished; else when it was last written to
    size: int  # bytes
    previous: str | None  # the id of the run that it builds on
    is_base_unknown: bool = False  # its manifest is damaged, so nobody knows what it builds on

    @property
    def is_whole(self) -> bool:
        """Whether readers may use it."""
        return self.state in (State.FINISHED, State.LATEST)


class Keep(NamedTuple):
    """How many finished runs are kept."""

    newest: int  # at least 1
    monthly: int  # months with finished runs, counted back, of each of which the newest run is kept


def removable(runs: Sequence[KnownRun], keep: Keep, now: datetime) -> list[KnownRun]:
    """The runs that nothing needs, oldest first.

    Kept are the latest run; the newest finished ones and the newest of each month, as `keep` says; runs at work;
    damaged ones, which count as no finished ones; unfinished ones and those that missed a gate for a day, and these
    while no later run has succeeded; and what the latest run and those that are not finished and kept build on. Months
    are those of UTC.
    """
    whole = sorted((run for run in runs if run.is_whole), key=_order, reverse=True)
    kept = {run.run_id for run in whole[: keep.newest]} | _newest_of_months(whole, keep.monthly)
    heads = [run for run in runs if run.state is State.LATEST] or whole[:1]  # where latest.json is lost
    last = max((run.touched for run in heads), default=None)
    heads += [run for run in runs if not run.is_whole and _may_go_on(run, last, now)]
    kept |= {run.run_id for run in heads} | {run.previous for run in heads if run.previous}
    return sorted((run for run in runs if run.run_id not in kept), key=_order)


def _order(run: KnownRun) -> tuple[datetime, str]:
    return run.touched, run.run_id


def _newest_of_months(newest_first: Sequence[KnownRun], months: int) -> set[str]:
    by_month: dict[tuple[int, int], str] = {}
    for run in newest_first:
        by_month.setdefault((run.touched.year, run.touched.month), run.run_id)
    return set(list(by_month.values())[:months])


def _may_go_on(run: KnownRun, last: datetime | None, now: datetime) -> bool:
    """Whether somebody may still want a run that is not whole; `last`: when the latest run was finished."""
    if run.state in (State.RUNNING, State.DAMAGED) or now - run.touched < YOUNG:
        return True
    return run.state is State.GATE_MISSED and (last is None or run.touched > last)
