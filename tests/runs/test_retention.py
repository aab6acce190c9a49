"""Which runs may be removed: rules on runs made up, and what holds for any."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.runs.inventory import YOUNG, Keep, KnownRun, State, removable

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def a_run(name: str, age: timedelta, state: State = State.FINISHED, previous: str | None = None) -> KnownRun:
    return KnownRun(name, state, NOW - age, 1, previous)


def nights(count: int) -> list[KnownRun]:
    """A finished run a night, each built on the one before, the newest last and the latest."""
    runs = [
        a_run(f"night-{age}", age * DAY, previous=f"night-{age + 1}" if age < count - 1 else None)
        for age in reversed(range(count))
    ]
    return [*runs[:-1], runs[-1]._replace(state=State.LATEST)]


def gone(runs: list[KnownRun], newest: int = 7, monthly: int = 0) -> list[str]:
    return [run.run_id for run in removable(runs, Keep(newest, monthly), NOW)]


def test_the_newest_are_kept_and_the_others_removed_oldest_first() -> None:
    assert gone(nights(10), newest=7) == ["night-9", "night-8", "night-7"]


def test_of_each_month_the_newest_is_kept() -> None:
    kept = {run.run_id for run in nights(100)} - set(gone(nights(100), newest=3, monthly=3))
    assert kept == {"night-0", "night-1", "night-2", "night-22", "night-53"}  # 22 November, 31 October, 30 September


def test_months_without_a_run_do_not_count() -> None:
    runs = [a_run("old", 400 * DAY), a_run("older", 800 * DAY), a_run("now", DAY, State.LATEST)]
    assert gone(runs, newest=1, monthly=2) == ["older"]


def test_where_the_pointer_is_lost_the_newest_run_counts_as_the_latest() -> None:
    runs = [run._replace(state=State.FINISHED) for run in nights(5)]
    assert gone(runs, newest=1) == ["night-4", "night-3", "night-2"]


@pytest.mark.parametrize("state", [State.UNFINISHED, State.GATE_MISSED])
def test_a_run_that_is_not_whole_is_kept_for_a_day(state: State) -> None:
    latest = a_run("latest", HOUR, State.LATEST)
    assert gone([a_run("other", YOUNG - HOUR, state), latest]) == []
    assert gone([a_run("other", YOUNG, state), latest]) == ["other"]


def test_a_run_that_missed_a_gate_is_kept_until_a_later_one_succeeds() -> None:
    missed = a_run("missed", 3 * DAY, State.GATE_MISSED)
    assert gone([missed, a_run("before", 4 * DAY, State.LATEST)]) == []
    assert gone([missed, a_run("after", 2 * DAY, State.LATEST)]) == ["missed"]
    assert gone([missed]) == []


def test_what_an_unfinished_run_builds_on_is_kept_while_that_run_is() -> None:
    for age, expected in ((HOUR, []), (2 * DAY, ["base", "unfinished"])):
        runs = [a_run("base", 9 * DAY), *nights(1), a_run("unfinished", age, State.UNFINISHED, "base")]
        assert gone(runs, newest=1) == expected


RUNS = st.builds(
    KnownRun,
    st.uuids().map(str),
    st.sampled_from([state for state in State if state is not State.LATEST]),
    st.integers(0, 800).map(lambda days: NOW - timedelta(days=days)),
    st.integers(0, 10),
    st.none(),
)


@st.composite
def archives(draw: st.DrawFn) -> list[KnownRun]:
    runs = draw(st.lists(RUNS, max_size=25, unique_by=lambda run: run.run_id))
    names = [run.run_id for run in runs]
    if names:
        choice = st.none() | st.sampled_from(names)
        runs = [run._replace(previous=draw(choice)) for run in runs]
        index = draw(st.integers(0, len(runs) - 1))
        runs[index] = runs[index]._replace(state=State.LATEST)
    return runs


KEEPS = st.builds(Keep, st.integers(1, 10), st.integers(0, 14))


@given(archives(), KEEPS)
def test_whatever_there_is_nothing_that_is_needed_goes(runs: list[KnownRun], keep: Keep) -> None:
    going = removable(runs, keep, NOW)
    by_id = {run.run_id: run for run in runs}
    kept = by_id.keys() - {run.run_id for run in going}
    for run in runs:
        if run.state is State.LATEST:
            assert run.run_id in kept
            assert run.previous is None or run.previous in kept
        if run.state is State.RUNNING or (not run.is_whole and NOW - run.touched < YOUNG):
            assert run.run_id in kept
    whole = [run for run in runs if run.is_whole]
    assert sum(run.run_id in kept for run in whole) >= min(len(whole), keep.newest)
    assert going == sorted(going, key=lambda run: (run.touched, run.run_id))


@given(archives(), KEEPS, st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter_and_pruning_twice_removes_nothing_more(
    runs: list[KnownRun], keep: Keep, chance: Random
) -> None:
    going = removable(runs, keep, NOW)
    assert removable(chance.sample(runs, len(runs)), keep, NOW) == going
    assert removable([run for run in runs if run not in going], keep, NOW) == []
