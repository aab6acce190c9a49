"""Tiles in waves: all pairs of blocks once, and what the tiles write does not grow with the square of the questions."""

from itertools import combinations
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from test_neighbour_stage import SITES, K, search_request, write

from dupq import storage
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.measure import Measure
from dupq.stages.neighbours.exact import find_neighbours
from dupq.stages.neighbours.waves import tiles_of, waves


def named(sizes: list[int]) -> list[list[str]]:
    return [[f"{group}-{place:03d}" for place in range(size)] for group, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 40), max_size=4))
def test_waves_have_all_pairs_of_a_group_once(sizes: list[int]) -> None:
    groups = named(sizes)
    found = [tile for wave in waves(groups) for tile in wave]
    assert sorted(found) == sorted(pair for group in groups for pair in combinations(group, 2))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_each_wave_doubles_what_a_block_has_met(sizes: list[int]) -> None:
    groups = named(sizes)
    met = {name: 0 for group in groups for name in group}
    for number, wave in enumerate(waves(groups), 1):
        for group in groups:
            for name in group:
                met[name] += len(tiles_of(name, wave))
                assert met[name] == min(len(group) - 1, 2 * (2**number - 1))


def test_a_wave_writes_about_k_neighbours_a_question(tmp_path: Path) -> None:
    questions, blocks = 1_200, 24
    vectors = np.random.default_rng(3).normal(size=(questions, 16)).astype(np.float16)
    files, shards = write(Embeddings(np.arange(questions), vectors), tmp_path / "run", SITES)
    find_neighbours(files, shards, search_request(Measure("cosine"), block_rows=questions // blocks))
    written = [
        len(storage.read_table(file.uri)["neighbours"].combine_chunks().flatten())
        for file in storage.list_files(files.tiles, ".parquet")
        if file.relative.split("/")[0].count("block-") == 2
    ]
    assert len(written) == blocks + blocks * (blocks - 1)
    a_wave = 1.5 * K * questions  # of random vectors twice as many in the first wave, and then ever nearer to one
    assert sum(written) < a_wave * (2 + len(waves([[str(block) for block in range(blocks)]])))
