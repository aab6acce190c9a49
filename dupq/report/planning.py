"""What `dedup` would take for another number of questions: from a run's own stages, or from a measured benchmark."""

from typing import NamedTuple

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import SettingError
from dupq.report.summary import duration, memory
from dupq.runs.figures import aligned
from dupq.runs.reader import Run

# A stage's seconds grow with this power of the number of questions: measured from 100,000 to a million made questions
# (benchmarks/results/scale*.md). Other stages grow linearly, or less.
_GROWTH = {"neighbours": 1.9, "beyond_lists": 1.7, "pairs": 1.2}
_FEW = 50_000  # questions: most of a smaller run's time is start-up
_MOST = 100  # times the questions planned from; growth was measured over a factor of ten
# benchmarks/results/scale-1000000-2026-11-28.json: a million made questions on two cores; seconds, and MB of a task
_SHIPPED_STAGES = {
    "inputs": (0.8, 224),
    "texts": (82.6, 1297),
    "terms": (4.5, 680),
    "signatures": (10.4, 925),
    "near_duplicates": (8.6, 802),
    "fitness": (11.9, 866),
    "encode": (51.2, 1916),
    "neighbours": (1322.9, 1936),
    "calibrate": (2.9, 1031),
    "beyond_lists": (0.5, 972),
    "pairs": (45.5, 1537),
    "partition": (6.4, 1196),
    "clusters": (16.8, 1169),
    "evaluate": (3.9, 1070),
    "review": (2.6, 1090),
}
# Of the reranker on two cores (docs/scale.md): seconds to start and a question, and MB. It reads all of a small site,
# and at most a third of a large one.
_READ_START, _READ_SECONDS, _READ_MB, _ALL_READ = 4.0, 0.011, 1000, 2_000


class PlannedStage(TypedDict):
    """A stage's time as it was measured, and as it is planned; `growth` is the power of the number of questions."""

    name: str
    run_seconds: float
    seconds: float
    growth: float
    run_task_mb: float


class Plan(TypedDict):
    """A plan, as `dupq plan --json` prints it."""

    run: str
    based_on: str  # run, or benchmark
    run_questions: int  # that the plan is based on
    questions: int
    disk_bytes: int
    stages: list[PlannedStage]


class _Measured(NamedTuple):
    questions: int
    bytes: float
    stages: list[tuple[str, float, float]]  # name, seconds, MB of the largest task


# 2,100 bytes a question of a finished run's folder (docs/scale.md)
_SHIPPED = _Measured(1_000_000, 2.1e9, [(name, seconds, mb) for name, (seconds, mb) in _SHIPPED_STAGES.items()])


def plan(run: Run, questions: int) -> Plan:
    """Return what a run over `questions` questions would take. Raises SettingError if `run` is nothing to plan from."""
    if run.manifest["inputs"].get("previous"):
        raise SettingError(
            f"--run {run.uri}: it builds on an earlier run, so its times are for new questions only; give another"
        )
    is_small = run.metrics["questions"] < _FEW
    measured = _SHIPPED if is_small else _own(run)
    growth = questions / measured.questions
    if growth > _MOST:
        raise SettingError(
            f"--questions {questions}: more than {_MOST} times the {measured.questions:,} that the plan would be based "
            f"on; give a run of at least {-(-questions // _MOST):,} questions"
        )
    stages = [
        PlannedStage(name=name, run_seconds=seconds, seconds=seconds * growth**power, growth=power, run_task_mb=mb)
        for name, seconds, mb in measured.stages
        for power in (_GROWTH.get(name, 1.0),)
    ]
    if is_small and any(stage["name"] == "rerank" for stage in run.manifest.get("stages") or ()):
        before, planned = _read_seconds(measured.questions), _read_seconds(questions)
        stages.append(
            PlannedStage(name="rerank", run_seconds=before, seconds=planned, growth=1.0, run_task_mb=_READ_MB)
        )
    return Plan(
        run=run.uri,
        based_on="benchmark" if is_small else "run",
        run_questions=measured.questions,
        questions=questions,
        disk_bytes=round(measured.bytes * growth),
        stages=stages,
    )


def _own(run: Run) -> _Measured:
    stages = run.manifest.get("stages") or ()
    rows = [(stage["name"], stage.get("seconds") or 0.0, stage.get("peak_memory_mb") or 0.0) for stage in stages]
    return _Measured(run.metrics["questions"], sum(file.size for file in storage.list_files(run.uri)), rows)


def _read_seconds(questions: int) -> float:
    """Return the seconds that a reranker takes on two cores, by calculation."""
    return _READ_START + _READ_SECONDS * (questions if questions <= _ALL_READ else max(_ALL_READ, questions / 3))


def text_of(planned: Plan, run_questions: int) -> str:
    """Return a plan as a table, with what it is based on; the run that it was asked of has `run_questions`."""
    questions, before, stages = planned["questions"], planned["run_questions"], planned["stages"]
    is_own = planned["based_on"] == "run"
    there = "that run" if is_own else f"at {before:,}"
    rows: list[tuple[str, ...]] = [("stage", there, "planned", "growth", "largest task there")]
    for stage in stages:
        growth = f"n^{stage['growth']:g}" if stage["growth"] != 1 else "n"
        seconds = (duration(stage["run_seconds"]), duration(stage["seconds"]))
        rows.append((stage["name"], *seconds, growth, memory(stage["run_task_mb"])))
    sums = (sum(stage["run_seconds"] for stage in stages), sum(stage["seconds"] for stage in stages))
    rows.append(("all", *map(duration, sums), "", ""))
    source = f"the {before:,} of {planned['run']}" if is_own else f"a measured run of {before:,} on two cores"
    lines = [f"{questions:,} questions, from {source}", "", *aligned(rows, 1), ""]
    lines.append(f"The run's folder: {memory(planned['disk_bytes'] / 1e6)}.")
    if is_own:
        lines[-1] += " Times are for the machines of that run."
    else:
        lines.append(
            f"{planned['run']} has {run_questions:,} questions. A run of fewer than {_FEW:,} goes mostly into starting,"
            " so this plan uses rates that dupq ships with: made questions, two cores, a busy machine."
        )
    if questions > 10 * before:
        lines.append(f"{questions / before:,.0f} times that many questions: growth was measured over a factor of ten.")
    return "\n".join(lines)
