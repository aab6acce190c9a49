"""The files of a run and of a training: their paths, the JSON that dupq reads of them, and the records of finished
stages.

Files of another version's run may lack some entries.
"""

import functools
import logging
import os
import tempfile
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import StorageError
from dupq.storage import Time, read_or_none
from dupq.system import Written, thread_map

TITLE_WORDS = (0, 4, 8, 12)  # the lowest number of words in each range of title lengths
Measures: TypeAlias = dict[str, Any]  # an entry of metrics.json, by the names that dupq/evaluation/ gives
_ONE = "part-00000.parquet"  # the file of a table in one partition
_log = logging.getLogger(__name__)


class StageRecord(TypedDict):
    """The record of a finished stage, in `stages/` and in manifest.json."""

    name: str
    seconds: float
    tasks: int
    rows_in: int
    rows_out: int
    peak_memory_mb: float
    counts: dict[str, int]
    caps: dict[str, int]
    steps: NotRequired[dict[str, float]]  # seconds of each step that tasks ran; versions before 2026-11-28 have none
    outputs: dict[str, Written]  # by path below the run
    dropped: str | None  # a folder below the run that no later stage needs and that was removed
    made: Any  # the stage's answer, as dupq/job/stage.py writes it
    made_as: dict[str, Any]  # what a later run compares before it takes over some of it


class Pointer(TypedDict):
    """latest.json."""

    run_id: Annotated[str, Field(pattern=r"^[^/\s]+$")]  # the name of a folder next to it


class Success(TypedDict):
    """`_SUCCESS`: the run was complete at this time."""

    outputs: dict[str, Written]  # the lasting files, by path below the run
    finished: Time  # UTC


class ManifestStage(TypedDict):
    """A stage in manifest.json."""

    name: str
    seconds: NotRequired[float | None]
    tasks: NotRequired[int | None]
    rows_in: NotRequired[int | None]
    rows_out: NotRequired[int | None]
    peak_memory_mb: NotRequired[float | None]
    caps: NotRequired[dict[str, int] | None]


class Inputs(TypedDict):
    """The inputs of a run as URIs; None: not given."""

    questions: str
    previous: NotRequired[str | None]  # the earlier run that it builds on
    links: NotRequired[str | None]
    encoder: NotRequired[str | None]
    truth: NotRequired[str | None]
    reranker: NotRequired[str | None]  # its name
    verdicts: NotRequired[str | None]
    command: NotRequired[str | None]  # as the user gave it
    language: NotRequired[str | None]  # of the texts and how it was determined, in words


class Manifest(TypedDict):
    """manifest.json."""

    run_id: str
    dupq: NotRequired[str | None]
    versions: NotRequired[dict[str, str] | None]
    inputs: Inputs
    stages: NotRequired[list[ManifestStage] | None]


class Metrics(TypedDict):
    """metrics.json."""

    questions: int
    sites: dict[str, int]  # questions of each; 0 if all files were left out or are empty
    exact_copies: int
    near_duplicate_pairs: int
    representatives: int
    encoder_pairs: int
    encoder_pairs_above_threshold: int
    encoder_pairs_joined: int  # by clusters, also some below the threshold
    expected_right: float  # of these
    threshold: float
    expected_precision: float | None  # of the pairs above it; None: there are none
    thresholds: list[Measures]
    calibration: Measures  # what the probabilities of pairs rest on
    clusters: int
    questions_in_clusters: int
    largest_cluster: int
    planted: dict[str, Measures] | None
    links: Measures | None
    drift: Measures | None
    verdicts: Measures | None
    judged: Measures | None
    judge: NotRequired[Measures | None]  # what came of asking a judge; earlier versions lack these two
    checked: NotRequired[Measures | None]  # how many of the pairs that may join people judged
    worklist: Measures
    not_measured: dict[str, str]  # reasons by measure


# A stage is finished if its record is in `stages/` and each file that the record names has its size and checksum. If a
# file was deleted, cut or replaced since, the stage is unfinished again: its record and the damaged files are removed,
# and it and later stages make what is missing again, byte for byte.


def record_of(run: str, name: str) -> str:
    """Return the URI of a stage's record."""
    return storage.join(run, "stages", f"{name}.json")


def without_answer(record: StageRecord) -> dict[str, object]:
    """Return a record without what is for stages only."""
    return {name: value for name, value in record.items() if name not in ("made", "made_as")}


def log_stage(record: StageRecord, how: str) -> None:
    """Log a stage's line. In JSON it lacks the files: there are thousands, and run.log is rewritten each time."""
    fields = {name: value for name, value in without_answer(record).items() if name not in ("outputs", "dropped")}
    bitten = "".join(f", {value:,} {name}" for name, value in {**record["counts"], **record["caps"]}.items() if value)
    _log.info(
        f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
        f"{record['peak_memory_mb']:6.0f} MB{bitten}",
        extra={"fields": fields},
    )


