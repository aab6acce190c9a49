"""The JSON files of a run, as far as dupq itself reads them. A run of another version may lack some of it."""

from typing import NotRequired

from typing_extensions import TypedDict

from dupq.json_files import Time

TITLE_WORDS = (0, 4, 8, 12)  # where groups of titles by their number of words begin


class Output(TypedDict):
    """A file as it was written."""

    size: int  # bytes
    checksum: str
    rows: int | None  # of a table


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
    outputs: dict[str, Output]  # by path below the run
    dropped: str | None  # a folder below the run that no later stage needs, and that is removed


class Success(TypedDict):
    """`_SUCCESS`: the run was whole then."""

    outputs: dict[str, Output]  # what lasts of the run, by path below it
    finished: Time  # when (UTC)


class ManifestStage(TypedDict):
    """What manifest.json says of a stage."""

    name: str
    seconds: NotRequired[float | None]
    tasks: NotRequired[int | None]
    rows_in: NotRequired[int | None]
    rows_out: NotRequired[int | None]
    peak_memory_mb: NotRequired[float | None]
    caps: NotRequired[dict[str, int] | None]


class Inputs(TypedDict):
    """What a run was made from: URIs; None: it was not given."""

    questions: str
    previous: NotRequired[str | None]  # the earlier run that it builds on
    links: NotRequired[str | None]
    encoder: NotRequired[str | None]
    truth: NotRequired[str | None]
    language: NotRequired[str | None]  # of the texts, and how it is known, in words


class Manifest(TypedDict):
    """manifest.json."""

    run_id: str
    dupq: NotRequired[str | None]
    versions: NotRequired[dict[str, str] | None]
    inputs: Inputs
    stages: NotRequired[list[ManifestStage] | None]


class NearSettings(TypedDict, total=False):
    """What the report draws from."""

    permutations: int
    threshold: float


class ClusterSettings(TypedDict, total=False):
    """What the report shows, and another decision reads."""

    threshold: float
    known_links: str


class RunSettings(TypedDict, total=False):
    """What is removed of a run."""

    keep_work: bool


class Config(TypedDict, total=False):
    """config.json: what is read of it without a model of its settings, which may be another version's."""

    near_duplicates: NearSettings
    clusters: ClusterSettings
    run: RunSettings


class Calibration(TypedDict):
    """What the probabilities of pairs rest on."""

    prior_sites: list[str]
    development_sets: int
    judged_pairs: NotRequired[int]
    own_share: float


class Choice(TypedDict):
    """A threshold, and what is expected and found from it on."""

    precision: float | None  # that was wanted; None: the threshold was given
    threshold: float
    pairs: float
    expected_precision: float | None
    links_found: NotRequired[float | None]
    lower_bound_precision: NotRequired[float | None]


class AtThreshold(TypedDict):
    """What pairs from a threshold on find of the known duplicates of the test part."""

    threshold: float
    links_found: float
    lower_bound_precision: float | None


class Reliability(TypedDict, total=False):
    """Columns of evaluation.clusters.Calibration, beside single numbers."""

    lower: list[float]
    upper: list[float]
    pairs: list[float]
    mean_probability: list[float]
    share_right: list[float]
    share_of_duplicates_linked: float | None


class LinksOf(TypedDict):
    """Known duplicates of one group of questions, and the share of them that is in one cluster."""

    links: int
    in_one_cluster: float


class LinkQuality(TypedDict, total=False):
    """Quality on the known duplicates of the test part."""

    test_links: int
    in_one_cluster: float
    in_pairs: float  # the share that is among the candidate pairs
    searched_links: int  # those between two questions that are searched, as no near duplicate represents either
    among_nearest: dict[str, float]  # the share of these of which one is among the n nearest of the other, by n
    thresholds: list[Choice]
    by_threshold: list[AtThreshold]
    calibration: Reliability
    by_site: dict[str, LinksOf]
    by_title_words: dict[str, LinksOf]  # by the least number of words of a title's group


PlantedMeasures = dict[str, float | None]  # of one kind of planted pairs, by name


class NowAndThen(TypedDict):
    """A figure of this run and of an earlier one; None: it has none."""

    now: float | None
    then: float | None


class Drift(TypedDict, total=False):
    """What differs from an earlier run."""

    questions_of_clusters_changed: float | None
    questions: NowAndThen
    clusters: NowAndThen
    questions_in_clusters: NowAndThen
    largest_cluster: NowAndThen
    threshold: NowAndThen
    expected_precision: NowAndThen
    recall: NowAndThen


class Estimated(TypedDict):
    """An estimate and its interval of 95 per cent."""

    value: float
    lower: float
    upper: float


class Judged(TypedDict):
    """What verdicts tell of the run whose sample they are on; a measure is None where they cannot tell it."""

    run_id: str
    precision: Estimated | None  # of the joined candidate pairs
    recall: Estimated | None  # of the duplicates among all candidate pairs
    duplicates: Estimated | None  # among all candidate pairs, a number
    judged: int
    unsure: int


class Verdicts(TypedDict):
    """How many verdicts a run knew of, of each pair the last."""

    same: int
    different: int
    unsure: int
    contradicted: int  # by a later verdict on the same pair
    contradicting: int  # pairs that are the same by one verdict, and not by others that win


class Worklist(TypedDict):
    """How long the worklist is, and what is expected of its first pairs."""

    pairs: int
    first: int  # so many
    expected_right: float  # of these, a number of pairs


class Metrics(TypedDict, total=False):
    """metrics.json."""

    questions: int
    sites: dict[str, int]  # questions of each; 0 where all files were left out, or are empty
    exact_copies: int
    near_duplicate_pairs: int
    representatives: int
    encoder_pairs: int
    encoder_pairs_above_threshold: int
    threshold: float | None
    thresholds: list[Choice]
    calibration: Calibration
    clusters: int
    questions_in_clusters: int
    largest_cluster: int
    planted: dict[str, PlantedMeasures | None] | None
    links: LinkQuality | None
    drift: Drift | None
    verdicts: NotRequired[Judged | None]
    judged: NotRequired[Verdicts | None]
    worklist: NotRequired[Worklist]
    not_measured: dict[str, str]  # reasons by measure
