"""The JSON files of a run, as far as dupq itself reads them. A run of another version may lack some of it."""

from typing import TypedDict

from dupq.evaluation.records import Known


class StageRecord(TypedDict):
    """What a finished stage left in `stages/`, and in manifest.json."""

    name: str
    seconds: float
    tasks: int
    rows_in: int
    rows_out: int
    peak_memory_mb: float
    counts: dict[str, int]
    caps: dict[str, int]


class Calibration(TypedDict, total=False):
    """What the probabilities of pairs rest on."""

    prior_sites: list[str]
    development_sets: int
    judged_pairs: int
    own_share: float


class LinkQuality(TypedDict, total=False):
    """Quality on the known duplicates of the test part."""

    in_one_cluster: float
    thresholds: list[dict[str, float]]
    calibration: dict[str, list[float]]  # columns of evaluation.clusters.Calibration, beside single numbers


class Drift(TypedDict, total=False):
    """What differs from an earlier run."""

    questions_of_clusters_changed: float


class Metrics(TypedDict, total=False):
    """metrics.json."""

    questions: int
    sites: dict[str, int]
    exact_copies: int
    near_duplicate_pairs: int
    encoder_pairs: int
    encoder_pairs_above_threshold: int
    threshold: float
    thresholds: list[dict[str, float]]
    calibration: Calibration
    clusters: int
    questions_in_clusters: int
    largest_cluster: int
    known_duplicates: Known | None
    planted: dict[str, dict[str, float]] | None
    links: LinkQuality | None
    drift: Drift | None
