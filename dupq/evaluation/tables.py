"""The measures of known duplicates as tables of text."""

from collections.abc import Callable
from typing import Any


def retrieval_table(known: dict[str, Any]) -> str:
    """One row a system: Accuracy@1, @5, @10 and MAP, in per cent."""
    head = f"{known['test_queries']} test questions against {known['archive_questions']:,} questions"
    rows = [f"{'':24}{'Acc@1':>8}{'Acc@5':>8}{'Acc@10':>8}{'MAP':>8}"]
    for name, measures in known["retrieval"].items():
        values = [measures[key] for key in ("accuracy_at_1", "accuracy_at_5", "accuracy_at_10", "map")]
        rows.append(f"{name:24}" + "".join(f"{100 * value:8.1f}" for value in values))
    return "\n".join([head, *rows])


def pairs_table(known: dict[str, Any]) -> str:
    """One row a system: accuracy on balanced pairs, in per cent."""
    measures = dict(known["balanced_pairs"])
    head = f"{measures.pop('pairs')} test pairs, half of them linked, half random"
    return "\n".join([head, *(f"{name:24}{100 * value:8.1f}" for name, value in measures.items())])


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"pairs": pairs_table, "retrieval": retrieval_table}
