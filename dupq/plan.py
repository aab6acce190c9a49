"""What a larger archive would take: what the stages of a finished run took, times their growth."""

import json
from typing import NamedTuple

from dupq import storage
from dupq.errors import SettingError
from dupq.report.summary import duration, memory
from dupq.runs.reader import finished_run

# Seconds grow with the number of questions to this power: measured from 100,000 to a million made questions
# (benchmarks/results/scale*.md). Other stages grow linearly, or less.
GROWTH = {"neighbours": 1.9, "beyond_lists": 1.7, "pairs": 1.2}
_FEW = 50_000  # questions: a smaller run goes mostly into starting


class Stage(NamedTuple):
    """What a stage took, and would take."""

    name: str
    run_seconds: float
    seconds: float
    growth: float  # the power of n
    run_task_mb: float  # of the largest task


class Plan(NamedTuple):
    """A run over `questions`, on the machines of `run`."""

    run: str  # URI
    run_questions: int
    questions: int
    disk_bytes: int  # of the run's folder
    stages: list[Stage]


def plan_from(uri: str, questions: int) -> Plan:
    """Plan from the run at `uri`. Raises SettingError for one that builds on an earlier run."""
    run = finished_run(uri)
    if run.manifest["inputs"].get("previous"):
        raise SettingError(
            f"--run {run.uri}: it builds on an earlier run, so its times are of what was new; give another run"
        )
    before, stages = run.metrics["questions"], []
    for stage in run.manifest.get("stages") or ():
        name, seconds = stage["name"], stage.get("seconds") or 0.0
        growth = GROWTH.get(name, 1.0)
        grown = seconds * (questions / before) ** growth
        stages.append(Stage(name, seconds, grown, growth, stage.get("peak_memory_mb") or 0.0))
    size = sum(file.size for file in storage.list_files(run.uri))
    return Plan(run.uri, before, questions, round(size * questions / before), stages)


def as_json(plan: Plan) -> str:
    """Write a plan as a JSON object."""
    return json.dumps({**plan._asdict(), "stages": [stage._asdict() for stage in plan.stages]}, indent=1)


def as_text(plan: Plan) -> str:
    """Write a plan as a table, and what it rests on."""
    rows: list[tuple[str, ...]] = [("stage", "that run", "planned", "growth", "largest task there")]
    for stage in plan.stages:
        growth = f"n^{stage.growth:g}" if stage.growth != 1 else "n"
        seconds = (duration(stage.run_seconds), duration(stage.seconds))
        rows.append((stage.name, *seconds, growth, memory(stage.run_task_mb)))
    both = (sum(stage.run_seconds for stage in plan.stages), sum(stage.seconds for stage in plan.stages))
    rows.append(("all", *map(duration, both), "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{plan.questions:,} questions, from the {plan.run_questions:,} of {plan.run}", ""]
    for name, *cells in rows:
        shown = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *shown]).rstrip())
    lines += ["", f"The run's folder: {memory(plan.disk_bytes / 1e6)}. Times are for the machines of that run."]
    if plan.run_questions < _FEW:
        lines.append(f"A run of fewer than {_FEW:,} questions goes mostly into starting: the plan says too much.")
    if plan.questions > 10 * plan.run_questions:
        times = plan.questions / plan.run_questions
        lines.append(f"{times:,.0f} times the questions of that run: growth was measured over a factor of ten.")
    return "\n".join(lines)
