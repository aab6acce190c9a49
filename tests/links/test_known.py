"""What links and labelled pairs say together, against sets and a slow walk along them."""

import networkx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dupq.links.split import LabelledPairs, known_pairs
from dupq.settings.training import TrainingSettings

SETTINGS = TrainingSettings()
PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(31, 60)), max_size=40)


def table(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)


@given(PAIRS, PAIRS, PAIRS, st.integers(1, 3))
def test_links_and_labels_are_joined_and_contradictions_left_out(
    linked: list[tuple[int, int]], same: list[tuple[int, int]], others: list[tuple[int, int]], step: int
) -> None:
    keys = {key for key in range(61) if key % (step + 1)}
    labelled = LabelledPairs(table(same), table(others))
    found = known_pairs(table(linked), labelled, np.array(sorted(keys)), SETTINGS)
    links = {pair for pair in [*linked, *same] if set(pair) <= keys}
    assert {tuple(pair) for pair in found.links.tolist()} == links
    graph = networkx.Graph(links)
    held_out = set(found.split.questions_of("development", "test").tolist())
    together = {pair for pair in set(others) if set(pair) <= set(graph) and networkx.has_path(graph, *pair)}
    wrong = {pair for pair in others if set(pair) <= keys and pair not in together and not set(pair) & held_out}
    assert {tuple(pair) for pair in found.wrong.tolist()} == wrong
    absent = [pair for pairs in (set(same), set(others)) for pair in pairs if not set(pair) <= keys]
    assert list(found.counts.values()) == [len(absent), len(together)]
