"""The arithmetic of a plan: rates and machines in, what each stage takes out.

    seconds of a step    fixed part + the rest / tasks side by side
    tasks side by side   no more than the CPUs, than the memory holds, and than questions / questions of a task

The seconds of a stage are those of its driver and of its steps, one after the other. On a GPU the tiles of the search
take N² × width operations: half of the N² scores, for they are symmetric, of a multiplication and an addition a column.
All stages that are not tiles are planned on CPUs, encoding and training too, so they may be faster with GPUs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dupq.plan.machines import Machines
from dupq.plan.rates import Polynomial, Rates, Stage, Step

TILES = "tiles"
_GPU_BYTES = 4.0  # a column of the product: of the row, and as much of vectors, words, lists and buffers
_HOUR = 3_600.0


@dataclass(frozen=True)
class StagePlan:
    """What a stage takes."""

    job: str
    name: str
    seconds: float
    alone_seconds: float  # of them, while only one task or the driver works
    task_mb: float  # of the largest task
    driver_mb: float
    written_bytes: float
    disk_bytes: float
    reads: float  # requests of S3
    writes: float
    cost: float | None
    on_gpus: bool


@dataclass(frozen=True)
class Plan:
    """All stages, in their order."""

    questions: int
    stages: tuple[StagePlan, ...]

    @property
    def seconds(self) -> float:
        """From the first stage to the last."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def disk_bytes(self) -> float:
        """The most that each job has on disk, together: later jobs read what the earlier ones wrote."""
        jobs = {stage.job for stage in self.stages}
        return sum(max(stage.disk_bytes for stage in self.stages if stage.job == job) for job in sorted(jobs))

    @property
    def cost(self) -> float | None:
        """Of the stages, if a price is known."""
        costs = [stage.cost for stage in self.stages if stage.cost is not None]
        return sum(costs) if costs else None


def at(polynomial: Polynomial, value: float) -> float:
    """The value of a polynomial."""
    return sum(coefficient * value**power for power, coefficient in enumerate(polynomial))


def estimate(rates: Rates, questions: int, machines: Machines, jobs: Sequence[str]) -> Plan:
    """What the stages of `jobs` take for an archive of so many questions."""
    shards = math.ceil(questions / rates.questions_a_shard)
    chosen = [stage for stage in rates.stages if stage.job in jobs]
    return Plan(questions, tuple(_stage(stage, questions, shards, machines) for stage in chosen))


def _stage(stage: Stage, questions: int, shards: int, machines: Machines) -> StagePlan:
    reads, writes = at(stage.reads, shards), at(stage.writes, shards)
    worked = min(questions, stage.grows_until or math.inf)
    stored = min(questions, stage.bytes_grow_until or math.inf)
    driver = at(stage.driver_cpu_seconds, worked)
    seconds, alone = driver, driver
    on_gpus = False
    for step in stage.steps:
        if step.label == TILES and machines.gpus and machines.gpu is not None:
            on_gpus = True
            seconds += step.cpu_seconds[0] + gpu_seconds(questions, machines)
            continue
        took, tasks = _step(step, worked, machines)
        seconds += took
        alone += took if tasks == 1 else step.cpu_seconds[0]
    waiting = (reads + writes) * machines.request_seconds / min(machines.cpus, shards)
    seconds += waiting
    return StagePlan(
        stage.job,
        stage.name,
        seconds,
        alone,
        max((task_mb(step, questions) for step in stage.steps), default=0.0),
        at(stage.driver_mb, questions),
        at(stage.written_bytes, stored),
        at(stage.disk_bytes, stored),
        reads,
        writes,
        _cost(seconds, reads, writes, machines),
        on_gpus,
    )


def task_mb(step: Step, questions: float) -> float:
    """The memory (MB) of the largest task of a step."""
    return at(step.task_mb, questions if step.piece is None else min(questions, step.piece))


def _step(step: Step, questions: float, machines: Machines) -> tuple[float, float]:
    """Seconds, and how many tasks are at work: not a whole number, as the last one may be small."""
    fixed, whole = step.cpu_seconds[0], at(step.cpu_seconds, questions)
    pieces = 1.0 if step.piece is None else max(1.0, questions / step.piece)
    tasks = min(pieces, machines.side_by_side(task_mb(step, questions)))
    return fixed + (whole - fixed) / tasks, tasks


def gpu_seconds(questions: int, machines: Machines) -> float:
    """Of the search on a GPU, at the measured share of its peak: one holds all questions, however many there are."""
    if machines.gpu is None:
        raise ValueError("no GPU")
    operations = float(questions) ** 2 * machines.gpu_width
    return operations / (machines.gpu.tflops * 1e12 * machines.gpu_efficiency)


def gpu_bytes(questions: int, machines: Machines) -> float:
    """Of all questions on a GPU."""
    return questions * machines.gpu_width * _GPU_BYTES


def _cost(seconds: float, reads: float, writes: float, machines: Machines) -> float | None:
    prices = machines.prices
    parts = [
        (prices.per_hour, seconds / _HOUR * machines.nodes),
        (prices.per_1000_reads, reads / 1_000),
        (prices.per_1000_writes, writes / 1_000),
    ]
    known = [price * amount for price, amount in parts if price is not None]
    return sum(known) if known else None
