"""Writing a run: its folder, its name, and which of its stages are finished.

A run's name is a hash of what it is made from: the inputs' content, the encoder, the settings that change the answer
and the versions of its stages. The same arguments over the same data therefore open the same run, and a rerun finishes
what an earlier one left undone, also with other workers, GPUs or sizes of blocks. A stage is finished when its record
is in `stages/` and all that it names is there as it was written (records.py); within a stage, so is each unit of
work by its mark (dupq/job/table.py). `_SUCCESS` is written last and names what lasts of the run, and then
`latest.json` beside the runs points here.
"""

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from dupq import __version__, storage
from dupq.archive import Shard
from dupq.errors import DupqError, StorageError
from dupq.evaluation.verdicts import VERDICTS_FILE
from dupq.runs import lease, progress, records
from dupq.runs.lease import Lease
from dupq.runs.reader import latest_run, run_at
from dupq.runs.records import Manifest, Output, StageRecord, Success
from dupq.settings.config import Settings, answer_settings, to_dict
from dupq.storage import read_whole
from dupq.system import Written, recording, side_by_side

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
    "evaluate": 8,
    "review": 2,
}
TEACHER_VERSIONS = {"teacher": 2}  # the stage that a run has besides, if it was given a teacher
EVALUATION_VERSIONS = {name: DEDUP_VERSIONS[name] for name in ("inputs", "texts", "encode")}

_LIBRARIES = (
    *("ray", "torch", "pyarrow", "numpy", "gensim", "datasketch", "numba", "boto3", "scipy", "selectolax"),
    *("icu4py", "pystemmer", "simplemma", "textblob"),
)


_log = logging.getLogger(__name__)
EDITED = ("review.tsv", "worklist.tsv")  # people fill them in where they are
_READ_LATER = ("clusters/", "metrics.json", "embeddings/", VERDICTS_FILE)  # by a run that this one is the earlier of


class StageReport(Protocol):
    """What a stage tells of itself: at least these fields."""

    tasks: int
    rows_in: int
    rows_out: int
    peak_memory_mb: float
    counts: dict[str, int]
    caps: dict[str, int]


class Run:
    """One run's folder."""

    def __init__(self, uri: str, inputs: Mapping[str, object], settings: Settings, algorithms: dict[str, int]) -> None:
        """Use `open_run`."""
        self.uri = uri
        self.run_id = storage.name(uri)
        self._inputs = inputs
        self._settings = settings
        self._algorithms = algorithms
        self.records: list[StageRecord] = []
        self._finished_before: dict[str, StageRecord] | None = None
        self._lease: Lease | None = None
        self._described: dict[str, Output] = {}

    def path(self, *parts: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *parts)

    @property
    def finished(self) -> bool:
        """Whether everything was written, and is there as it was written; if not so, it is to be made again.

        Raises LeaseError if something is not, and another job is at work on the run.
        """
        success = read_success(self.uri)
        if success is None:
            return False
        if not records.damaged(self.uri, success["outputs"]):
            return True
        with self.held():  # another job may have made it again meanwhile
            success = read_success(self.uri)
            lost = records.damaged(self.uri, success["outputs"]) if success else []
            if lost:
                _log.warning(f"{self.uri}: {lost[0]} is damaged or gone since the run succeeded; it is made again")
                storage.delete(self.path("_SUCCESS"))
            return success is not None and not lost

    def has_record(self, stage: str) -> bool:
        """Whether an earlier attempt finished the stage; if what it wrote was lost since, it is done again though."""
        return storage.exists(records.place_of(self.uri, stage))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only job at work on this run. Raises LeaseError if another one is, or takes it over meanwhile."""
        with lease.held(self.uri) as self._lease:
            yield
        self._lease = None

    def stage(self, name: str, work: Callable[[], StageReport], dropped: str | None = None) -> StageRecord:
        """Do `work`, unless an earlier attempt finished it; returns its record.

        `dropped` is a folder of the run that no later stage needs; it is removed.
        """
        if self._finished_before is None:
            self._finished_before = records.recover(self.uri)
        if self._lease is not None:
            self._lease.check()
        with progress.of_stage(self.uri, name, self._inputs):
            record = self._finished_before.get(name)
            if record is None:
                self._finished_before = {}  # what comes after may have been made from what is made anew now
                record = self._do(name, work, dropped)
                self._keep(record, f"{record['seconds']:.1f} s")
            else:
                self._keep(record, "finished before")
            if dropped:
                storage.delete_folder(dropped)
            return record

    def _do(self, name: str, work: Callable[[], StageReport], dropped: str | None) -> StageRecord:
        """Do the stage's work; returns its record."""
        start = time.monotonic()
        with recording() as written:
            report = work()
        record = StageRecord(
            name=name,
            seconds=round(time.monotonic() - start, 2),
            tasks=report.tasks,
            rows_in=report.rows_in,
            rows_out=report.rows_out,
            peak_memory_mb=round(report.peak_memory_mb, 1),
            counts=report.counts,
            caps=report.caps,
            outputs=self._outputs(written, dropped),
            dropped=dropped and dropped.removeprefix(f"{self.uri}/"),
        )
        storage.write_json(records.place_of(self.uri, name), record)
        return record

    def _outputs(self, written: Mapping[str, Written], dropped: str | None = None) -> dict[str, Output]:
        inside = {uri: file for uri, file in written.items() if uri.startswith(f"{self.uri}/")}
        kept = {uri: file for uri, file in inside.items() if not dropped or not uri.startswith(f"{dropped}/")}
        paths = {
            uri.removeprefix(f"{self.uri}/"): Output(size=file.size, checksum=file.checksum, rows=file.rows)
            for uri, file in kept.items()
        }
        return {path: output for path, output in paths.items() if path not in EDITED}

    def _keep(self, record: StageRecord, how: str) -> None:
        self.records.append(record)
        counted = {**record["counts"], **record["caps"]}
        # without the files: there are thousands, and run.log is written whole each time
        told = {name: value for name, value in record.items() if name not in ("outputs", "dropped")}
        bitten = "".join(f", {value:,} {name}" for name, value in counted.items() if value)
        _log.info(
            f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
            f"{record['peak_memory_mb']:6.0f} MB{bitten}",
            extra={"told": told},
        )

    def manifest(self) -> dict[str, object]:
        """What was run on what, and what each stage took."""
        return {
            "run_id": self.run_id,
            "dupq": __version__,
            "algorithms": self._algorithms,
            "versions": versions(),
            "inputs": self._inputs,
            "stages": self.records,
        }

    def describe(self) -> None:
        """Write config.json and manifest.json, as far as the run has come."""
        with recording() as written:
            storage.write_json(self.path("config.json"), to_dict(self._settings))
            storage.write_json(self.path("manifest.json"), self.manifest())
        self._described = self._outputs(written)

    def succeed(self) -> None:
        """Mark the run, which was described, as whole, and point latest.json at it."""
        self.mark()
        self.point_latest()

    def mark(self) -> None:
        """Mark the run, which was described, as whole."""
        outputs = {path: output for record in self.records for path, output in record["outputs"].items()}
        lasting = {path: output for path, output in outputs.items() if not path.startswith("work/")}
        success = Success(outputs={**lasting, **self._described}, finished=datetime.now(UTC).isoformat())
        storage.write_json(self.path("_SUCCESS"), success)

    def point_latest(self) -> None:
        """Point latest.json at this run, which succeeded, unless it names one that succeeded later."""
        if self.is_to_be_latest:
            place = storage.join(storage.parent(self.uri), "latest.json")
            storage.write_json(place, {"run_id": self.run_id, "run": self.uri})

    @property
    def is_to_be_latest(self) -> bool:
        """Whether latest.json names no run, or one that this one, which succeeded, is later than."""
        latest = latest_run(storage.parent(self.uri))
        if latest is None:
            return True
        mine, other = read_success(self.uri), read_success(latest)
        if mine is None or latest == self.uri:
            return False
        return other is None or datetime.fromisoformat(other["finished"]) < datetime.fromisoformat(mine["finished"])


