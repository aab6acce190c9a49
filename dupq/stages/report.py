"""The report stage: a run's tables → report.html.

One task, as a driver should not hold what it does: a file of each table at a time, up to 4 million pairs (24 bytes
each, see report/explorer/thresholds.py), all of cluster_stats, about 80 bytes a cluster, and what the page shows.
"""

from dupq.execution.tasks import run_tasks
from dupq.execution.units import Counts
from dupq.report import page


def write_report(run: str) -> None:
    """Write the report into the run at `run`."""
    run_tasks("report", _write, [(run,)])


def _write(run: str) -> Counts:
    page.write(run)
    return {}
