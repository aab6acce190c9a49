"""A run in words: its summary for the terminal, values as a reader sees them, and the commands to continue with."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dupq import storage
from dupq.job.records import Measures, Metrics, Pointer
from dupq.runs.reader import Run
from dupq.storage import read_or_none


def number(value: int) -> str:
    """Return a count: 6,118."""
    return f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Return a count of things: 1 pair, 6,118 pairs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def share(value: float) -> str:
    """Return a share: 12.3 %."""
    return f"{value:.1%}".replace("%", " %")


def score(value: float) -> str:
    """Return a similarity, a Jaccard coefficient or a probability: 0.873."""
    return f"{value:.3f}"


def duration(seconds: float) -> str:
    """Return a time in two units at most: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def memory(megabytes: float) -> str:
    """Return an amount of memory: 512 MB, 1.5 GB."""
    return f"{megabytes:,.0f} MB" if megabytes < 1_000 else f"{megabytes / 1_000:,.1f} GB"


def words(name: str) -> str:
    """Return an identifier as words: near_duplicates is "Near duplicates"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def program() -> str:
    """Return how dupq is called in this terminal: by its path if it is not on the PATH."""
    beside = Path(sys.executable).with_name("dupq")
    return shlex.quote(_shown(str(beside))) if shutil.which("dupq") is None and beside.exists() else "dupq"


def next_run(run: Run, verdicts: str = "") -> str:
    """Return the command of the next run; it reads the file `verdicts` that a browser has saved, if there is one.

    It is the user's own command, if that is known. What the run read of verdicts, it has kept.
    """
    inputs = run.manifest["inputs"]
    named = {"--questions": inputs["questions"], "--links": inputs.get("links"), "--encoder": inputs.get("encoder")}
    words = [word for name, value in named.items() if value is not None for word in (name, value)]
    command = inputs.get("command") or shlex.join(["dupq", "dedup", *words, "--output", storage.parent(run.uri)])
    if verdicts and inputs.get("verdicts") and "--previous" not in command:
        command += f" --previous {shlex.quote(storage.parent(run.uri))}"
    return f"{command} --verdicts ~/Downloads/{verdicts}" if verdicts else command


def summary(run_uri: str) -> str:
    """Return what a finished run found, what it missed, why to trust it, and what to do next."""
    run, uri = Run(run_uri), shlex.quote(_named(run_uri))
    blocks = {
        **findings(run),
        "OPEN": [_shown(storage.join(run_uri, "report.html"))],
        "NEXT": [
            f"judge likely pairs here    {program()} review --run {uri}",
            f"look through all groups    {program()} serve --run {uri}",
            f"one question per group     {program()} export --to keep-drop --run {uri} --output keep-drop",
        ],
    }
    seconds = sum(stage["seconds"] or 0.0 for stage in run.manifest["stages"] or ())
    return f"\n{archive_of(run)}, compared in {duration(seconds)}\n\n{in_lines(blocks)}"


def _named(run: str) -> str:
    """Return what to call a run by in a command: its folder of runs if it is the latest there."""
    runs = storage.parent(run)
    pointer = read_or_none(storage.join(runs, "latest.json"), Pointer)
    return _shown(runs if pointer and pointer["run_id"] == storage.name(run) else run)


def _shown(path: str) -> str:
    """Return a path relative to the working folder, if it is below it."""
    return path.removeprefix(f"{Path.cwd()}/")


def in_lines(blocks: Mapping[str, Sequence[str]]) -> str:
    """Return text lines, with each heading before its first line."""
    lines = [("" if index else name, line) for name, block in blocks.items() for index, line in enumerate(block)]
    return "\n".join(f"{name:9} {line}" for name, line in lines)


def findings(run: Run) -> dict[str, list[str]]:
    """Return what a run found, what it missed and why to trust it, as lines by heading."""
    blocks = {"FOUND": [*_found(run)], "MISSED": [*_missed(run)], "TRUST": [*_trust(run.metrics)]}
    fitness = run.metrics["calibration"].get("fitness") or {}
    if fitness.get("bodies_found", 0) is None:
        blocks["NOTE"] = ["no text, only titles: few duplicates in other words are found, and fewer are joined"]
    return blocks


def archive_of(run: Run) -> str:
    """Return the size, the sites and the language of the archive: 6,118 questions of cs (English)."""
    names = [name for name, count in run.metrics["sites"].items() if count]
    language = str(run.manifest["inputs"].get("language") or "")
    language = language.partition(",")[0].capitalize()  # without how it was recognised
    sites = names[0] if len(names) == 1 else counted(len(names), "site")
    return f"{counted(run.metrics['questions'], 'question')} of {sites}" + (f" ({language})" if language else "")


def _found(run: Run) -> Iterator[str]:
    metrics = run.metrics
    groups, members = metrics["clusters"], metrics["questions_in_clusters"]
    if groups:
        sizes = f"{members:,} questions, at most {metrics['largest_cluster']:,} in a group"
        yield f"{counted(groups, 'group')} of duplicates: {sizes}, so {members - groups:,} could be closed"
    else:
        yield "no group of duplicates"
    copies = metrics["exact_copies"] + metrics["near_duplicate_pairs"]
    pairs = counted(copies, "pair") if copies else "no pair"
    yield f"{pairs} of the same or almost the same text (compared word by word)"
    yield _sure_pairs(metrics, run.settings.clusters.threshold < 0)
    judged, planted = metrics["judged"], metrics["planted"]
    if judged and judged["same"]:
        yield f"{counted(judged['same'], 'pair')} judged the same by people"
    if planted:
        shares = {name.replace("_", " "): values["same_cluster"] for name, values in planted.items()}
        kinds = [f"{100 * share:.0f} % of {name} pairs" for name, share in shares.items()]
        yield f"planted duplicates in one group: {', '.join(kinds)}"


def _sure_pairs(metrics: Metrics, is_chosen: bool) -> str:
    """`is_chosen` says whether the threshold was chosen for a precision; else it was set."""
    chosen, above, threshold = metrics["thresholds"][0], metrics["encoder_pairs_above_threshold"], metrics["threshold"]
    if not above:
        pairs = counted(metrics["encoder_pairs"], "pair")
        wanted = f"to be right {10 * chosen['precision']:g} times of 10" if is_chosen else f"({threshold:.3f})"
        return f"no pair of the same meaning: of {pairs} compared none is sure enough {wanted}"
    joined, right = counted(metrics["encoder_pairs_joined"], "pair"), f"{metrics['expected_right']:,.0f}"
    return f"{joined} of the same meaning; perhaps {right} of them right (an estimate; threshold {threshold:.3f})"


def _missed(run: Run) -> Iterator[str]:
    links, work, reasons = run.metrics["links"], run.metrics["worklist"], run.metrics["not_measured"]
    if links:
        count, searched, grouped = links["test_links"], links["searched_links"], links["in_one_cluster"]
        nearest = links["among_nearest"].get("10")
        result = "all are joined by their links" if grouped is None else f"{_are(grouped * count)} in its groups"
        yield f"users had marked {counted(count, 'duplicate')} that dupq did not see: {result}"
        if nearest is not None:
            among = f"{_are(nearest * searched)} among the ten questions that it finds most alike"
            yield f"of the {searched:,} that are no copies, {among}"
    if "links" in reasons:
        yield "not known: nobody has marked duplicates here that dupq could be tested on"
    if work["pairs"]:
        first = "its" if work["pairs"] <= work["first"] else f"the first {work['first']}"
        sheet = _shown(storage.join(run.uri, "worklist.tsv"))
        yield f"{counted(work['pairs'], 'more pair')} to look at, likeliest first: {sheet}"
        calibration = run.metrics["calibration"]
        is_own = calibration["development_sets"] or calibration.get("judged_pairs")
        basis = "" if is_own else ", a guess from other sites"
        yield f"perhaps {_between(work)} of {first} are duplicates (an estimate{basis})"


def _between(work: Measures) -> str:
    """Return in words how many of the worklist's first pairs are right, four times of five."""
    expected, most, factor = work["expected_right"], work["first"], work["factor"]
    low, high = min(most, expected / factor), min(most, expected * factor)
    return f"{low:.0f} to {high:.0f}" if round(low) != round(high) else f"{expected:.0f}"


