"""The figures of runs for operators, by the same names everywhere: in a job's last line as JSON, in `dupq runs --json`,
and, after `dupq_`, in a text file for Prometheus' node_exporter.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError
from dupq.job.records import read_success
from dupq.runs import inventory
from dupq.runs.inventory import KnownRun, known_runs, size_of
from dupq.runs.reader import Run
from dupq.storage import read_or_none
from dupq.system import thread_map

FILE = "dupq.prom"  # next to latest.json, with the figures of the run that succeeded last
Figures = dict[str, float | Mapping[str, float] | None]  # None: not measured
_HELP = {
    "last_success_timestamp_seconds": "When the latest run succeeded",
    "questions": "Questions of the archive",
    "groups": "Groups of duplicates",
    "questions_in_groups": "Questions in groups of duplicates",
    "expected_precision": "Estimated share of right pairs among those joined by meaning",
    "changed_share": "Share of grouped questions that changed group since the run before",
    "links_recall": "Share of known duplicates in one group",
    "rejected_rows": "Broken rows that the ingest of the archive left out",
    "judge_dollars": "Cost of the calls of a judge",
    "judge_tokens": "Tokens of the calls of a judge",
    "stage_seconds": "Seconds of each stage of the latest run",
}


class _Archive(TypedDict):
    """The entry of an archive's manifest.json that is read here."""

    sites: dict[str, dict[str, Any]]


def figures_of(run: str) -> Figures:
    """Return the figures of a finished run (URI). Raises DupqError if its metrics are missing or damaged."""
    opened, success = Run(run), read_success(run)
    metrics = opened.metrics
    drift, links, judge = metrics["drift"] or {}, metrics["links"] or {}, metrics.get("judge") or {}
    return {
        "last_success_timestamp_seconds": success and datetime.fromisoformat(success["finished"]).timestamp(),
        "questions": metrics["questions"],
        "groups": metrics["clusters"],
        "questions_in_groups": metrics["questions_in_clusters"],
        "expected_precision": metrics["expected_precision"],
        "changed_share": drift.get("questions_of_clusters_changed"),
        "links_recall": links.get("in_one_cluster"),
        "rejected_rows": _rejected_rows(opened.input("questions") or ""),
        "judge_dollars": judge.get("dollars"),
        "judge_tokens": judge.get("tokens"),
        "stage_seconds": {stage["name"]: stage.get("seconds") or 0.0 for stage in opened.manifest.get("stages") or ()},
    }


def _rejected_rows(questions: str) -> int | None:
    """Return how many rows the ingest left out; None if the table of questions is from elsewhere."""
    archive = read_or_none(storage.join(storage.parent(questions), "manifest.json"), _Archive)
    if archive is None:
        return None
    return sum(site.get(name) or 0 for site in archive["sites"].values() for name in ("rejects", "link_rejects"))


def text_of(figures: Figures) -> str:
    """Return figures in the text format OpenMetrics, without those that were not measured."""
    lines = []
    for name, about in _HELP.items():
        value = figures[name]
        if value is None:
            continue
        lines += [f"# TYPE dupq_{name} gauge", f"# HELP dupq_{name} {about}."]
        if isinstance(value, Mapping):
            lines += [f'dupq_{name}{{stage="{stage}"}} {seconds}' for stage, seconds in value.items()]
        else:
            lines.append(f"dupq_{name} {value}")
    return "\n".join([*lines, "# EOF", ""])


def write(run: str) -> None:
    """Write the figures of a run that has just succeeded next to latest.json."""
    storage.write_bytes(storage.join(storage.parent(run), FILE), text_of(figures_of(run)).encode())


def listing(output: str, now: datetime) -> list[dict[str, object]]:
    """Return the runs below `output`, oldest first, with the figures of finished ones. Raises DupqError for none."""
    runs = known_runs(output, now)
    if not runs:
        raise DupqError(f"{output}: no runs here; give the --output of dupq dedup")
    return thread_map(lambda run: _listed(output, run), runs)


def _listed(output: str, run: KnownRun) -> dict[str, object]:
    uri = storage.join(output, run.run_id)
    when = run.touched.astimezone(UTC).isoformat(timespec="seconds")
    own = {"run": run.run_id, "state": str(run.state), "finished" if run.is_whole else "touched": when}
    figures: Mapping[str, object] = {}
    with contextlib.suppress(DupqError):  # one run that has lost its measures hides no others
        figures = figures_of(uri) if run.is_whole else {}
    return {**own, "size_bytes": run.size, "previous": run.previous, **figures}


def table(listed: Sequence[Mapping[str, object]]) -> str:
    """Return the runs as lines under a heading."""
    rows: list[Sequence[str]] = [
        ("run", "state", "finished (UTC)", "questions", "groups", "right (est.)", "changed", "size")
    ]
    shown = {"questions": ",", "groups": ",", "expected_precision": ".0%", "changed_share": ".0%"}
    for run in listed:
        cells = ["" if run.get(name) is None else format(run[name], how) for name, how in shown.items()]
        when, size = str(run.get("finished", ""))[:16].replace("T", " "), size_of(float(str(run["size_bytes"])))
        rows.append((str(run["run"]), str(run["state"]), when, *cells, size))
    return "\n".join(aligned(rows, 3))


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return rows of a table as lines; the first `left` columns are flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def status(uri: str, now: datetime) -> dict[str, object]:
    """Return what `dupq status` says of a run, or of the newest run below `uri`. Raises DupqError if there is none."""
    run, known, progress = inventory.status_of(uri, now)
    told: dict[str, object] = {"run": run, "state": str(known.state)}
    if known.is_whole:
        return {**told, **figures_of(run)}
    if progress is not None:
        names = ("stage", "step", "done", "total", "since", "updated")
        told |= {name: value for name, value in progress.items() if name in names}
        told["attempt"] = progress["state"]
    return told
