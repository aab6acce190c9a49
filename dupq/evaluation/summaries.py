"""What is measured on known duplicates, as JSON has it and as text tables show it, and what a run cannot tell of
itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import TypedDict


class Labelled(TypedDict):
    """Measures on labelled pairs."""

    duplicates: int
    others: int
    systems: dict[str, dict[str, float]]


class Known(TypedDict, total=False):
    """Measures of each system, by its name."""

    left_out: dict[str, int]
    test_queries: int
    test_queries_available: int
    archive_questions: int
    retrieval: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, list[float]]]  # of 95 per cent, for some measures of `retrieval`: low, high
    balanced_pairs: dict[str, float]  # accuracies, and the number of `pairs`
    labelled_pairs: Labelled | None  # None where pairs of one of the two labels are missing
    labels: dict[str, int]  # see Labels.counts


_RETRIEVAL = {
    "accuracy_at_1": "Acc@1",
    "accuracy_at_5": "Acc@5",
    "accuracy_at_10": "Acc@10",
    "map": "MAP",
    "recall_at_1": "R@1",
    "recall_at_5": "R@5",
    "recall_at_10": "R@10",
    "recall_at_100": "R@100",
}
_LABELLED = {"accuracy": "Acc", "average_precision": "AP", "roc_auc": "AUC"}


def retrieval_table(known: Known) -> str:
    """One row a system: Accuracy@1, @5, @10, MAP and recall@k as far as the ranking goes, in per cent.

    Under it the intervals of 95 per cent, where they are known.
    """
    head = f"{known['test_queries']} test questions against {known['archive_questions']:,} questions"
    cut = max((int(measures["map_cut"]) for measures in known["retrieval"].values()), default=0)
    columns = _RETRIEVAL | {"map": f"MAP@{cut}"}
    return "\n".join([head, *_rows(known["retrieval"], columns), *_interval_rows(known.get("intervals", {}), columns)])


def _interval_rows(systems: dict[str, dict[str, list[float]]], columns: dict[str, str]) -> list[str]:
    """A heading, and a line a system: the intervals of 95 per cent of some measures."""
    lines = []
    for name, measures in systems.items():
        cells = (f"{columns[key]} {100 * low:.1f} to {100 * high:.1f}" for key, (low, high) in measures.items())
        lines.append(f"{name:24}" + ", ".join(cells))
    return ["95 % intervals, by bootstrap over the test questions", *lines] if lines else []


def pairs_table(known: Known) -> str:
    """One row a system: accuracy on balanced pairs, and the measures on labelled ones if there are any; in per cent."""
    measures = dict(known["balanced_pairs"])
    head = f"{measures.pop('pairs')} test pairs, half of them linked, half random"
    rows = [head, *(f"{name:24}{100 * value:8.1f}" for name, value in measures.items())]
    labelled = known.get("labelled_pairs")
    if labelled:
        rows.append(f"{labelled['duplicates']} test pairs labelled 1, {labelled['others']} labelled 0")
        rows += _rows(labelled["systems"], _LABELLED)
    return "\n".join(rows)


def left_out(known: Known) -> str:
    """What was not measured on, and why, in one or two lines."""
    seen = known["left_out"]
    lines = [
        f"not measured: {seen['train']:,} questions with known duplicates, for training, and {seen['development']:,}, "
        "for tuning"
    ]
    labels = known.get("labels")
    if labels:
        in_training = f", {seen['labelled_pairs']:,} seen in training" if "labelled_pairs" in seen else ""
        lines.append(
            f"of {labels['lines']:,} labelled pairs {labels['not_in_archive']:,} are not in the archive, "
            f"{labels['repeated']:,} repeated, {labels['contradictory']:,} labelled 0 within a set of duplicates"
            f"{in_training}"
        )
    return "\n".join(lines)


def _rows(systems: dict[str, dict[str, float]], columns: dict[str, str]) -> list[str]:
    """A heading, and a row a system with what it has of the columns, in per cent."""
    there = {key: label for key, label in columns.items() if any(key in measures for measures in systems.values())}
    rows = [f"{'':24}" + "".join(f"{label:>8}" for label in there.values())]
    for name, measures in systems.items():
        cells = (f"{100 * measures[key]:8.1f}" if key in measures else f"{'-':>8}" for key in there)
        rows.append(f"{name:24}" + "".join(cells))
    return rows


TABLES: dict[str, Callable[[Known], str]] = {"pairs": pairs_table, "retrieval": retrieval_table}


def not_measured(metrics: Mapping[str, Any], has_links: bool) -> dict[str, str]:
    """The reason for each measure of metrics.json that is null, or rests on nothing of this archive, by its name.

    `has_links`: the run was given links, and did not ignore them.
    """
    found, calibration = {}, metrics["calibration"]
    if metrics["links"] is None:
        why = "none has both questions in the archive, or the encoder was trained on all of them"
        found["links"] = (
            f"no known duplicates to test on ({why if has_links else 'the run was given no links, or ignored them'}): "
            "neither the recall nor the precision of clusters is known"
        )
    if not calibration["development_sets"] and not calibration["judged_pairs"]:
        found["calibration"] = (
            "no known duplicates to calibrate on, and no verdicts: probabilities are those of a prior, learned on "
            f"{len(calibration['prior_sites'])} other sites"
        )
    return found
