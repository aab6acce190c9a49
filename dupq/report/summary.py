"""A run in words: its summary for the terminal, values as a reader sees them, and the commands to go on with."""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TypeVar

from dupq import storage
from dupq.runs.reader import Run, read_metrics
from dupq.runs.records import Measures, Metrics

ABSENT = "–"
_NEEDED = {"sites", "clusters", "thresholds", "calibration", "encoder_pairs_above_threshold"}  # metrics
Shown = TypeVar("Shown")


def _or_dash(show: Callable[[Shown], str]) -> Callable[[Shown | None], str]:
    @wraps(show)
    def shown(value: Shown | None) -> str:
        return ABSENT if value is None else show(value)

    return shown


@_or_dash
def number(value: int) -> str:
    """Return a count: 6,118."""
    return f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Return a count of things: 1 pair, 6,118 pairs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@_or_dash
def share(value: float) -> str:
    """Return a share: 12.3 %."""
    return f"{value:.1%}".replace("%", " %")


@_or_dash
def score(value: float) -> str:
    """Return a similarity, a Jaccard coefficient or a probability: 0.873."""
    return f"{value:.3f}"


@_or_dash
def duration(seconds: float) -> str:
    """Return a time in two units at most: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


@_or_dash
def memory(megabytes: float) -> str:
    """Return an amount of memory: 512 MB, 1.5 GB."""
    return f"{megabytes:,.0f} MB" if megabytes < 1_000 else f"{megabytes / 1_000:,.1f} GB"


@_or_dash
def words(name: str) -> str:
    """Return an identifier as words: near_duplicates is "Near duplicates"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def program() -> str:
    """Return how dupq is called in this terminal: by its path if it is not on the PATH."""
    beside = Path(sys.executable).with_name("dupq")
    return shlex.quote(str(beside)) if shutil.which("dupq") is None and beside.exists() else "dupq"


def review(run: Run) -> str:
    """Return the command that judges the worklist of `run` in a terminal."""
    return shlex.join(["dupq", "review", "--run", run.uri])


def with_verdicts(run: Run) -> str:
    """Return the command of a job that reads verdicts on the sample of `run`."""
    inputs = run.manifest["inputs"]
    options = [
        ("--questions", inputs["questions"]),
        ("--links", inputs.get("links")),
        ("--encoder", inputs.get("encoder")),
        ("--output", storage.parent(run.uri)),
        ("--verdicts", f"review-{run.manifest['run_id']}.tsv"),
    ]
    words = [word for name, value in options if value is not None for word in (name, value)]
    return shlex.join(["dupq", "dedup", *words])


def summary(run_uri: str) -> str:
    """Return what a finished run found, what it missed, why to trust it, and what to do next."""
    run = shlex.quote(run_uri)
    lines = {
        **findings(run_uri),
        "OPEN": [storage.join(run_uri, "report.html")],
        "NEXT": [
            f"judge likely pairs here    {program()} review --run {run}",
            f"look through all clusters  {program()} serve --run {run}",
            f"one question per cluster   {program()} export --to keep-drop --run {run} --output keep-drop",
        ],
    }
    return in_lines(lines)


def in_lines(blocks: Mapping[str, Sequence[str]]) -> str:
    """Return text lines, with each heading before its first line."""
    lines = [("" if index else name, line) for name, block in blocks.items() for index, line in enumerate(block)]
    return "\n".join(f"{name:9} {line}" for name, line in lines)


def findings(run_uri: str) -> dict[str, list[str]]:
    """Return what a run found, what it missed and why to trust it, as lines by heading.

    The result is empty if the run's metrics.json is from another version.
    """
    metrics, run = read_metrics(run_uri), Run(run_uri)
    if not metrics.keys() >= _NEEDED:
        return {}
    reasons = metrics.get("not_measured") or {}
    return {
        "FOUND": _found(
            metrics, str(run.manifest["inputs"].get("language") or ""), run.settings.clusters.threshold < 0
        ),
        "MISSED": [
            *_links(metrics.get("links")),
            *([f"not measured: {reasons['links']}"] if "links" in reasons else []),
            *_worklist(metrics, run_uri),
        ],
        "TRUST": _trust(metrics),
    }


def _found(metrics: Metrics, language: str, is_chosen: bool) -> list[str]:
    sites = counted(sum(1 for count in metrics["sites"].values() if count), "site")
    language = language.partition(",")[0].capitalize()  # without how it was recognised
    archive = f"{counted(metrics['questions'], 'question')} of {sites}" + (f" ({language})" if language else "")
    found = f"no group of duplicates among {archive}"
    if metrics["clusters"]:
        groups, members = counted(metrics["clusters"], "group"), f"{metrics['questions_in_clusters']:,} questions"
        found = f"{groups} of duplicates ({members}, at most {metrics['largest_cluster']:,} in a group) among {archive}"
    texts = f"{counted(metrics['exact_copies'], 'pair')} of identical text"
    same = (metrics.get("judged") or {}).get("same")
    return [
        found,
        f"{texts}, {metrics['near_duplicate_pairs']:,} of almost identical text",
        _sure_pairs(metrics, is_chosen),
        *([f"{counted(same, 'pair')} judged the same by people"] if same else []),
        *_planted(metrics.get("planted")),
    ]


