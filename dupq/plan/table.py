"""A plan as a table for people, and as JSON."""

import dataclasses

from dupq.plan.estimate import Plan
from dupq.plan.words import bytes_of, count_of, duration

_HEAD = ("stage", "time", "alone", "task", "driver", "written", "on disk", "reads", "writes", "cost")


def table(plan: Plan) -> str:
    """A line a stage, and the sums."""
    rows = [_HEAD]
    for job in dict.fromkeys(stage.job for stage in plan.stages):
        for stage in plan.stages:
            if stage.job == job:
                name = stage.name if stage.name == job else f"{job}  {stage.name}"
                rows.append(
                    (
                        f"{name} (GPU)" if stage.on_gpus else name,
                        duration(stage.seconds),
                        duration(stage.alone_seconds),
                        f"{stage.task_mb:,.0f} MB",
                        f"{stage.driver_mb:,.0f} MB",
                        bytes_of(stage.written_bytes),
                        bytes_of(stage.disk_bytes),
                        count_of(stage.reads),
                        count_of(stage.writes),
                        _cost(stage.cost),
                    )
                )
    rows.append(
        (
            "all",
            duration(plan.seconds),
            duration(sum(stage.alone_seconds for stage in plan.stages)),
            f"{max(stage.task_mb for stage in plan.stages):,.0f} MB",
            f"{max(stage.driver_mb for stage in plan.stages):,.0f} MB",
            bytes_of(sum(stage.written_bytes for stage in plan.stages)),
            bytes_of(plan.disk_bytes),
            count_of(sum(stage.reads for stage in plan.stages)),
            count_of(sum(stage.writes for stage in plan.stages)),
            _cost(plan.cost),
        )
    )
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cost(cost: float | None) -> str:
    return "?" if cost is None else f"{cost:,.2f}"


def to_json(plan: Plan, said: list[str]) -> dict[str, object]:
    """The same, in seconds, bytes, MB and numbers of requests."""
    return {
        "questions": plan.questions,
        "seconds": plan.seconds,
        "disk_bytes": plan.disk_bytes,
        "cost": plan.cost,
        "stages": [dataclasses.asdict(stage) for stage in plan.stages],
        "notes": said,
    }
