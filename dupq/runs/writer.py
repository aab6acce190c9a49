"""Writing a run: its folder, its name, and which of its stages are finished.

A run's name is a hash of what it is made from: the inputs' content, the encoder, the settings that change the answer
and the versions of its stages. The same arguments over the same data therefore open the same run, and a rerun finishes
what an earlier one left undone, also with other workers, GPUs or sizes of blocks. A stage is finished when its record
is in `stages/`; within a stage, a file that exists is whole and is not made again. `_SUCCESS` is written last, and then
`latest.json` beside the runs points here.
"""

import hashlib
import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from dupq import __version__, storage
from dupq.errors import DupqError
from dupq.runs.records import StageRecord
from dupq.settings.config import Settings, answer_settings, to_dict

_LIBRARIES = (
    *("ray", "torch", "pyarrow", "numpy", "gensim", "datasketch", "numba", "boto3", "scipy", "selectolax"),
    *("pystemmer", "simplemma", "textblob"),
)


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

    def path(self, *parts: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *parts)

    @property
    def finished(self) -> bool:
        """Whether everything was written."""
        return storage.exists(self.path("_SUCCESS"))

    def stage(self, name: str, work: Callable[[], StageReport]) -> StageRecord:
        """Do `work`, unless an earlier attempt finished it; returns its record."""
        place = self.path("stages", f"{name}.json")
        if storage.exists(place):
            record: StageRecord = storage.read_json(place)
            self._keep(record, "finished before")
            return record
        start = time.monotonic()
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
        )
        storage.create(place, storage.json_bytes(record))
        self._keep(record, f"{record['seconds']:.1f} s")
        return record

    def _keep(self, record: StageRecord, how: str) -> None:
        self.records.append(record)
        counted = {**record["counts"], **record["caps"]}
        bitten = "".join(f", {value:,} {name}" for name, value in counted.items() if value)
        print(
            f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
            f"{record['peak_memory_mb']:6.0f} MB{bitten}",
            flush=True,
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
        storage.write_json(self.path("config.json"), to_dict(self._settings))
        storage.write_json(self.path("manifest.json"), self.manifest())

    def succeed(self) -> None:
        """Mark the run as whole, and point latest.json at it."""
        storage.create(self.path("_SUCCESS"), b"")
        pointer = {"run_id": self.run_id, "run": self.uri}
        storage.write_json(storage.join(storage.parent(self.uri), "latest.json"), pointer)


def open_run(
    output: str, inputs: Mapping[str, object], made_from: object, settings: Settings, algorithms: dict[str, int]
) -> Run:
    """The run below `output` that belongs to these inputs and settings; new or begun before.

    `inputs` are the URIs, for the manifest; `made_from` is what identifies their content; `algorithms` are the versions
    of its stages (versions.py).
    """
    identity = {"made_from": made_from, "settings": answer_settings(settings), "algorithms": algorithms}
    run_id = hashlib.sha256(storage.json_bytes(identity)).hexdigest()[:16]
    return Run(storage.join(storage.absolute(output), run_id), inputs, settings, algorithms)


def previous_run(uri: str | None) -> str | None:
    """The run at `uri`, or the latest of the runs there; None without a `uri`. Raises DupqError if there is none."""
    if uri is None:
        return None
    if storage.exists(storage.join(uri, "latest.json")):
        uri = storage.join(uri, storage.read_json(storage.join(uri, "latest.json"))["run_id"])
    if not storage.exists(storage.join(uri, "_SUCCESS")):
        raise DupqError(f"--previous {uri}: no finished run, and no folder of runs with a latest.json")
    return storage.absolute(uri)


def content_of(uri: str) -> list[list[str]]:
    """What identifies the tables below a folder: each file's path and checksum."""
    return [[file.relative, storage.checksum(file.uri)] for file in storage.list_files(uri, ".parquet")]


def versions() -> dict[str, str]:
    """Python's and the libraries' versions."""
    found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "platform": sys.platform, **found}
