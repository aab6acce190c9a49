"""A run: its folder, its name, and what of it is finished.

A run's name is a hash of what it is made from: the inputs' content, the encoder, the settings and dupq's code.
The same arguments over the same data therefore open the same run, and a rerun finishes what an earlier one left
undone. A stage is finished when its record lies in `stages/`; within a stage, a file that exists is whole and is
not made again. `_SUCCESS` is written last, and then `latest.json` beside the runs points here.
"""

import hashlib
import importlib.metadata
import importlib.resources
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from dupq import __version__, storage
from dupq.config import Settings, to_dict
from dupq.errors import DupqError

_LIBRARIES = (
    *("ray", "torch", "pyarrow", "numpy", "gensim", "datasketch", "numba", "boto3", "scipy", "selectolax"),
    *("pystemmer", "simplemma", "textblob"),
)


class StageReport(Protocol):
    """What a stage tells of itself: a dataclass with at least these fields."""

    tasks: int
    rows_in: int
    rows_out: int
    peak_memory_mb: float
    counts: dict[str, int]
    caps: dict[str, int]


class Run:
    """One run's folder."""

    def __init__(self, uri: str, inputs: dict[str, Any], settings: Settings) -> None:
        """Use `open_run`."""
        self.uri = uri
        self.run_id = storage.name(uri)
        self._inputs = inputs
        self._settings = settings
        self.records: list[dict[str, Any]] = []

    def path(self, *parts: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *parts)

    @property
    def finished(self) -> bool:
        """Whether everything was written."""
        return storage.exists(self.path("_SUCCESS"))

    def stage(self, name: str, work: Callable[[], Any]) -> dict[str, Any]:
        """Do `work`, which returns a StageReport, unless an earlier attempt finished it; returns its record."""
        place = self.path("stages", f"{name}.json")
        if storage.exists(place):
            record = storage.read_json(place)
            self._keep(record, "finished before")
            return record
        start = time.monotonic()
        report = work()
        record = {"name": name, "seconds": round(time.monotonic() - start, 2), **asdict(report)}
        record["peak_memory_mb"] = round(record["peak_memory_mb"], 1)
        storage.create(place, storage.json_bytes(record))
        self._keep(record, f"{record['seconds']:.1f} s")
        return record

    def _keep(self, record: dict[str, Any], how: str) -> None:
        self.records.append(record)
        counted = {**record["counts"], **record["caps"]}
        bitten = "".join(f", {value:,} {name}" for name, value in counted.items() if value)
        print(
            f"{record['name']:16} {record['rows_in']:>12,} in {record['rows_out']:>12,} out  {how:>16}  "
            f"{record['peak_memory_mb']:6.0f} MB{bitten}",
            flush=True,
        )

    def manifest(self) -> dict[str, Any]:
        """What was run on what, and what each stage took."""
        return {
            "run_id": self.run_id,
            "dupq": __version__,
            "code": code_fingerprint(),
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


def open_run(output: str, inputs: dict[str, Any], made_from: Any, settings: Settings) -> Run:
    """The run below `output` that belongs to these inputs, settings and this code; new or begun before.

    `inputs` are the URIs, for the manifest; `made_from` is what identifies their content.
    """
    identity = {"made_from": made_from, "settings": to_dict(settings), "code": code_fingerprint()}
    run_id = hashlib.sha256(storage.json_bytes(identity)).hexdigest()[:16]
    return Run(storage.join(storage.absolute(output), run_id), inputs, settings)


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


def code_fingerprint() -> str:
    """A hash of dupq's own files: other code may give other results."""
    digest = hashlib.sha256(__version__.encode())
    package = importlib.resources.files("dupq")
    for path, content in sorted(_files_of(package, "")):
        digest.update(path.encode() + b"\0" + content)
    return digest.hexdigest()[:16]


def _files_of(folder: Any, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            found += _files_of(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".py", ".toml", ".jinja", ".json")):
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def versions() -> dict[str, str]:
    """Python's and the libraries' versions."""
    found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "platform": sys.platform, **found}
