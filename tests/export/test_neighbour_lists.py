"""The neighbours of each row, against a loop over all pairs."""

import tempfile

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq import tables
from dupq.export.neighbour_lists import COLUMNS, Rows, lists, spill
from dupq.text.keys import Sites

SITES = Sites(["a"])
SCHEMA = pa.schema([tables.PAIRS.field(name) for name in COLUMNS])
HIGHEST = 2.0
RANKS = st.none() | st.integers(1, 4)
PAIRS = st.dictionaries(
    st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda pair: pair[0] < pair[1]),
    st.tuples(RANKS, RANKS, st.none() | st.sampled_from([0.25, 0.5, 1.5])),
    max_size=30,
)


def expected(pairs: dict, files: list[list[int]]) -> list[list[tuple[int, float]]]:
    """Slow and obvious."""
    order = [number for file in files for number in file]
    found: dict[int, list] = {number: [] for number in order}
    for (left, right), (rank_left, rank_right, similarity) in pairs.items():
        for own, other, rank in ((left, right, rank_left), (right, left, rank_right)):
            if rank is not None and similarity is not None and own in order and other in order:
                found[own].append((rank, order.index(other), 1 - similarity / HIGHEST))
    return [[(row, distance) for _, row, distance in sorted(found[number])] for number in order]


@settings(max_examples=30)  # each makes files
@given(PAIRS, st.permutations(range(10)), st.integers(1, 4), st.integers(1, 3))
def test_the_lists_are_those_of_a_loop(pairs: dict, order: list[int], parts: int, tables_of_pairs: int) -> None:
    files = [file.tolist() for file in np.array_split(np.array(order), parts)]
    rows = [
        {
            "site_left": "a",
            "site_right": "a",
            "question_id_left": left,
            "question_id_right": right,
            "rank_left": ranks[0],
            "rank_right": ranks[1],
            "similarity": similarity,
        }
        for (left, right), (*ranks, similarity) in pairs.items()
    ]
    split = (pa.Table.from_pylist(rows[part::tables_of_pairs], SCHEMA) for part in range(tables_of_pairs))
    export = Rows([np.array(file, np.int64) for file in files])
    with tempfile.TemporaryDirectory() as folder:
        spill(split, export, SITES, HIGHEST, folder)
        found = [row for number in range(parts) for row in lists(export, number, folder).to_pylist()]
    assert [list(zip(row["ids"], row["distances"], strict=True)) for row in found] == expected(pairs, files)
