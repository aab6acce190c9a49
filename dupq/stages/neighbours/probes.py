"""How far a group's questions are searched for, as recall.py chose it, and where that is so far that it is exact."""

import logging
from collections.abc import Sequence

from typing_extensions import TypedDict

from dupq import storage
from dupq.json_files import read_as
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.centres import group_name

_log = logging.getLogger(__name__)
# the share of the exact search's work from which on that search is as fast, where there are more lists than these
_MUCH, _FEW = 0.8, 100


class Probes(TypedDict):
    """The lists that each question of a group probes, and how many there are; how many questions have a word whose
    questions are compared, at most (0: none are); the work of it over the exact search's.
    """

    probes: int
    lists: int
    words: int
    share: float


def say_how_many(files: NeighbourFiles, group: Sequence[int]) -> None:
    """Say how far the questions of a group are searched for, and whether the exact search takes the place of that."""
    chosen = read_probes(files, group)
    what = f"{chosen['probes']:,} of {chosen['lists']:,} lists"
    if chosen["words"]:
        what += f", and by its words that at most {chosen['words']:,} questions have"
    if goes_exactly(files, group):
        _log.warning(f"each question would be searched for in {what}: it is searched exactly, which is as fast")
        return
    _log.info(f"each question is searched for in {what}")


def goes_exactly(files: NeighbourFiles, group: Sequence[int]) -> bool:
    """Whether a group is searched exactly: where the recall that is asked for takes so much work that this is as fast.

    The same in every attempt: it depends on what was chosen alone.
    """
    chosen = read_probes(files, group)
    return chosen["lists"] > _FEW and chosen["share"] > _MUCH


def read_probes(files: NeighbourFiles, group: Sequence[int]) -> Probes:
    """How far a group's questions are searched for."""
    return read_as(place_of_probes(files, group), Probes, "remove it, and it is made anew")


def place_of_probes(files: NeighbourFiles, group: Sequence[int]) -> str:
    """The file of it."""
    return storage.join(files.tiles, "probes", f"{group_name(group)}.json")
