"""What limits a plan, and what it rests on, in sentences."""

from collections.abc import Iterator

from dupq.plan.estimate import Plan, StagePlan, gpu_bytes
from dupq.plan.machines import Machines
from dupq.plan.rates import Gpus, Rates
from dupq.plan.words import bytes_of, duration

TASK_MB, DRIVER_MB = 2_048, 1_024  # what a task and the driver are meant to need at most


def limits(plan: Plan, machines: Machines) -> Iterator[str]:
    """What decides how long it takes, and what is more than a machine may have."""
    slowest = max(plan.stages, key=lambda stage: stage.seconds)
    yield f"The longest stage is {_name(slowest)}: {duration(slowest.seconds)}, {_share(slowest.seconds, plan)} of all."
    alone = sum(stage.alone_seconds for stage in plan.stages)
    most = max(plan.stages, key=lambda stage: stage.alone_seconds)
    yield (
        f"For {duration(alone)} ({_share(alone, plan)}) only one task or the driver works, most of it in "
        f"{_name(most)}; more machines do not change that."
    )
    for kind, found, bound in (
        ("a task", [(stage.task_mb, stage) for stage in plan.stages], TASK_MB),
        ("the driver", [(stage.driver_mb, stage) for stage in plan.stages], DRIVER_MB),
    ):
        memory, stage = max(found, key=lambda pair: pair[0])
        if memory > bound:
            yield f"Memory of {kind}: {memory:,.0f} MB in {_name(stage)}, more than the {bound:,} it is meant to need."
    held = max((stage.task_mb for stage in plan.stages), default=0)
    if machines.memory_gb is not None and held > machines.memory_gb * 1024:
        yield f"No machine of {machines.memory_gb:g} GiB has room for a task of {held:,.0f} MB."
    elif machines.side_by_side(held) < machines.cpus:
        yield f"Where tasks need {held:,.0f} MB, {machines.side_by_side(held)} of {machines.cpus} CPUs work: memory."
    if machines.gpu is not None and gpu_bytes(plan.questions, machines) > machines.gpu.memory_gb * 1e9:
        needed = bytes_of(gpu_bytes(plan.questions, machines))
        yield f"All questions take {needed}, a GPU has {machines.gpu.memory_gb:g} GB: plan with --gpus 0."


def grounds(plan: Plan, rates: Rates, machines: Machines, gpus: Gpus) -> Iterator[str]:
    """What the figures rest on."""
    sizes = ", ".join(f"{size:,}" for size in rates.questions)
    yield (
        f"Rates of {rates.date}: {rates.machine.cpus} CPUs ({rates.machine.processor}), preset {rates.preset}, "
        f"{sizes} made questions. {rates.how}"
    )
    if plan.questions > 10 * max(rates.questions):
        times = plan.questions / max(rates.questions)
        yield f"{times:,.0f} times the largest archive measured: what grows otherwise than there is not foreseen."
    if max(rates.questions) < 2 * rates.questions_a_shard:
        yield "What a single task holds of all questions was not measured: docs/scale.md has it by the code."
    if machines.gpu is not None:
        yield f"GPUs (only tiles are planned on one, which holds all questions): {gpus.note} {machines.gpu.source}."
    if not machines.request_seconds:
        yield "On S3 tasks wait for answers, which is not in the seconds: give --request-ms."
    if all(stage.cost is None for stage in plan.stages):
        yield "Of the cost nothing is known: give --price-per-hour, --price-reads, --price-writes."


def _name(stage: StagePlan) -> str:
    return f"{stage.job}/{stage.name}" if stage.job != stage.name else stage.name


def _share(seconds: float, plan: Plan) -> str:
    return f"{seconds / plan.seconds:.0%}" if plan.seconds else "0%"
