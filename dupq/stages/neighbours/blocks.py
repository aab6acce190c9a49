"""The blocks of the all-pairs search by their names, and those that a worker keeps.

block-NUMBER           a block of the plan
queries-FIRST-LAST     the questions of some blocks that are searched anew (increment.py)
rest-NUMBER            the other questions of a block
"""

from typing import Any

import numpy as np

from dupq import storage
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import Asked, read_nearest
from dupq.tables import CHANGES
from dupq.text.keys import Sites

_KEPT_BYTES = 1 << 30
_kept: dict[tuple[str, str], Any] = {}  # by run and name, those used last at the end


def block_name(number: int) -> str:
    """What a block of the plan is called."""
    return f"block-{number:05d}"


def ready_block(files: NeighbourFiles, asked: Asked, plan: Plan, name: str) -> Any:
    """A block (tiles.Block), ready to be searched. The last ones are kept, two at least."""
    from dupq.neighbours.tiles import block

    place = files.run, name
    if place not in _kept:
        made = block(read_block(files, asked, plan, name), asked.measure)
        most = max(1, _KEPT_BYTES // max(1, made.side.vectors.nbytes + made.side.words.nbytes * 2) - 1)
        while len(_kept) > most:
            _kept.pop(next(iter(_kept)))
        _kept[place] = made
    _kept[place] = _kept.pop(place)
    return _kept[place]


def known_scores(files: NeighbourFiles, asked: Asked, name: str) -> np.ndarray | None:
    """The k-th best score of a block's questions, as far as it is known: from among themselves, or from earlier."""
    if name.startswith("rest"):
        return read_nearest(files.step("earlier", name), asked.settings.k)[1].worst
    return read_nearest(files.tile(name, name, "left"), asked.settings.k)[1].worst


def forget_blocks() -> None:
    """Free what this worker has kept: other work is done now."""
    _kept.clear()


def read_block(files: NeighbourFiles, asked: Asked, plan: Plan, name: str) -> Embeddings:
    """The embeddings of a block."""
    kind, *numbers = name.split("-")
    if kind == "queries":
        uris = [files.step("queries", block_name(number)) for number in range(int(numbers[0]), int(numbers[1]) + 1)]
        return gathered([read_embeddings(uri, Sites(asked.sites)) for uri in uris])
    pieces = []
    for span in plan.blocks[int(numbers[0])]:
        whole = read_embeddings(storage.join(files.embeddings, span.file), Sites(asked.sites))
        pieces.append(whole.take(slice(span.start, span.stop)))
    block = gathered(pieces)
    return block.take(~np.isin(block.keys, asked_keys(files))) if kind == "rest" else block


def rest_name(number: int) -> str:
    """What the questions of a block that are not searched anew are called."""
    return f"rest-{number:05d}"


def asked_keys(files: NeighbourFiles) -> np.ndarray:
    """The questions that are searched anew."""
    changes = storage.read_table(files.step("changes", "changes"), CHANGES)
    return changes.filter(changes["is_asked"])["key"].to_numpy()
