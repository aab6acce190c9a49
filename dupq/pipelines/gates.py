"""The gates of a nightly run: limits that its archive and its clusters must keep, or it fails with the limit's name."""

from dataclasses import dataclass

from dupq.errors import GateError, SettingError
from dupq.job import progress
from dupq.job.records import Metrics
from dupq.runs.reader import read_metrics


@dataclass(frozen=True)
class Gates:
    """The gates of a run: a run that misses one fails, and `latest.json` does not move. None: no such gate."""

    min_recall: float | None = None  # share of the test part's known duplicates that are in one cluster
    max_cluster: int | None = None  # questions
    max_change: float | None = None  # share of the questions in clusters whose cluster differs from the earlier run's
    min_rows_share: float | None = None  # share of the earlier run's number of questions
    judge: bool = False  # whether a judge that fails ends the run

    def check(self, has_previous: bool) -> None:
        """Raise SettingError for a value out of range, or a gate that needs an earlier run without one."""
        compared = {"--max-change": self.max_change, "--min-rows-share": self.min_rows_share}
        for option, share in ({"--min-recall": self.min_recall} | compared).items():
            if share is not None and not 0 <= share <= 1:
                raise SettingError(f"{option} {share}: a share expected, 0 to 1")
        if self.max_cluster is not None and self.max_cluster < 0:
            raise SettingError(f"--max-cluster {self.max_cluster}: a number of questions expected, 0 or more")
        for option, limit in compared.items():
            if limit is not None and not has_previous:
                raise SettingError(f"{option} compares with an earlier run: name it with --previous")


NO_GATES = Gates()


def check_rows(gates: Gates, questions: int, previous: str | None, run: str) -> None:
    """Raise GateError if the archive has lost too many questions since the earlier run. Called before the search."""
    if gates.min_rows_share is None or previous is None:
        return
    before = read_metrics(previous)
    if questions < gates.min_rows_share * before["questions"]:
        progress.end(run, "gate missed")
        raise GateError(
            f"--min-rows-share {gates.min_rows_share}: the archive has {questions:,} questions, the earlier run "
            f"{previous} had {before['questions']:,}; nothing was searched. If that is right, give a lower share"
        )


def check_gates(gates: Gates, metrics: Metrics, run: str, has_succeeded: bool = False) -> None:
    """Raise GateError for the first gate that a run misses.

    `has_succeeded`: the run passed before, with other gates.
    """
    recall = (metrics["links"] or {}).get("in_one_cluster")
    change = (metrics["drift"] or {}).get("questions_of_clusters_changed")
    failed = None
    if gates.min_recall is not None and (recall is None or recall < gates.min_recall):
        why = "not measured: there are no known duplicates to test on, or their links joined them"
        value = why if recall is None else f"{recall:.3f}"
        failed = f"--min-recall {gates.min_recall}: the recall of known duplicates in one cluster is {value}"
    elif gates.max_cluster is not None and metrics["largest_cluster"] > gates.max_cluster:
        failed = f"--max-cluster {gates.max_cluster}: the largest cluster has {metrics['largest_cluster']:,} questions"
    elif gates.max_change is not None and change is not None and change > gates.max_change:
        failed = f"--max-change {gates.max_change}: {change:.3f} of the clustered questions changed cluster"
    if failed:
        progress.end(run, "gate missed")
        complete = "the run is complete but not marked as succeeded"
        before = "the run succeeded before, with other gates; latest.json is not moved"
        raise GateError(f"{failed}; {before if has_succeeded else complete}, see {run}/report.html")
