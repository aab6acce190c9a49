"""What is told of a run in words: its summary for the terminal, values as a reader sees them, and commands to go on
with.
"""

import shlex
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

from dupq import storage
from dupq.runs.reader import Run, read_metrics
from dupq.runs.records import Calibration, Estimated, Judged, LinkQuality, Metrics, PlantedMeasures, Verdicts

ABSENT = "–"
Shown = TypeVar("Shown")


def _or_dash(show: Callable[[Shown], str]) -> Callable[[Shown | None], str]:
    @wraps(show)
    def shown(value: Shown | None) -> str:
        return ABSENT if value is None else show(value)

    return shown


@_or_dash
def number(value: int) -> str:
    """A count: 6,118."""
    return f"{value:,}"


def counted(count: int, noun: str) -> str:
    """A count of things: 1 pair, 6,118 pairs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@_or_dash
def share(value: float) -> str:
    """A share of one: 12.3 %."""
    return f"{value:.1%}".replace("%", " %")


@_or_dash
def score(value: float) -> str:
    """A similarity, a Jaccard coefficient or a probability: 0.873."""
    return f"{value:.3f}"


@_or_dash
def duration(seconds: float) -> str:
    """A time in two units at most: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


@_or_dash
def memory(megabytes: float) -> str:
    """An amount of memory: 512 MB, 1.5 GB."""
    return f"{megabytes:,.0f} MB" if megabytes < 1_000 else f"{megabytes / 1_000:,.1f} GB"


@_or_dash
def words(name: str) -> str:
    """A name of the program as words: near_duplicates is "Near duplicates"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def program() -> str:
    """How dupq is called in this terminal: by its path where only its own environment has it."""
    beside = Path(sys.executable).with_name("dupq")
    return shlex.quote(str(beside)) if shutil.which("dupq") is None and beside.exists() else "dupq"


def review(run: Run) -> str:
    """The command that judges the worklist of `run` in a terminal."""
    return shlex.join(["dupq", "review", "--run", run.uri])


def with_verdicts(run: Run) -> str:
    """The job that reads verdicts on the sample of `run`."""
    inputs = run.manifest["inputs"]
    given = [
        ("--questions", inputs["questions"]),
        ("--links", inputs.get("links")),
        ("--encoder", inputs.get("encoder")),
        ("--output", storage.parent(run.uri)),
        ("--verdicts", f"review-{run.manifest['run_id']}.tsv"),
    ]
    words = [word for name, value in given if value is not None for word in (name, value)]
    return shlex.join(["dupq", "dedup", *words])


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