def _are(count: float) -> str:
    return f"{count:,.0f} {'is' if round(count) == 1 else 'are'}"


def _trust(metrics: Metrics) -> Iterator[str]:
    yield f"probabilities are estimates from {grounds(metrics['calibration'])}"
    judged, sample, judge = metrics["judged"], metrics["verdicts"], metrics.get("judge")
    if judge:
        yield from judge_lines(judge)
    if judged:
        counts = [f"{judged[name]} {name}" for name in ("same", "different", "unsure")]
        if judged["contradicted"]:
            counts.append(f"{judged['contradicted']} replaced by later verdicts")
        if judged["contradicting"]:
            counts.append(f"{judged['contradicting']} same dropped, as different wins")
        pairs = judged["same"] + judged["different"] + judged["unsure"]
        yield f"{counted(pairs, 'pair')} judged: {', '.join(counts)}"
    checked = metrics.get("checked")
    if checked and checked["pairs"]:
        share_right = f"at least {checked['least']:.0%} of all such pairs, 95 times of 100, if judged ones are typical"
        pairs = counted(checked["pairs"], "judged pair")
        yield f"of {pairs} that are sure enough to join {checked['right']:,} are right: {share_right}"
    if sample:
        measured = {name: sample[name] for name in ("precision", "recall") if sample[name]}
        estimates = [
            f"{name} {of['value']:.0%} ({of['lower']:.0%} to {of['upper']:.0%})" for name, of in measured.items()
        ]
        shown = ", ".join(estimates) or "none on a joined pair, so no precision yet: judge more"
        yield f"{counted(sample['judged'], 'verdict')} on the sample of run {sample['run_id']}: {shown}"
    if not judged and not sample:
        yield "nobody has judged a pair yet: 50 of the list take ten minutes and correct the next run"


