"""The JSON files of a run, as far as dupq itself reads them: a run of another version may lack some of it. And the
records of finished stages, with whether what they name is still there as it was written.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NotRequired

from typing_extensions import TypedDict

from dupq import storage
from dupq.json_files import Time, read_whole

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
    listed_apart: float  # the share that is among these and not in one cluster
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


# The records of a run's finished stages, and whether what they name is still there as it was written.
#
# A stage is finished if its record is in `stages/` and each file that the record names has its size and checksum. What
# was deleted, cut or replaced since makes the stage unfinished again: the record and the damaged files are removed, and
# the stage makes them anew, byte for byte, and so do those after it; of their units only what is missing is made again.

_AT_ONCE = 32  # files that are checked side by side: on S3 each is a request, on a disk it is read


def place_of(run: str, name: str) -> str:
    """The file of a stage's record."""
    return storage.join(run, "stages", f"{name}.json")


def recover(run: str) -> dict[str, StageRecord]:
    """The records of the stages of `run` (URI) that are finished; damaged files and records are removed."""
    finished = read(run)
    outputs = {path: output for record in finished.values() for path, output in record["outputs"].items()}
    states = _lost(run, outputs, storage.checksum)
    for path in [path for path, is_there in states.items() if is_there]:
        storage.delete(storage.join(run, path))
    lost = states.keys()
    while broken := [record for record in finished.values() if lost & _needed(record, finished.values())]:
        for record in broken:
            storage.delete(place_of(run, record["name"]))
            del finished[record["name"]]
    return finished


def is_intact(run: str, name: str, places: Sequence[str]) -> bool:
    """Whether a stage of an earlier run finished, and all that it wrote at `places` (files, folders) is as it was."""
    record = read_whole(place_of(run, name), StageRecord)
    if record is None:
        return False
    below = tuple(place.removeprefix(f"{run}/") for place in places)
    outputs = {path: output for path, output in record["outputs"].items() if _is_below(path, below)}
    is_there = all(any(_is_below(path, (place,)) for path in outputs) for place in below)
    return is_there and not damaged_of_earlier(run, outputs)


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return path in places or path.startswith(tuple(f"{place}/" for place in places))


def read(run: str) -> dict[str, StageRecord]:
    """The records of `run` (URI) by stage, whether what they name is there or not; unreadable ones are removed."""
    found = {}
    for file in storage.list_files(storage.join(run, "stages"), ".json"):
        record = read_whole(file.uri, StageRecord)
        if record is None:
            storage.delete(file.uri)
        else:
            found[record["name"]] = record
    return found


def _needed(record: StageRecord, finished: Iterable[StageRecord]) -> set[str]:
    """The paths of a stage without those that a finished stage was the last to need."""
    dropped = [other["dropped"] for other in finished if other["dropped"]]
    return {path for path in record["outputs"] if not any(path.startswith(f"{folder}/") for folder in dropped)}


def damaged(run: str, outputs: dict[str, Output]) -> list[str]:
    """Those paths of `outputs`, below `run`, whose file is not there as it was written."""
    return [*_lost(run, outputs, storage.checksum)]


def damaged_of_earlier(run: str, outputs: dict[str, Output]) -> list[str]:
    """The same for an earlier run, whose files nobody writes any more: a process reads each once in a version."""
    return [*_lost(run, outputs, _checksum_once)]


def _lost(run: str, outputs: dict[str, Output], checksum: Callable[[str], str]) -> dict[str, bool]:
    """Those of `damaged`, and whether there is another file in its place."""
    there = {file.relative: file.size for file in storage.list_files(run)}
    lost = {path: path in there for path, output in outputs.items() if there.get(path) != output["size"]}
    others = sorted(outputs.keys() - lost.keys())
    checked = zip(others, _each(checksum, [storage.join(run, path) for path in others]), strict=True)
    return lost | {path: True for path, found in checked if found != outputs[path]["checksum"]}


def checksums(uris: Sequence[str]) -> list[str]:
    """The checksum of each file."""
    return _each(storage.checksum, uris)


def _each(checksum: Callable[[str], str], uris: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(checksum, uris))


def _checksum_once(uri: str) -> str:
    """The checksum of a file, which is not read again until something is written to it or it is replaced.

    On S3 none is read: the store keeps it.
    """
    return storage.checksum(uri) if storage.is_remote(uri) else _checksum_in(uri, storage.version(uri))


@functools.cache
def _checksum_in(uri: str, version: str) -> str:
    return storage.checksum(uri)
