"""How many questions of a group have each word, for the lists of rare words: counted by blocks, and added up."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name
from dupq.stages.neighbours.centres import group_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest
from dupq.tables import WORD_COUNTS


def write_counts(files: NeighbourFiles, request: SearchRequest, number: int, block: Embeddings) -> None:
    """Write how many questions of a block have each word: none, where sharing a word makes no pair more alike."""
    from dupq.neighbours.word_lists import word_counts

    counts = np.zeros(0, np.int32)
    if block.words is not None and request.measure.lexical > 0:
        counts = word_counts(block.words)
    _write(files.step("words", block_name(number)), counts)


def add_counts(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """A task. Memory: 8 bytes a word."""
    output = files.step("words", group_name(group))

    def make() -> Counts:
        total = np.zeros(0, np.int32)
        for number in group:
            of_block = _read(files.step("words", block_name(number)))
            longer, other = (total, of_block) if len(total) > len(of_block) else (of_block, total)
            longer[: len(other)] += other
            total = longer
        _write(output, total)
        return {}

    return skip_or(output, make)


def read_counts(files: NeighbourFiles, group: Sequence[int]) -> np.ndarray:
    """How many of a group's questions have each word (int32), by its id; empty where words make no lists."""
    return _read(files.step("words", group_name(group)))


def _write(output: str, counts: np.ndarray) -> None:
    storage.write_table(output, pa.table([pa.array(counts)], schema=WORD_COUNTS), WORD_COUNTS)


def _read(uri: str) -> np.ndarray:
    counts: np.ndarray = storage.read_table(uri, WORD_COUNTS)["questions"].to_numpy().copy()
    return counts
