"""The files of a run and of a training: their paths, and the JSON that dupq reads of them (another version's run may
lack some). And the records of finished stages, with whether what they name is still there as it was written.
"""

import functools
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias

from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import StorageError
from dupq.storage import Time, read_or_none
from dupq.system import side_by_side

# The version of each stage's algorithm, part of a run's identity: other answers make another run.
#
# Raise a stage's number when it answers differently, and say so in CHANGELOG.md. A new comment, name or report template
# is no new answer. tests/golden/ fails where an answer changed and its number did not.

INGEST_VERSIONS = {"ingest": 2}
TRAINING_VERSIONS = {
    "inputs": 1,
    "texts": 2,
    "answer_texts": 2,
    "pairs": 1,
    "prepare": 3,
    "teach": 1,
    "fit": 5,
    "save": 2,
}
DEDUP_VERSIONS = {
    "inputs": 1,
    "texts": 2,
    "signatures": 2,
    "near_duplicates": 3,
    "fitness": 1,
    "encode": 2,
    "terms": 2,
    "neighbours": 6,
    "calibrate": 5,
    "beyond_lists": 1,
    "pairs": 2,
    "partition": 2,
    "clusters": 3,
    "evaluate": 9,
    "review": 2,
}
TEACHER_VERSIONS = {"teacher": 2}  # the stage that a run has besides, if it was given a teacher
EVALUATION_VERSIONS = {name: DEDUP_VERSIONS[name] for name in ("inputs", "texts", "encode")}

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


class Config(TypedDict, total=False):
    """config.json: what is read of it without a model of its settings, which may be another version's."""

    near_duplicates: dict[str, Any]
    clusters: dict[str, Any]
    run: dict[str, Any]


# Entries of metrics.json, by the names that dupq/evaluation/ gives them.
Calibration: TypeAlias = dict[str, Any]  # what the probabilities of pairs rest on
Choice: TypeAlias = dict[str, Any]  # a threshold, and what is expected and found from it on
AtThreshold: TypeAlias = dict[str, Any]  # what pairs from a threshold on find of the known duplicates of the test part
LinkQuality: TypeAlias = dict[str, Any]  # quality on the known duplicates of the test part
Judged: TypeAlias = dict[str, Any]  # what verdicts tell of the run whose sample they are on
Estimated: TypeAlias = dict[str, Any]  # a `value`, and the `lower` and `upper` end of its interval of 95 per cent
Verdicts: TypeAlias = dict[str, int]  # how many verdicts a run knew of, of each pair the last
PlantedMeasures: TypeAlias = dict[str, float | None]  # of one kind of planted pairs, by name


class Metrics(TypedDict, total=False):
    """metrics.json."""

    questions: int
    sites: dict[str, int]  # questions of each; 0 where all files were left out, or are empty
    exact_copies: int
    near_duplicate_pairs: int
    representatives: int
    encoder_pairs: int
    encoder_pairs_above_threshold: int
    encoder_pairs_joined: int  # by clusters, also some below the threshold; not of runs before version 9 of evaluate
    expected_right: float  # of these
    threshold: float | None
    thresholds: list[Choice]
    calibration: Calibration
    clusters: int
    questions_in_clusters: int
    largest_cluster: int
    planted: dict[str, PlantedMeasures | None] | None
    links: LinkQuality | None
    drift: dict[str, Any] | None
    verdicts: NotRequired[Judged | None]
    judged: NotRequired[Verdicts | None]
    worklist: NotRequired[dict[str, Any]]
    not_measured: dict[str, str]  # reasons by measure


# The records of a run's finished stages, and whether what they name is still there as it was written.
#
# A stage is finished if its record is in `stages/` and each file that the record names has its size and checksum. What
# was deleted, cut or replaced since makes the stage unfinished again: the record and the damaged files are removed, and
# the stage makes them anew, byte for byte, and so do those after it; of their units only what is missing is made again.


def record_of(run: str, name: str) -> str:
    """The file of a stage's record."""
    return storage.join(run, "stages", f"{name}.json")


def recover(run: str) -> dict[str, StageRecord]:
    """The records of the stages of `run` (URI) that are finished; damaged files and records are removed."""
    finished = read(run)
    outputs = {path: output for record in finished.values() for path, output in record["outputs"].items()}
    lost = damaged(run, outputs)
    for path in [path for path, is_there in lost.items() if is_there]:
        storage.delete(storage.join(run, path))
    while broken := [record for record in finished.values() if lost.keys() & _needed(record, finished.values())]:
        for record in broken:
            storage.delete(record_of(run, record["name"]))
            del finished[record["name"]]
    return finished


def is_intact(run: str, name: str, places: Sequence[str]) -> bool:
    """Whether a stage of an earlier run finished, and all that it wrote at `places` (files, folders) is as it was."""
    record = read_or_none(record_of(run, name), StageRecord)
    if record is None:
        return False
    below = tuple(place.removeprefix(f"{run}/") for place in places)
    outputs = {path: output for path, output in record["outputs"].items() if _is_below(path, below)}
    is_there = all(any(_is_below(path, (place,)) for path in outputs) for place in below)
    return is_there and not damaged(run, outputs)


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return path in places or path.startswith(tuple(f"{place}/" for place in places))


def read(run: str) -> dict[str, StageRecord]:
    """The records of `run` (URI) by stage, whether what they name is there or not; unreadable ones are removed."""
    found = {}
    for file in storage.list_files(storage.join(run, "stages"), ".json"):
        record = read_or_none(file.uri, StageRecord)
        if record is None:
            storage.delete(file.uri)
        else:
            found[record["name"]] = record
    return found


