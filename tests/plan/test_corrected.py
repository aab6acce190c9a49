"""Rates corrected by a run: what was measured there, and no other figure than times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.errors import SettingError
from dupq.plan.corrected import Correction, Measured, corrected, correction, said_of
from dupq.plan.estimate import Plan, estimate
from dupq.plan.machines import Machines
from dupq.plan.rates import SHIPPED, read_rates

RATES = read_rates(SHIPPED)
TWO = Machines(cpus=2)
NAMES = [stage.name for stage in RATES.stages if stage.job == "dedup"]


def seconds(plan: Plan) -> dict[tuple[str, str], float]:
    return {(stage.job, stage.name): stage.seconds for stage in plan.stages}


def planned(rates: object, questions: int, machines: Machines = TWO) -> dict[tuple[str, str], float]:
    return seconds(estimate(rates, questions, machines, ["ingest", "train", "dedup"]))  # type: ignore[arg-type]


@given(
    st.integers(50_000, 10**7),
    st.integers(1, 64),
    st.lists(st.floats(1, 1e5), min_size=len(NAMES), max_size=len(NAMES)),
)
def test_the_plan_of_the_run_itself_is_what_it_took(questions: int, cpus: int, took: list[float]) -> None:
    measured = Measured("runs/x", questions, Machines(cpus=cpus), dict(zip(NAMES, took, strict=True)))
    found = planned(corrected(RATES, correction(RATES, measured)), questions, Machines(cpus=cpus))
    assert [found["dedup", name] for name in NAMES] == pytest.approx(took)


def test_short_stages_and_other_jobs_are_as_much_slower_as_all_together() -> None:
    before = planned(RATES, 100_000)
    took = {name: 3 * before["dedup", name] for name in ("texts", "neighbours")} | {"partition": 0.9, "review": 0.0}
    by = correction(RATES, Measured("runs/x", 100_000, TWO, took))
    assert by.stages == pytest.approx({"texts": 3, "neighbours": 3})
    shared = ("texts", "neighbours", "partition")
    assert by.others == pytest.approx(sum(took.values()) / sum(before["dedup", name] for name in shared))
    found = planned(corrected(RATES, by), 1_000_000)
    then = planned(RATES, 1_000_000)
    factors = {place: found[place] / then[place] for place in then if then[place]}
    assert factors["dedup", "texts"] == pytest.approx(3)
    others = [place for place in factors if place not in {("dedup", "texts"), ("dedup", "neighbours")}]
    assert {place[0] for place in others} == {"ingest", "train", "dedup"}
    assert [factors[place] for place in others] == pytest.approx([by.others] * len(others))


def test_memory_bytes_and_requests_stay() -> None:
    before = estimate(RATES, 10**6, TWO, ["dedup"])
    after = estimate(corrected(RATES, Correction({}, 7.0)), 10**6, TWO, ["dedup"])
    for old, new in zip(before.stages, after.stages, strict=True):
        assert new.seconds == pytest.approx(7 * old.seconds)
        assert (new.task_mb, new.driver_mb, new.disk_bytes) == (old.task_mb, old.driver_mb, old.disk_bytes)
        assert (new.written_bytes, new.reads, new.writes) == (old.written_bytes, old.reads, old.writes)


def test_what_was_corrected_is_said() -> None:
    measured = Measured("runs/x", 100_000, Machines(cpus=16), {})
    told = said_of(Correction({"texts": 1.234}, 0.5), measured)
    assert "runs/x (100,000 questions, 16 CPUs)" in told
    assert "texts 1.23 times" in told
    assert "all else 0.50 times" in told


@pytest.mark.parametrize(
    ("questions", "took", "said"),
    [(49_999, {"texts": 5.0}, "at least 50,000"), (10**6, {"unheard_of": 5.0}, "none of its stages")],
)
def test_a_run_that_tells_nothing_is_refused(questions: int, took: dict[str, float], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        correction(RATES, Measured("runs/x", questions, TWO, took))