def _sure_pairs(metrics: Metrics, is_chosen: bool) -> str:
    """`is_chosen` says whether the threshold was chosen for a precision; else it was set."""
    chosen, above = metrics["thresholds"][0], metrics["encoder_pairs_above_threshold"]
    count = metrics.get("encoder_pairs_joined", above)
    expected = metrics.get("expected_right", above * (chosen["expected_precision"] or 0))
    if not above:
        enough = (
            f"for a precision of {chosen['precision']}"
            if is_chosen
            else f"for the threshold {metrics['threshold']:.3f}"
        )
        pairs = counted(metrics["encoder_pairs"], "candidate pair")
        return f"none of {pairs} is sure enough {enough}"
    right = f"about {expected:,.0f} of them right"
    least = f"estimated; threshold {metrics['threshold']:.3f}"
    return f"{counted(count, 'pair')} of the same meaning, {right} ({least})"


def _trust(metrics: Metrics) -> list[str]:
    judged = [*_judged(metrics.get("judged")), *_verdicts(metrics.get("verdicts"))]
    advice = (
        "no pair is judged yet: judge listed pairs to improve the next run, or the report's random sample to "
        "measure this one"
    )
    return [f"probabilities rest on {grounds(metrics['calibration'])}", *(judged or [advice])]


def grounds(calibration: Measures) -> str:
    """Return in words what the probabilities rest on."""
    prior, own = counted(len(calibration["prior_sites"]), "other site"), list[str]()
    if calibration["development_sets"]:
        own.append(f"{counted(calibration['development_sets'], 'set')} of known duplicates")
    if calibration.get("judged_pairs"):
        own.append(counted(calibration["judged_pairs"], "verdict"))
    if not own:
        return f"{prior} alone: this archive has no known duplicates to weigh"
    weight = calibration["own_share"]
    return f"{prior} ({share(1 - weight)}) and on {' and '.join(own)} of this archive ({share(weight)})"


def _links(links: Measures | None) -> list[str]:
    if not links:
        return []
    count, searched = links["test_links"], links.get("searched_links")
    nearest = (links.get("among_nearest") or {}).get("10")
    grouped = links["in_one_cluster"]
    result = "all are joined by their links" if grouped is None else f"{_are(grouped * count)} in one group"
    line = f"of {counted(count, 'known duplicate')} set aside as a test, {result}"
    if nearest is not None and searched:
        line += f"; of the {searched:,} without copies, {_are(nearest * searched)} among each other's ten nearest"
    return [line]


def _are(count: float) -> str:
    return f"{count:,.0f} {'is' if round(count) == 1 else 'are'}"


def _worklist(metrics: Metrics, run_uri: str) -> list[str]:
    work = metrics.get("worklist")
    if not work or not work["pairs"]:
        return []
    right = f"about {work['expected_right']:.0f} of the first {work['first']} are right"
    return [f"{work['pairs']:,} likely pairs are listed, not joined; {right}: {storage.join(run_uri, 'worklist.tsv')}"]


def _judged(verdicts: Measures | None) -> list[str]:
    if not verdicts:
        return []
    ignored = [f"{verdicts['contradicted']} replaced by later verdicts"] if verdicts["contradicted"] else []
    ignored += [f"{verdicts['contradicting']} same dropped, as different wins"] if verdicts["contradicting"] else []
    counts = [f"{verdicts[name]} {name}" for name in ("same", "different", "unsure")]
    pairs = verdicts["same"] + verdicts["different"] + verdicts["unsure"]
    return [f"{counted(pairs, 'pair')} judged: {', '.join([*counts, *ignored])}"]


def _verdicts(judged: Measures | None) -> list[str]:
    if not judged:
        return []
    measures = [f"{name} {_interval(judged[name])}" for name in ("precision", "recall") if judged[name]]
    estimates = ", ".join(measures) or "none on a joined pair, so no precision yet: judge more"
    return [f"{counted(judged['judged'], 'verdict')} on the sample of run {judged['run_id']}: {estimates}"]


def _interval(estimate: Measures | None) -> str:
    return f"{estimate['value']:.0%} ({estimate['lower']:.0%} to {estimate['upper']:.0%})" if estimate else ""


def _planted(planted: dict[str, Measures | None] | None) -> list[str]:
    if not planted:
        return []
    shares = {name: (values or {}).get("same_cluster") for name, values in planted.items()}
    texts = [
        f"{100 * share:.0f} % of {name.replace('_', ' ')} pairs" for name, share in shares.items() if share is not None
    ]
    return [f"planted duplicates in one group: {', '.join(texts)}"]