def _needed(record: StageRecord, finished: Iterable[StageRecord]) -> set[str]:
    """The paths of a stage without those that a finished stage was the last to need."""
    dropped = [other["dropped"] for other in finished if other["dropped"]]
    return {path for path in record["outputs"] if not any(path.startswith(f"{folder}/") for folder in dropped)}


def read_success(run: str) -> Success | None:
    """The `_SUCCESS` of a run; None if it has not succeeded, or only with a version of dupq that wrote none like it."""
    return read_or_none(storage.join(run, "_SUCCESS"), Success)


def damaged(run: str, outputs: dict[str, Output]) -> dict[str, bool]:
    """Those paths of `outputs`, below `run`, whose file is not as it was written, and whether one is there at all."""
    there = {file.relative: file.size for file in storage.list_files(run)}
    lost = {path: path in there for path, output in outputs.items() if there.get(path) != output["size"]}
    others = sorted(outputs.keys() - lost.keys())
    checked = zip(others, side_by_side(_checksum, [storage.join(run, path) for path in others]), strict=True)
    return lost | {path: True for path, found in checked if found != outputs[path]["checksum"]}


def _checksum(uri: str) -> str:
    """The checksum of a file, of which this process reads each version once; on S3 none: the store keeps it."""
    return storage.checksum(uri) if storage.is_remote(uri) else _checksum_in(uri, storage.version(uri))


@functools.cache
def _checksum_in(uri: str, version: str) -> str:
    return storage.checksum(uri)


_ONE = "part-00000.parquet"  # of a table in one partition


class _Below:
    """An attribute of a layout: the URI of a file or folder below it."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, layout: "RunFiles | TrainingFiles", kind: type) -> str:
        return layout.path(*self._names)


@dataclass(frozen=True)
class Encoding:
    """What is encoded, by what, and where it goes."""

    texts: str  # a folder
    contents: str  # the folder of the hashes of what the questions say; read only if there is an earlier run
    encoder: str
    representatives: str | None  # the file of questions that others represent; None encodes all
    made_as: str  # the file that says what the embeddings are made by
    output: str  # a folder


@dataclass(frozen=True)
class RunFiles:
    """The files of a run that more than one stage, or a later run, reads by their paths."""

    uri: str  # of the run
    texts = _Below("work", "texts")  # the tokens of the questions; a file per shard
    texts_made_as = _Below("work", "texts_made_as.json")  # what they were made by
    contents = _Below("work", "contents")  # what the questions say: hashes, and the signs of titles; a file per shard
    signatures = _Below("work", "signatures")  # the MinHash signatures of the texts that copy none
    representatives = _Below("work", "representatives", _ONE)  # of verified pairs, and which question represents them
    rarities = _Below("work", "terms", "rarities", _ONE)  # how rare each term is
    calibration = _Below("work", "calibration", "calibration.json")  # the model of a probability, and its grounds
    embeddings = _Below("embeddings")  # a file per shard of questions
    encoded_as = _Below("work", "encoded_as.json")  # what they were made by
    nearest = _Below("work", "neighbours", "nearest")  # each question's list
    directed = _Below("work", "neighbours", "directed")  # the rows for `pairs`
    request = _Below("work", "neighbours", "asked.json")  # the search request that was answered; written last

    def path(self, *names: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *names)

    @property
    def teacher(self) -> tuple[str, str, str]:
        """What a teacher's vectors are made by, what the questions with such vectors say, and the vectors."""
        made_as, contents, vectors = (
            self.path("work", "teacher", name) for name in ("made_as.json", "contents", "vectors")
        )
        return made_as, contents, vectors


TEACHERS = "teachers"  # the folder of `kept_by`, and in `taught_as` the teachers' fingerprints


@dataclass(frozen=True)
class TrainingFiles:
    """The files of a training that are no tables."""

    work: str  # URI of the training
    taught_as = _Below("taught_as.json")  # which teachers encoded questions, and on what
    weights = _Below("best.safetensors")  # the network at its best epoch
    curve = _Below("learning_curve.json")  # what each epoch gave
    encoder = _Below("encoder")  # the folder of the saved encoder, before it is published

    def path(self, *names: str) -> str:
        """The URI of something in the training."""
        return storage.join(self.work, *names)

    def kept_by(self, teacher: str, device: str) -> str:
        """The folder, beside all trainings of the output, of what a teacher encoded for any of them.

        It is named by the teacher's fingerprint and the kind of device that `taught_as` has.
        """
        return storage.join(storage.parent(self.work), TEACHERS, f"{teacher}-{device}")


def check_output(uri: str) -> None:
    """Raise StorageError for an output on the local disk that no folder can be made at."""
    if storage.is_remote(uri):
        return
    folder = storage.absolute(uri)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise StorageError(f"{folder}: a file; a folder expected, for the output {uri}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"{folder}: nothing may be written here, so the output {uri} cannot be; give another")
    try:  # rights may be there where nothing can be made: /proc, a read-only disk, root's own on NFS
        os.rmdir(tempfile.mkdtemp(prefix=".dupq-", dir=folder))
    except OSError as error:
        said = f"nothing can be written here ({error.strerror})"
        raise StorageError(f"{folder}: {said}, so the output {uri} cannot be; give another") from error