def recover(run: str) -> dict[str, StageRecord]:
    """Return the records of the finished stages of `run` (URI); remove the others, and damaged files."""
    finished: dict[str, StageRecord] = {}
    for file in storage.list_files(storage.join(run, "stages"), ".json"):
        record = read_or_none(file.uri, StageRecord)
        if record is None:
            storage.delete(file.uri)
        else:
            finished[record["name"]] = record
    lost = damaged(run, {path: file for record in finished.values() for path, file in record["outputs"].items()})
    for path in [path for path, exists in lost.items() if exists]:
        storage.delete(storage.join(run, path))
    while True:
        dropped = tuple(f"{record['dropped']}/" for record in finished.values() if record["dropped"])
        needed = {path for path in lost if not path.startswith(dropped)}
        broken = [name for name, record in finished.items() if needed & record["outputs"].keys()]
        if not broken:
            return finished
        for name in broken:
            storage.delete(record_of(run, name))
            del finished[name]


def is_intact(run: str, record: StageRecord, kept: Sequence[str]) -> bool:
    """Return whether all files of a stage of `run` are unchanged that are among `kept` or in these folders."""
    folders = tuple(f"{path}/" for path in kept)
    outputs = {name: file for name, file in record["outputs"].items() if f"{name}/".startswith(folders)}
    return bool(outputs) and not damaged(run, outputs)


def read_success(run: str) -> Success | None:
    """Return the `_SUCCESS` of a run; None if it has not succeeded, or only with a version that wrote another form."""
    return read_or_none(storage.join(run, "_SUCCESS"), Success)


def latest_run(runs: str) -> str | None:
    """Return the run that latest.json in a folder of runs names; None if that file is missing or damaged."""
    pointer = read_or_none(storage.join(runs, "latest.json"), Pointer)
    return storage.join(runs, pointer["run_id"]) if pointer else None


def is_to_be_latest(run: str) -> bool:
    """Return whether latest.json names no run, or one that succeeded before `run`."""
    latest = latest_run(storage.parent(run))
    if latest is None:
        return True
    mine, other = read_success(run), read_success(latest)
    if mine is None or latest == run:
        return False
    return other is None or datetime.fromisoformat(other["finished"]) < datetime.fromisoformat(mine["finished"])


def point_latest(run: str) -> None:
    """Point latest.json to a run that succeeded, unless it names one that succeeded later."""
    runs = storage.parent(run)
    if is_to_be_latest(run):
        storage.write_json(storage.join(runs, "latest.json"), {"run_id": storage.name(run), "run": run})
    elif latest_run(runs) != run:
        _log.warning(f"{run}: latest.json stays: it names a run that succeeded later, by that machine's clock")


def damaged(run: str, outputs: dict[str, Written]) -> dict[str, bool]:
    """Return the paths of `outputs`, below `run`, that have changed, and whether a file is there at all."""
    sizes = {file.relative: file.size for file in storage.list_files(run)}
    lost = {path: path in sizes for path, output in outputs.items() if sizes.get(path) != output["size"]}
    others = sorted(outputs.keys() - lost.keys())
    checksums = zip(others, thread_map(_checksum, [storage.join(run, path) for path in others]), strict=True)
    return lost | {path: True for path, checksum in checksums if checksum != outputs[path]["checksum"]}


def _checksum(uri: str) -> str:
    """Return the checksum of a file; on the local disk a process reads each version of it once."""
    return storage.checksum(uri) if storage.is_remote(uri) else _checksum_in(uri, storage.version(uri))


@functools.cache
def _checksum_in(uri: str, version: str) -> str:
    return storage.checksum(uri)


class RunFiles:
    """The files of a finished run's work that readers of runs use."""

    def __init__(self, run: str) -> None:
        """Name the files of a run (URI)."""
        work = functools.partial(storage.join, run, "work")
        self.uri = run
        self.texts = work("texts")  # tokens, terms and marks of the questions; a file per shard
        self.contents = work("contents")  # hashes, tags and askers, and what tokens of titles lack; a file per shard
        self.signatures = work("signatures")  # the MinHash signatures of the texts that are not copies
        self.rarities = work("terms", "rarities", _ONE)  # how rare each term is
        self.calibration = work("calibration", "calibration.json")  # the model of a probability
        self.nearest = work("neighbours", "nearest")  # each question's list
        self.scoped = work("neighbours", "scoped")  # the embeddings that were searched within scopes
        self.reread = work("rerank", "model.json")  # the model of a probability by a reranker's cosine
        self.read_contents = work("rerank", "contents")  # the hashes of questions that a reranker has read
        self.read_vectors = work("rerank", "vectors")  # and their vectors

    def path(self, *names: str) -> str:
        """Return the URI of a file or folder of the run."""
        return storage.join(self.uri, *names)


def check_output(uri: str) -> None:
    """Raise StorageError for an output on the local disk in which no folder can be made."""
    if storage.is_remote(uri):
        return
    folder = storage.absolute(uri)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise StorageError(f"{folder}: a file; a folder expected, for the output {uri}")
    try:  # os.access may be wrong: /proc, a read-only disk, root on NFS
        os.rmdir(tempfile.mkdtemp(prefix=".dupq-", dir=folder))
    except OSError as error:
        raise StorageError(
            f"{folder}: nothing can be written here ({error.strerror}), so neither can the output {uri}; give another"
        ) from error