def judge_lines(judge: Measures) -> Iterator[str]:
    """Yield what a judge did, what it cost and how far it is trusted, in lines."""
    cost = f"{judge['tokens']:,} tokens" + (f", ${judge['dollars']:.2f}" if judge["dollars"] else "")
    yield f"the judge {judge['model']} read {judge['answered']:,} of {counted(judge['pairs'], 'pair')} ({cost}): " + (
        f"{judge['yes']:,} times yes" if judge["usable"] else "no usable answer"
    )
    reasons = sorted({trust["reason"] for trust in judge["trust"].values() if trust["reason"]})
    yield from (f"its answers are not used: {reason}" for reason in reasons)
    if judge["is_used"]:
        used = [trust for trust in judge["trust"].values() if not trust["reason"]]
        people = judge["people"]
        basis = f"of {counted(people['pairs'], 'pair')} that people judged it agrees on {people['agree']:,}"
        if people["yes"]:
            least = f"at least {people['least_right']:.0%}"
            basis += f", and {people['right']} of its {people['yes']} times yes are right: {least}"
        least, most = (f"{f(trust['false_yes'] for trust in used):.0%}" for f in (min, max))
        share_of = least if least == most else f"{least} to {most}"
        yield f"it says yes to about {share_of} of the wrong pairs, by its answers; " + (
            basis if people["pairs"] else "no person has judged a pair that it read (dupq review --judge)"
        )
    yield from judge["lines"]


def grounds(calibration: Measures) -> str:
    """Return in words what the probabilities rest on."""
    prior, own = counted(len(calibration["prior_sites"]), "other site"), list[str]()
    if calibration["development_sets"]:
        own.append(f"{counted(calibration['development_sets'], 'set')} of known duplicates")
    if calibration.get("judged_pairs"):
        own.append(counted(calibration["judged_pairs"], "verdict"))
    if not own:
        return f"{prior} alone: nobody has marked duplicates here"
    weight = calibration["own_share"]
    return f"{prior} ({1 - weight:.0%}) and {' and '.join(own)} of this archive ({weight:.0%})"
