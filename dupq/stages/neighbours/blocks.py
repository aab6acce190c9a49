"""Reading the blocks of the all-pairs search by name, and what each worker keeps of them for its next tile.

block-NUMBER           a block of the plan
queries-FIRST-LAST     those questions of some blocks that are searched again (increment.py)
rest-NUMBER            the other questions of a block
full-FIRST-LAST        those questions of some blocks whose lists are full of pairs above the floor (beyond_lists.py)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.steps import free_with_the_step
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.runs.embeddings import read_embeddings
from dupq.runs.keys import read_keys
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, lists_after, read_nearest
from dupq.text.keys import Sites, are_among

if TYPE_CHECKING:
    from dupq.neighbours.tiles import Block

_AT_LEAST = 2  # sides of a tile
_KEPT_BYTES = 1 << 28  # that more than these may take together
_kept: dict[tuple[str, str], "Block"] = {}  # by run and name, the one used last at the end


def block_name(number: int) -> str:
    """The name of a block of the plan."""
    return f"block-{number:05d}"


def ready_block(files: NeighbourFiles, request: SearchRequest, plan: Plan, name: str) -> "Block":
    """A block (tiles.Block), ready to be searched; see `kept`."""
    from dupq.neighbours.tiles import block

    def make() -> "Block":
        read = read_block(files, request, plan, name)
        pa.default_memory_pool().release_unused()  # what Arrow would keep of the tables, 300 MB of a block of 89,000
        return block(read, request.measure)

    return kept(files, name, make)


def kept(files: NeighbourFiles, name: str, make: Callable[[], "Block"]) -> "Block":
    """One side of a tile: what `make` gives, once for many tiles.

    The two used last are kept, and more while all take no more than 256 MiB. While one is made there is at most one
    other, or as many as would still be kept beside one as large as the largest. So tiles in the order of their rows
    cost one reading each, and memory is the tile's own.
    """
    place = files.run, name
    if place not in _kept:
        largest = max(map(_bytes, _kept.values()), default=0)
        _let_go(_AT_LEAST - 1, _KEPT_BYTES - largest)
        _kept[place] = make()
        _let_go(_AT_LEAST, _KEPT_BYTES)
    found = _kept[place] = _kept.pop(place)
    return found


def _let_go(count: int, most: int) -> None:
    """Free those used longest ago, until `count` are left or all take at most `most` bytes."""
    while len(_kept) > count and sum(map(_bytes, _kept.values())) > most:
        _kept.pop(next(iter(_kept)))


def _bytes(made: object) -> int:
    """The memory of the arrays in a tuple, and in tuples within it."""
    if isinstance(made, np.ndarray):
        return made.nbytes
    return sum(map(_bytes, made)) if isinstance(made, tuple) else 0


def known_scores(files: NeighbourFiles, request: SearchRequest, name: str, wave: int) -> np.ndarray | None:
    """The k-th best score of a block's questions, as known before a wave (from 1 on), or from the earlier run."""
    is_rest = name.split("-")[0] == "rest"
    place = files.step("earlier", name) if is_rest else lists_after(files, name, wave - 1)
    return read_nearest(place, request.settings.k)[1].worst


@free_with_the_step
def forget_blocks() -> None:
    """Free what this worker has kept for tiles, before other work."""
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
    return read_keys(files.step("changes", "changes"))
