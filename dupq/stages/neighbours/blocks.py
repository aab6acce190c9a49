"""Reading the blocks of the all-pairs search by name, and the cache of them that each worker keeps.

block-NUMBER           a block of the plan
queries-FIRST-LAST     those questions of some blocks that are searched again (increment.py)
rest-NUMBER            the other questions of a block
full-FIRST-LAST        those questions of some blocks whose lists are full of pairs above the floor (beyond_lists.py)
"""

from typing import TYPE_CHECKING

import numpy as np

from dupq import storage
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, read_nearest
from dupq.tables import CHANGES
from dupq.text.keys import Sites, are_among

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

_KEPT_BYTES = 1 << 30
_kept: dict[tuple[str, str], "Block"] = {}  # by run and name, the one used last at the end


def block_name(number: int) -> str:
    """The name of a block of the plan."""
    return f"block-{number:05d}"


def ready_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, name: str) -> "Block":
    """A block (tiles.Block), ready to be searched. Those used last are kept, at least two."""
    from dupq.neighbours.tiles import block

    place = files.run, name
    if place not in _kept:
        made = block(read_block(files, request, plan, name), request.measure)
        most = max(1, _KEPT_BYTES // max(1, made.side.vectors.nbytes + made.side.words.nbytes * 2) - 1)
        while len(_kept) > most:
            _kept.pop(next(iter(_kept)))
        _kept[place] = made
    _kept[place] = _kept.pop(place)
    return _kept[place]


def known_scores(files: NeighbourFiles, request: SearchRequest, name: str) -> np.ndarray | None:
    """The k-th best score of a block's questions, as known from the block itself or from the earlier run."""
    if name.startswith("rest"):
        return read_nearest(files.step("earlier", name), request.settings.k)[1].worst
    return read_nearest(files.tile(name, name, "left"), request.settings.k)[1].worst


def forget_blocks() -> None:
    """Free the blocks that this worker has kept, before other work."""
    _kept.clear()


def read_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, name: str) -> Embeddings:
    """The embeddings of a block."""
    kind, *numbers = name.split("-")
    if len(numbers) == 2:
        uris = [files.step(kind, block_name(number)) for number in range(int(numbers[0]), int(numbers[1]) + 1)]
        return gathered([read_embeddings(uri, Sites(request.sites)) for uri in uris])
    pieces = []
    for span in plan.blocks[int(numbers[0])]:
        whole = read_embeddings(storage.join(files.embeddings, span.file), Sites(request.sites))
        pieces.append(whole.take(slice(span.start, span.stop)))
    block = gathered(pieces)
    return block.take(~are_among(searched_again(files), block.keys)) if kind == "rest" else block


def rest_name(number: int) -> str:
    """The name of those questions of a block that are not searched again."""
    return f"rest-{number:05d}"


def searched_again(files: NeighbourFiles) -> np.ndarray:
    """The keys of the questions that are searched again, ascending."""
    changes = storage.read_table(files.step("changes", "changes"), CHANGES)
    return changes.filter(changes["is_asked"])["key"].to_numpy()
