"""The arithmetic of a plan, against what is calculated by hand, and what must hold for any archive and machines."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.plan.estimate import estimate, gpu_bytes, gpu_seconds
from dupq.plan.limits import grounds, limits
from dupq.plan.machines import Machines, Prices
from dupq.plan.rates import SHIPPED, Gpu, Rates, read_gpus, read_rates
from dupq.plan.table import table

STAGE = {
    "driver_cpu_seconds": [1.0, 1e-6],
    "driver_mb": [400.0, 1e-5],
    "written_bytes": [1e6, 500.0],
    "disk_bytes": [0.0, 800.0],
    "reads": [10.0, 2.0, 0.5],
    "writes": [5.0, 1.0],
}
MANY = {"label": "texts", "piece": 50_000, "cpu_seconds": [2.0, 1e-3], "task_mb": [300.0, 0.01]}
ONE = {"label": "gather", "cpu_seconds": [0.0, 1e-5], "task_mb": [200.0, 1e-4]}
TILES = {"label": "tiles", "piece": 8_192, "cpu_seconds": [1.0, 0.0, 1e-9], "task_mb": [2_000.0]}


def rates(*steps: dict, **changed: object) -> Rates:
    stage = {"job": "dedup", "name": "texts", "steps": steps, **STAGE, **changed}
    return Rates.model_validate(
        {
            "machine": {"processor": "made up", "cpus": 2, "memory_gb": 8},
            "date": "2026-01-01",
            "versions": {},
            "how": "Not at all.",
            "preset": "dupq",
            "questions": [1_000],
            "questions_a_shard": 50_000,
            "stages": [stage],
        }
    )


GPU = Gpu(memory_gb=100, tflops=1_000, source="made up")
ON_GPUS = Machines(cpus=8, gpus=4, gpu=GPU, gpu_efficiency=0.5, gpu_width=700)


def test_a_stage_takes_its_driver_and_its_steps_one_after_the_other() -> None:
    found = estimate(rates(MANY, ONE), 1_000_000, Machines(cpus=8), ["dedup"]).stages[0]
    driver, many, one = 1 + 1, 2 + 1_000 / 8, 10
    assert found.seconds == pytest.approx(driver + many + one)
    assert found.alone_seconds == pytest.approx(driver + 2 + one)
    assert (found.task_mb, found.driver_mb) == pytest.approx((800, 410))
    assert (found.written_bytes, found.disk_bytes) == pytest.approx((501e6, 800e6))
    assert (found.reads, found.writes) == (10 + 2 * 20 + 0.5 * 400, 5 + 20)
    assert found.cost is None


def test_no_more_tasks_work_than_there_are_pieces() -> None:
    plan = estimate(rates(MANY), 100_000, Machines(cpus=64), ["dedup"])
    assert plan.seconds == pytest.approx(1.1 + 2 + 100 / 2)


def test_what_a_stage_leaves_out_takes_no_time() -> None:
    plan = estimate(rates(ONE, grows_until=1_000, bytes_grow_until=1_000), 10**6, Machines(cpus=2), ["dedup"])
    assert plan.seconds == pytest.approx(1 + 0.001 + 0.01)
    assert plan.stages[0].disk_bytes == 800_000
    assert plan.stages[0].task_mb == 300


def test_no_more_tasks_work_than_memory_holds() -> None:
    narrow = Machines(cpus=64, nodes=4, memory_gb=1.6)  # two tasks of 800 MB a machine
    assert estimate(rates(MANY), 4_000_000, narrow, ["dedup"]).seconds == pytest.approx(5 + 2 + 4_000 / 8)
    said = " ".join(limits(estimate(rates(MANY), 4_000_000, narrow, ["dedup"]), narrow))
    assert "8 of 64 CPUs work: memory" in said


def test_a_task_that_no_machine_holds_is_named() -> None:
    small = Machines(cpus=2, memory_gb=0.5)
    assert "has room for a task of 800 MB" in " ".join(limits(estimate(rates(MANY), 10**6, small, ["dedup"]), small))


def test_waiting_for_s3_is_shared_by_those_who_wait() -> None:
    alone = Machines(cpus=4)
    waiting = dataclasses.replace(alone, request_seconds=0.1)
    both = [estimate(rates(MANY), 1_000_000, machines, ["dedup"]).seconds for machines in (alone, waiting)]
    assert both[1] - both[0] == pytest.approx((250 + 25) * 0.1 / 4)


def test_costs_are_those_of_machines_and_requests() -> None:
    prices = Prices(per_hour=3.6, per_1000_reads=1.0, per_1000_writes=10.0)
    plan = estimate(rates(ONE), 1_000_000, Machines(cpus=2, nodes=5, prices=prices), ["dedup"])
    assert plan.cost == pytest.approx((2 + 10) / 3_600 * 3.6 * 5 + 0.25 + 0.25)


def test_tiles_on_gpus_are_half_of_all_products() -> None:
    # 24e6² / 2 scores of 700 columns, a multiplication and an addition each, at 500 TFLOP/s: one of the four GPUs
    assert gpu_seconds(24_000_000, ON_GPUS) == pytest.approx(24e6**2 / 2 * 700 * 2 / 5e14)
    found = estimate(rates(TILES), 24_000_000, ON_GPUS, ["dedup"]).stages[0]
    assert found.on_gpus
    assert found.seconds == pytest.approx(1 + 24 + 1 + gpu_seconds(24_000_000, ON_GPUS))


def test_vectors_that_a_gpu_cannot_hold_are_told() -> None:
    assert gpu_bytes(10**6, ON_GPUS) == 2.8e9
    said = " ".join(limits(estimate(rates(TILES), 10**8, ON_GPUS, ["dedup"]), ON_GPUS))
    assert "All questions take 280 GB, a GPU has 100 GB" in said


def test_disk_is_the_most_of_each_job() -> None:
    first, second = rates(ONE).stages[0], rates(ONE, name="terms", disk_bytes=[0.0, 100.0]).stages[0]
    trained = rates(ONE, job="train", disk_bytes=[7.0]).stages[0]
    every = rates(ONE).model_copy(update={"stages": (first, second, trained)})
    plan = estimate(every, 1_000, Machines(cpus=1), ["train", "dedup"])
    assert plan.disk_bytes == 800_000 + 7
    assert len(estimate(every, 1_000, Machines(cpus=1), ["train"]).stages) == 1


_SHIPPED = read_rates(SHIPPED)
SIZES = st.integers(1, 10**9)
MACHINES = st.builds(
    Machines,
    cpus=st.integers(1, 2_000),
    nodes=st.integers(1, 50),
    memory_gb=st.none() | st.floats(0.1, 1_000),
    gpus=st.integers(0, 16),
    gpu=st.just(GPU),
    request_seconds=st.floats(0, 1),
)


@given(small=SIZES, more=SIZES, machines=MACHINES)
def test_more_questions_never_take_less(small: int, more: int, machines: Machines) -> None:
    machines = dataclasses.replace(machines, request_seconds=0.0)
    plans = [estimate(_SHIPPED, size, machines, ["dedup"]) for size in (small, small + more)]
    for one, other in zip(*(plan.stages for plan in plans), strict=True):
        for name in ("seconds", "task_mb", "driver_mb", "written_bytes", "disk_bytes", "reads", "writes"):
            assert getattr(one, name) <= getattr(other, name) * (1 + 1e-9), (one.name, name)


@given(questions=SIZES, machines=MACHINES, more=st.integers(1, 100))
def test_more_machines_never_take_longer(questions: int, machines: Machines, more: int) -> None:
    larger = dataclasses.replace(machines, cpus=machines.cpus + more, nodes=machines.nodes + more)
    times = [estimate(_SHIPPED, questions, each, ["dedup"]).seconds for each in (machines, larger)]
    assert times[1] <= times[0] * (1 + 1e-9)


def test_the_shipped_rates_have_every_stage_of_the_jobs() -> None:
    from dupq.runs import versions

    shipped = read_rates(SHIPPED)
    named = {job: {stage.name for stage in shipped.stages if stage.job == job} for job in ("ingest", "train", "dedup")}
    assert named["ingest"] == {"ingest"}
    assert named["dedup"] == set(versions.DEDUP)
    assert named["train"] <= set(versions.TRAINING)
    assert {"prepare", "fit", "save"} <= named["train"]
    assert min(shipped.questions) >= 1


def test_what_was_not_measured_is_said() -> None:
    gpus, shipped = read_gpus(), read_rates(SHIPPED)
    machines = Machines(cpus=8, gpus=1, gpu=gpus.kinds["H200"], gpu_efficiency=gpus.efficiency, gpu_width=gpus.width)
    plan = estimate(shipped, 24_000_000, machines, ["dedup"])
    said = " ".join(grounds(plan, shipped, machines, gpus))
    assert "Not measured" in said
    assert "data sheet" in said
    assert "Of the cost nothing is known" in said


def test_the_table_has_a_line_a_stage_and_the_sums() -> None:
    lines = table(estimate(rates(MANY, ONE), 1_000_000, Machines(cpus=8), ["dedup"])).splitlines()
    assert [line.split()[0] for line in lines] == ["stage", "dedup", "all"]
    assert "2.3 min" in lines[1]
