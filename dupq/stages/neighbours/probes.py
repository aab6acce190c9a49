"""How many lists a question probes, as recall.py chose it, and where that are so many that the search is exact."""

import logging
from collections.abc import Sequence

from typing_extensions import TypedDict

from dupq import storage
from dupq.json_files import read_as
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.centres import group_name
from dupq.stages.neighbours.tables import SearchRequest

_log = logging.getLogger(__name__)
_MANY, _FEW = 0.4, 100  # of all lists: from this share on the exact search, which scores a pair once, is as fast


class _Probes(TypedDict):
    """The lists that each question of a group probes, and how many there are."""

    probes: int
    lists: int


def say_how_many(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> None:
    """Say how many lists the questions of a group probe, and whether the exact search takes their place."""
    chosen = _read_probes(files, group)
    what = f"{chosen['probes']:,} of {chosen['lists']:,} lists"
    if goes_exactly(files, request, group):
        _log.warning(f"each question would be searched for in {what}: it is searched exactly, which is as fast")
        return
    _log.info(f"each question is searched for in {what}")
    if _are_many(chosen):
        _log.warning("neighbours.method=exact would hardly take longer, and misses nothing")


def _are_many(chosen: _Probes) -> bool:
    return chosen["lists"] > _FEW and chosen["probes"] > _MANY * chosen["lists"]


def goes_exactly(files: NeighbourFiles, request: SearchRequest, group: Sequence[int]) -> bool:
    """Whether a group is searched exactly: where the recall that is asked for takes so many lists that this is as fast.

    The same in every attempt: it depends on the number of lists alone, which a sample chose. A number that was set by
    hand is kept to.
    """
    return not request.settings.ivf_probes and _are_many(_read_probes(files, group))


def probes_of(files: NeighbourFiles, group: Sequence[int]) -> int:
    """How many lists a group's questions probe."""
    return _read_probes(files, group)["probes"]


def _read_probes(files: NeighbourFiles, group: Sequence[int]) -> _Probes:
    return read_as(place_of_probes(files, group), _Probes, "remove it, and it is made anew")


def place_of_probes(files: NeighbourFiles, group: Sequence[int]) -> str:
    """The file of a group's number of lists and of those that are probed."""
    return storage.join(files.tiles, "probes", f"{group_name(group)}.json")
