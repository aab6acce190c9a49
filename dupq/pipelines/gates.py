"""The gates of the nightly job: what a run must reach to be the latest one."""

from dataclasses import dataclass

from dupq.errors import GateError, SettingError
from dupq.runs import progress
from dupq.runs.reader import read_metrics
from dupq.runs.records import Metrics


@dataclass(frozen=True)
class Gates:
    """The gates of a run: if it misses one, it fails and `latest.json` is not moved. None: no such gate."""

    min_recall: float | None = None  # of the known duplicates of the test part in one cluster
    max_cluster: int | None = None  # questions
    max_change: float | None = None  # share of the questions of clusters whose cluster differs from the earlier run's
    min_rows_share: float | None = None  # of the questions of the earlier run

    def check(self, has_previous: bool) -> None:
        """Raise SettingError for a gate that is no number of its kind, or that nothing could be compared with."""
        shares = {"--min-recall": self.min_recall, "--max-change": self.max_change}
        for option, share in (shares | {"--min-rows-share": self.min_rows_share}).items():
            if share is not None and not 0 <= share <= 1:
                raise SettingError(f"{option} {share}: a share expected, 0 to 1")
        if self.max_cluster is not None and self.max_cluster < 0:
            raise SettingError(f"--max-cluster {self.max_cluster}: a number of questions expected, 0 or more")
        compared = {"--max-change": self.max_change, "--min-rows-share": self.min_rows_share}
        for option, limit in compared.items():
            if limit is not None and not has_previous:
                raise SettingError(f"{option}: --previous is needed, the run that is compared with")


NO_GATES = Gates()


def check_rows(gates: Gates, questions: int, previous: str | None, run: str) -> None:
    """Raise GateError if the archive has lost too many questions since the earlier run, before they are searched."""
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
    """Raise GateError for the first gate that a run does not pass; it may have succeeded before, with other gates."""
    recall = (metrics["links"] or {}).get("in_one_cluster")
    change = (metrics["drift"] or {}).get("questions_of_clusters_changed")
    failed = None
    if gates.min_recall is not None and (recall is None or recall < gates.min_recall):
        said = "not measured: there are no known duplicates to test on" if recall is None else f"{recall:.3f}"
        failed = f"--min-recall {gates.min_recall}: the recall of known duplicates in one cluster is {said}"
    elif gates.max_cluster is not None and metrics["largest_cluster"] > gates.max_cluster:
        failed = f"--max-cluster {gates.max_cluster}: the largest cluster has {metrics['largest_cluster']:,} questions"
    elif gates.max_change is not None and change is not None and change > gates.max_change:
        failed = f"--max-change {gates.max_change}: {change:.3f} of the questions of clusters have another cluster"
    if failed:
        progress.end(run, "gate missed")
        complete = "the run is complete but not marked as succeeded"
        before = "the run succeeded before, with other gates; latest.json is not moved"
        raise GateError(f"{failed}; {before if has_succeeded else complete}, see {run}/report.html")
