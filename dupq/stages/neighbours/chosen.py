"""Some questions of each block, and groups of blocks whose chosen questions are searched together."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from dupq import storage
from dupq.execution.units import Counts, skip_or
from dupq.runs.embeddings import write_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name, read_block
from dupq.stages.neighbours.changes import keys_of
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest
from dupq.text.keys import Sites, are_among


def write_chosen(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, number: int, kind: str, wanted: np.ndarray
) -> Counts:
    """Write the embeddings of a block's questions that are among `wanted` (keys, ascending), for `groups`."""
    output = files.step(kind, block_name(number))

    def make() -> Counts:
        if not are_among(wanted, keys_of(files, plan.blocks[number], request.sites)[0]).any():
            schema = storage.read_schema(storage.join(files.embeddings, plan.blocks[number][0].file)).remove_metadata()
            storage.write_table(output, schema.empty_table(), schema)
            return {}
        block = read_block(files, request, plan, block_name(number))
        chosen = block.take(are_among(wanted, block.keys))
        write_embeddings(output, chosen, Sites(request.sites))
        return {"rows_out": len(chosen.keys)}

    return skip_or(output, make)


def groups(files: NeighbourFiles, plan: Plan, kind: str) -> list[str]:
    """Names of groups of blocks, `KIND-FIRST-LAST`, whose chosen questions are searched together.

    Each has at most as many of them as a block has questions, or one block's, and of one site if only sites' own
    questions are compared.
    """
    room = max((plan.rows(number) for number in range(len(plan.blocks))), default=0)
    found: list[list[int]] = []
    filled = 0
    for number in range(len(plan.blocks)):
        count = storage.read_counts(files.step(kind, block_name(number)))["rows_out"]
        if not found or filled + count > room or not plan.compares(found[-1][0], number):
            found.append([])
            filled = 0
        found[-1].append(number)
        filled += count
    return [f"{kind}-{group[0]:05d}-{group[-1]:05d}" for group in found]


def first_block(name: str) -> int:
    """The number of a block, or of the first block of a group."""
    return int(name.split("-")[1])


def compared(plan: Plan, names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of different groups that are compared."""
    return [
        (left, right) for left, right in combinations(names, 2) if plan.compares(first_block(left), first_block(right))
    ]
