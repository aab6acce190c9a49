"""Finding a run: its own folder is given, or a folder of runs with the pointer to the latest."""

import os
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from dupq import storage
from dupq.json_files import read_as, read_whole


class _Pointer(TypedDict):
    """latest.json."""

    run_id: Annotated[str, Field(pattern=r"^[^/\s]+$")]  # the name of a folder beside it


def latest_run(runs: str) -> str | None:
    """The run that latest.json in a folder of runs names; None if there is no such file, or no whole one."""
    pointer = read_whole(storage.join(runs, "latest.json"), _Pointer)
    return storage.join(runs, pointer["run_id"]) if pointer else None


def run_at(uri: str | os.PathLike[str]) -> str:
    """The folder `uri`, or that of the latest run if `uri` is a folder of runs."""
    place = storage.absolute(uri)
    pointer = storage.join(place, "latest.json")
    if not storage.exists(pointer):
        return place
    return storage.join(place, read_as(pointer, _Pointer, "give the run's own folder")["run_id"])
