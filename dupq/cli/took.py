"""What the stages of a finished run took, for a plan."""

from dupq.errors import SettingError
from dupq.plan.corrected import Measured
from dupq.plan.machines import Machines
from dupq.runs.reader import finished_run

_SEARCH = "neighbours"


def what_took(uri: str, machines: Machines) -> Measured:
    """The times of the run at `uri`, or of the latest of the runs there, on machines like these.

    Raises SettingError for a run that builds on an earlier one. A search by lists is left out: plans are of the exact
    one.
    """
    run = finished_run(uri)
    if run.manifest["inputs"].get("previous"):
        raise SettingError(
            f"--run {run.uri}: it builds on an earlier run, so its times are of what was new; give another"
        )
    stages = {stage["name"]: stage for stage in run.manifest.get("stages") or ()}
    questions = stages["texts"].get("rows_in") if "texts" in stages else None
    if run.config.get(_SEARCH, {}).get("method", "exact") != "exact":
        stages.pop(_SEARCH, None)
    return Measured(
        run.uri, questions or 0, machines, {name: stage.get("seconds") or 0.0 for name, stage in stages.items()}
    )
