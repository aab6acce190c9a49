"""What is measured on known duplicates, as JSON has it; only what was asked for is there."""

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
