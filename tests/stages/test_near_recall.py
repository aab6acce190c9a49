"""12,000 real texts with planted edits: what the lexical filter finds, against comparing all pairs."""

import random
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from real_texts import real_texts
from test_near_steps import find

from benchmarks.all_pairs import all_pairs, edited
from dupq.tables import TEXTS
from dupq.text.token_arrays import token_texts

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.full,
    pytest.mark.usefixtures("quick"),
]  # test_near_steps.py has a sample

COUNT = 12_000
SHARES = (0.003, 0.01, 0.02, 0.03, 0.035, 0.04, 0.05, 0.08)  # of a text's words that an edit changes


@pytest.fixture(scope="module")
def texts(shared_data: Path) -> list[str]:
    """Bodies of posts, and as many edits and copies of them as make 12,000 texts."""
    generator = random.Random(1)
    sources = (found for name, found in real_texts(shared_data) if name.endswith(" texts"))
    column = token_texts(pa.array([text for source in sources for text in source]))
    real = generator.sample(sorted({text for text in column.to_pylist() if text}), 7_800)
    words = sorted({word for text in real[:2000] for word in text.split()})
    texts = real + generator.choices(real, k=120)
    while len(texts) < COUNT:
        texts.append(edited(generator.choice(real), generator.choice(SHARES), words, generator))
    generator.shuffle(texts)
    return texts


def test_real_near_duplicates_are_found_verified_and_joined(texts: list[str], tmp_path: Path) -> None:
    assert len(texts) == COUNT
    column = pa.array(texts)
    true = all_pairs(column.to_pylist(), 3, 0.8)
    untitled = pa.array([""] * COUNT)
    table = pa.table([pa.array(np.arange(COUNT)), untitled, column], schema=TEXTS)
    near = find(table, tmp_path)
    found = {(row["left"], row["right"]): row["jaccard"] for row in near.verified}
    assert {pair: np.float32(true[pair]) for pair in found} == found  # so none is under the threshold

    # A pair of copies represents those of all their copies: count a text once.
    copies = {row["right"] for row in near.verified if row["source"] == "exact"}
    wanted = {pair for pair in true if not copies & set(pair)}
    assert len(wanted) > 1800
    assert len(wanted & set(found)) >= 0.995 * len(wanted)

    groups = {min(group): group for group in nx.connected_components(nx.Graph(list(found)))}
    joined = near.representatives
    assert joined == {key: smallest for smallest, group in groups.items() for key in group}
    assert sum(joined.get(i, i) == joined.get(j, j) for i, j in true) >= 0.995 * len(true)
