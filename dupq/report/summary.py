"""The summary of a run in a few lines, for the terminal."""

import shlex

from dupq import storage
from dupq.report.commands import program
from dupq.runs.reader import Run, read_metrics
from dupq.runs.records import (
    Calibration,
    Estimated,
    Judged,
    LinkQuality,
    Metrics,
    PlantedMeasures,
    Verdicts,
)


def summary(run_uri: str) -> str:
    """What was found in a finished run, how good it is, and where everything is."""
    metrics, language = read_metrics(run_uri), Run(run_uri).manifest["inputs"].get("language")
    sites = sum(1 for count in metrics["sites"].values() if count)
    lines = [
        f"questions         {metrics['questions']:>12,} of {sites} site(s)",
        *([f"language          {'':>12} {language}"] if language else []),
        f"exact copies      {metrics['exact_copies']:>12,}",
        f"near duplicates   {metrics['near_duplicate_pairs']:>12,} pairs",
        f"encoder           {_sure_pairs(metrics)}",
        f"decided by        {'':>12} {decided_by(metrics['calibration'])}",
        f"clusters          {metrics['clusters']:>12,} of {metrics['questions_in_clusters']:,} questions,"
        f" the largest of {metrics['largest_cluster']:,}",
        *_worklist(metrics, run_uri),
        *_links(metrics.get("links")),
        *_judged(metrics.get("judged")),
        *_verdicts(metrics.get("verdicts")),
        *_not_measured(metrics.get("not_measured") or {}),
        *_planted(metrics.get("planted")),
        f"run               {run_uri}",
        f"report            {storage.join(run_uri, 'report.html')}",
        f"open next         the report in a browser; all clusters: {program()} serve --run {shlex.quote(run_uri)};"
        f" to judge the worklist here: {program()} review --run {shlex.quote(run_uri)}",
    ]
    return "\n".join(lines)


def _sure_pairs(metrics: Metrics) -> str:
    count, chosen = metrics["encoder_pairs_above_threshold"], metrics["thresholds"][0]
    if not count:
        return f"{0:>12} of {metrics['encoder_pairs']:,} candidate pairs: none is sure enough for {chosen['precision']}"
    return (
        f"{count:>12,} pairs of a probability of {metrics['threshold']:.3f} and more, of {metrics['encoder_pairs']:,}"
        f" candidates (expected precision {chosen['expected_precision']:.2f})"
    )


def decided_by(calibration: Calibration) -> str:
    """What the probabilities rest on, in words."""
    prior = f"the prior of {len(calibration['prior_sites'])} sites"
    own = [f"{calibration['development_sets']} sets of known duplicates"] if calibration["development_sets"] else []
    own += [f"{calibration['judged_pairs']} verdicts"] if calibration.get("judged_pairs") else []
    if not own:
        return f"{prior} alone: no known duplicates of this archive to weigh"
    return f"{prior} and {' and '.join(own)} ({calibration['own_share']:.0%} this archive's own)"


def _links(links: LinkQuality | None) -> list[str]:
    if not links:
        return []
    count, together, found = links["test_links"], 100 * links["in_one_cluster"], 100 * links["in_pairs"]
    nearest = (links.get("among_nearest") or {}).get("10")
    listed = "" if nearest is None else f", {100 * nearest:.1f} % among the ten nearest"
    return [
        f"known links       {count:>12,} never fitted on: {together:.1f} % in one cluster at this threshold{listed},"
        f" {found:.1f} % among the candidate pairs"
    ]


def _worklist(metrics: Metrics, run_uri: str) -> list[str]:
    work = metrics.get("worklist")
    if not work or not work["pairs"]:
        return []
    place = storage.join(run_uri, "worklist.tsv")
    expected = f"{work['expected_right']:.0f} of the first {work['first']} expected to be right"
    return [
        f"worklist          {work['pairs']:>12,} pairs not joined, {expected} by {decided_by(metrics['calibration'])}:"
        f" {place}"
    ]


def _judged(told: Verdicts | None) -> list[str]:
    if not told:
        return []
    lost = [f"{told['contradicted']} others replaced by later ones"] if told["contradicted"] else []
    lost += [f"{told['contradicting']} same given up, as different wins"] if told["contradicting"] else []
    counts = [f"{told[name]} {name}" for name in ("same", "different", "unsure")]
    pairs = told["same"] + told["different"] + told["unsure"]
    return [f"judged            {pairs:>12,} pairs: {', '.join([*counts, *lost])}"]


def _verdicts(told: Judged | None) -> list[str]:
    if not told:
        return []
    shown = [f"{name} {_between(told[name])}" for name in ("precision", "recall") if told[name]]
    said = ", ".join(shown) or "none on a joined pair, so no precision yet: judge more"
    return [f"verdicts          {told['judged']:>12,} on run {told['run_id']}: {said}"]


def _between(found: Estimated | None) -> str:
    return f"{found['value']:.0%} ({found['lower']:.0%} to {found['upper']:.0%})" if found else ""


def _not_measured(reasons: dict[str, str]) -> list[str]:
    if "links" not in reasons:
        return []
    return [f"known duplicates  {'not measured':>12}: {reasons['links']}"]


def _planted(planted: dict[str, PlantedMeasures | None] | None) -> list[str]:
    if not planted:
        return []
    shares = {name: (values or {}).get("same_cluster") for name, values in planted.items()}
    shown = [f"{100 * share:.1f} % of {name}" for name, share in shares.items() if share is not None]
    return [f"planted           {'':>12} {', '.join(shown)} pairs in one cluster"]
