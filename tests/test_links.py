"""Links and labelled pairs, and which of them a run calibrates on, compared with Python sets."""

import threading
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dupq import storage, tables
from dupq.links import Split, duplicate_links, known_pairs, represented_split, run_split
from dupq.settings.sections import TrainingSettings
from dupq.text.keys import ID_BITS, Sites

PARTS = ("train", "development", "test")
KEYS = st.integers(0, 20)
LINKS = st.lists(st.tuples(KEYS, KEYS).filter(lambda pair: pair[0] != pair[1]), max_size=25)
SEEN = st.dictionaries(KEYS, st.sampled_from(PARTS))

Links = list[tuple[int, int]]


def pairs_of(links: Links) -> np.ndarray:
    return np.array(links, np.int64).reshape(-1, 2)


def seen_of(seen: dict[int, str]) -> dict[str, np.ndarray]:
    return {part: np.array(sorted(key for key, own in seen.items() if own == part), np.int64) for part in PARTS}


def slow_sets(links: Links) -> list[set[int]]:
    sets: list[set[int]] = []
    for link in links:
        touched = [one for one in sets if one & set(link)]
        sets = [one for one in sets if one not in touched] + [set(link).union(*touched)]
    return sets


def slow_part(questions: set[int], seen: dict[int, str]) -> str:
    """Training wins over development, and this over test; a hash halves the other sets."""
    parts = {seen[key] for key in questions if key in seen}
    for part in PARTS:
        if part in parts:
            return part
    return "development" if xxhash.xxh3_64_intdigest(min(questions).to_bytes(8, "little")) % 2 else "test"


@given(LINKS, SEEN)
def test_a_set_is_of_the_part_that_the_encoder_saw_it_in_or_of_its_hash(links: Links, seen: dict[int, str]) -> None:
    found = run_split(pairs_of(links), seen_of(seen))
    expected = {}
    for questions in slow_sets(links):
        expected.update({key: (min(questions), slow_part(questions, seen)) for key in questions})
    assert set_and_part(found) == expected


def set_and_part(found: Split) -> dict[int, tuple[int, str]]:
    assert found.questions.tolist() == sorted(found.questions.tolist())
    sides = zip(found.sets.tolist(), found.parts.tolist(), strict=True)
    return dict(zip(found.questions.tolist(), sides, strict=True))


STANDING = st.dictionaries(KEYS, KEYS)  # of copies, the question that represents each


def representing(standing: dict[int, int]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda keys: np.array([standing.get(key, key) for key in keys.tolist()], np.int64)


def slow_represented(links: Links, seen: dict[int, str], standing: dict[int, int]) -> dict[int, tuple[int, str]]:
    """Return the set and the part of each representative with a known duplicate."""
    read_as: dict[int, set[str]] = {}  # what parts the questions are of that each one represents
    for questions in slow_sets(links):
        for key in questions:
            read_as.setdefault(standing.get(key, key), set()).add(slow_part(questions, seen))
    ends = [(standing.get(one, one), standing.get(other, other)) for one, other in links]
    found = {}
    for representatives in slow_sets([pair for pair in ends if pair[0] != pair[1]]):
        parts = set().union(*(read_as[key] for key in representatives))
        part = next(part for part in ("train", "test", "development") if part in parts)
        found.update({key: (min(representatives), part) for key in representatives})
    return found


@given(LINKS, SEEN, STANDING)
def test_a_set_of_representatives_is_of_training_else_of_test_else_calibrated_on(
    links: Links, seen: dict[int, str], standing: dict[int, int]
) -> None:
    found = represented_split(pairs_of(links), seen_of(seen), representing(standing))
    assert set_and_part(found) == slow_represented(links, seen, standing)


SETTINGS = TrainingSettings()
PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(31, 60)), max_size=40)


def table(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)


@given(PAIRS, PAIRS, PAIRS, st.integers(1, 3))
def test_links_and_labels_are_joined_and_contradictions_left_out(
    linked: list[tuple[int, int]], same: list[tuple[int, int]], others: list[tuple[int, int]], step: int
) -> None:
    keys = {key for key in range(61) if key % (step + 1)}
    found = known_pairs(table(linked), (table(same), table(others)), np.array(sorted(keys)), SETTINGS)
    links = {pair for pair in [*linked, *same] if set(pair) <= keys}
    assert {tuple(pair) for pair in found.links.tolist()} == links
    graph = networkx.Graph(links)
    held_out = set(found.split.questions_of("development", "test").tolist())
    together = {pair for pair in set(others) if set(pair) <= set(graph) and networkx.has_path(graph, *pair)}
    wrong = {pair for pair in others if set(pair) <= keys and pair not in together and not set(pair) & held_out}
    assert {tuple(pair) for pair in found.wrong.tolist()} == wrong
    absent = [pair for pairs in (set(same), set(others)) for pair in pairs if not set(pair) <= keys]
    assert list(found.counts.values()) == [len(absent), len(together)]


def test_links_of_several_sites_are_asked_for_and_read_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, those of 360 sites take half a minute from an object store, in each task that needs them."""
    for site in ("a", "b"):
        rows = [{"question_id": 2, "related_id": 1, "link_type": "duplicate"}]
        uri = f"{tmp_path}/links/site={site}/part-0.parquet"
        storage.write_table(uri, pa.Table.from_pylist(rows, tables.LINKS), tables.LINKS)
    for name in ("exists", "read_table"):
        both, ask = threading.Barrier(2, timeout=20), getattr(storage, name)
        monkeypatch.setattr(storage, name, lambda *given, both=both, ask=ask: both.wait() >= 0 and ask(*given))
    site_b = 1 << ID_BITS
    links = duplicate_links(f"{tmp_path}/links", Sites(["a", "b"]))
    assert links.tolist() == [[2, 1], [site_b | 2, site_b | 1]]
