"""The result of a part of an experiment, as JSON has it."""

from typing_extensions import TypedDict


class Result(TypedDict):
    """What was measured of a system on a data set."""

    values: dict[str, float]  # by measure, from 0 to 1
    each: dict[str, list[float]]  # by measure, of each test pair or query
    parameters: dict[str, object]  # that were tuned
    curve: list[dict[str, float]]  # of a network, a row an epoch
    sizes: dict[str, int]  # training_pairs: that the system has learned from, of both labels
    counts: dict[str, int]  # what the limits left out
    seconds: float
