"""The records of a run's finished stages, and whether what they name is still there as it was written.

A stage is finished if its record is in `stages/` and each file that the record names has its size and checksum. What
was deleted, cut or replaced since makes the stage unfinished again: the record and the damaged files are removed, and
the stage makes them anew, byte for byte, and so do those after it; of their units only what is missing is made again.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dupq import storage
from dupq.json_files import read_whole
from dupq.runs.records import Output, StageRecord

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