def open_run(
    output: str, inputs: Mapping[str, object], made_from: object, settings: Settings, algorithms: dict[str, int]
) -> Run:
    """The run below `output` that belongs to these inputs and settings; new or begun before.

    `inputs` are the URIs, for the manifest; `made_from` is what identifies their content; `algorithms` are the versions
    of its stages.
    """
    identity = {"made_from": made_from, "settings": answer_settings(settings), "algorithms": algorithms}
    run_id = hashlib.sha256(storage.json_bytes(identity)).hexdigest()[:16]
    return Run(storage.join(storage.absolute(output), run_id), inputs, settings, algorithms)


def previous_run(uri: str | None) -> str | None:
    """The run at `uri`, or the latest of the runs there; None without a `uri`. Raises DupqError if there is none."""
    if uri is None:
        return None
    place = run_at(uri)
    success = read_success(place)
    if success is None:
        raise DupqError(f"--previous {place}: no finished run, and no folder of runs with a latest.json")
    tables = {path: output for path, output in success["outputs"].items() if path.startswith(_READ_LATER)}
    lost = records.damaged_of_earlier(place, tables)
    if lost:
        raise DupqError(
            f"--previous {place}: {lost[0]} is damaged or gone since that run succeeded; run its job again, or give "
            "another earlier run"
        )
    return place


def built_on(run: str) -> str | None:
    """The earlier run that a finished run builds on; None if it builds on none."""
    manifest = read_whole(storage.join(run, "manifest.json"), Manifest)
    return manifest["inputs"].get("previous") if manifest else None


def read_success(run: str) -> Success | None:
    """The `_SUCCESS` of a run; None if it has not succeeded, or only with a version of dupq that wrote none like it."""
    return read_whole(storage.join(run, "_SUCCESS"), Success)


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


def content_of(table: str, shards: Sequence[Shard]) -> list[list[str]]:
    """What identifies the shards of a table (URI) that a run reads: of each the path below it and the checksum.

    It is given those that the run listed: a second listing may name others, of an ingest that ended in between.
    """
    uris, folder = [shard.uri for shard in shards], storage.join(storage.absolute(table), "")
    found = zip(uris, side_by_side(storage.checksum, uris), strict=True)
    return [[uri.removeprefix(folder), checksum] for uri, checksum in found]


def versions() -> dict[str, str]:
    """Python's and the libraries' versions."""
    found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "platform": sys.platform, **found}
