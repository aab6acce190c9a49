"""Rates corrected by what a run took: the same growth, at the speed of its machines and with its texts."""

from collections.abc import Mapping
from dataclasses import dataclass

from dupq.errors import SettingError
from dupq.plan.estimate import estimate
from dupq.plan.machines import Machines
from dupq.plan.rates import Polynomial, Rates, Stage, Step

JOB = "dedup"  # whose runs tell what their stages took
_SECONDS = 1.0  # a stage that took less says little of its speed
LEAST_TOLD = 50_000  # questions: a smaller run goes mostly into starting


@dataclass(frozen=True)
class Measured:
    """What a run took."""

    run: str  # URI
    questions: int
    machines: Machines  # where it ran
    seconds: Mapping[str, float]  # by stage


@dataclass(frozen=True)
class Correction:
    """How many times as long as planned the stages of a run took."""

    stages: Mapping[str, float]  # those that took a second or more
    others: float  # all stages together, for the rest and for the other jobs


def correction(rates: Rates, measured: Measured) -> Correction:
    """Compare what a run took with what these rates plan for it. Raises SettingError for a run that tells nothing."""
    if measured.questions < LEAST_TOLD:
        raise SettingError(
            f"--run {measured.run}: {measured.questions:,} questions; at least {LEAST_TOLD:,} expected, as the time of "
            "a smaller run goes mostly into starting"
        )
    stages = estimate(rates, measured.questions, measured.machines, [JOB]).stages
    planned = {stage.name: stage.seconds for stage in stages if measured.seconds.get(stage.name) and stage.seconds}
    if not planned:
        raise SettingError(f"--run {measured.run}: none of its stages are among the rates")
    took = {name: measured.seconds[name] for name in planned}
    long = {name: seconds / planned[name] for name, seconds in took.items() if seconds >= _SECONDS}
    return Correction(long, sum(took.values()) / sum(planned.values()))


def corrected(rates: Rates, by: Correction) -> Rates:
    """The same rates with other times; memory, bytes and requests stay as they are."""
    return rates.model_copy(update={"stages": tuple(_times(stage, _factor(by, stage)) for stage in rates.stages)})


def said_of(by: Correction, measured: Measured) -> str:
    """What was corrected, in a sentence."""
    stages = ", ".join(f"{name} {factor:.2f}" for name, factor in by.stages.items())
    where = f"{measured.questions:,} questions, {measured.machines.cpus} CPUs"
    return (
        f"Times are corrected by the run {measured.run} ({where}): "
        f"{stages} times as long as by the rates, all else {by.others:.2f} times."
    )


def _factor(by: Correction, stage: Stage) -> float:
    return by.stages.get(stage.name, by.others) if stage.job == JOB else by.others


def _times(stage: Stage, factor: float) -> Stage:
    steps = tuple(_step_times(step, factor) for step in stage.steps)
    driver = _product(stage.driver_cpu_seconds, factor)
    return stage.model_copy(update={"driver_cpu_seconds": driver, "steps": steps})


def _step_times(step: Step, factor: float) -> Step:
    return step.model_copy(update={"cpu_seconds": _product(step.cpu_seconds, factor)})


def _product(polynomial: Polynomial, factor: float) -> Polynomial:
    return tuple(factor * coefficient for coefficient in polynomial)
