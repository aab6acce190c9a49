"""SIF and MappSent as systems, beside their closed forms."""

import numpy as np
import pytest
from made_collections import (
    DIMENSIONS,
    all_pairs,
    as_dict,
    collection_of,
    random_collection,
    random_examples,
    random_vectors,
    words_of,
)
from oracles import slow_systems
from ranked_systems import check, cosines

from dupq.evaluation.systems.collection import Collection
from dupq.evaluation.systems.mappsent import MappSent, paper_reading
from dupq.evaluation.systems.sif import Sif
from dupq.evaluation.systems.vectors import AS_STORED, bags


@pytest.mark.parametrize("components", [0, 1, 2])
@pytest.mark.parametrize("fitted_on", ["training", "archive"])
def test_sif_is_algorithm_1(components: int, fitted_on: str) -> None:
    collection, vectors = random_collection(5), random_vectors(5)
    examples = random_examples(collection, 5)
    system = Sif(collection, vectors, examples, removed_components=components, fitted_on=fitted_on)
    fitted = rows_of(collection, examples.training, fitted_on)
    rows = slow_systems.sif(words_of(collection), as_dict(vectors), fitted, 1e-3, components)
    others = rows.any(axis=1).sum() - 1
    found = system.score(*all_pairs(collection))
    assert found == pytest.approx(cosines(rows).ravel(), abs=1e-6)  # its weights are of single precision
    assert [len(lists) for lists in system.rank(collection.keys, 99)] == [others if row.any() else 0 for row in rows]


def rows_of(collection: Collection, training, fitted_on: str) -> list[int]:
    keys = np.concatenate([training.left, training.right]) if fitted_on == "training" else collection.keys
    return np.unique(collection.rows(keys)).tolist()


@pytest.mark.parametrize("components", [0, 1, 3])
@pytest.mark.parametrize("fitted_on", ["training", "archive"])
@pytest.mark.parametrize("rotated", [True, False])
def test_mappsent_has_the_cosines_of_section_3_with_r_and_without(
    components: int, fitted_on: str, rotated: bool
) -> None:
    collection, vectors = random_collection(6), random_vectors(6)
    examples = random_examples(collection, 6)
    known = examples.training.labels > 0
    sides = (collection.rows(keys[known]).tolist() for keys in (examples.training.left, examples.training.right))
    duplicates = list(zip(*sides, strict=True))
    settings_of = {"removed_components": components, "fitted_on": fitted_on, "reading": AS_STORED}
    system = MappSent(collection, vectors, examples, **settings_of)
    fitted = rows_of(collection, examples.training, fitted_on)
    rows = slow_systems.mappsent(words_of(collection), as_dict(vectors), fitted, duplicates, components, rotated)
    assert system.score(*all_pairs(collection)) == pytest.approx(cosines(rows).ravel(), abs=1e-11)


@pytest.mark.parametrize("components", [0, 2])
def test_r_changes_no_cosine(components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    collection, vectors = random_collection(7), random_vectors(7)
    examples = random_examples(collection, 7)

    def system() -> MappSent:
        return MappSent(collection, vectors, examples, reading=AS_STORED, removed_components=components)

    mapped = system()
    monkeypatch.setattr("dupq.encoders.networks.mappsent.orthogonal_map", lambda _, dimensions: np.eye(dimensions))
    unmapped = system()
    assert np.abs(mapped.vectors - unmapped.vectors).max() > 0.1
    pairs = all_pairs(collection)
    assert np.abs(mapped.vectors @ mapped.vectors.T - unmapped.vectors @ unmapped.vectors.T).max() < 1e-12
    assert np.abs(mapped.score(*pairs) - unmapped.score(*pairs)).max() < 2e-12  # rounded to 12 decimals
    assert mapped.rank(collection.keys, 5) == unmapped.rank(collection.keys, 5)


def test_mappsent_without_mapping_is_the_plain_sum() -> None:
    collection, vectors = random_collection(8), random_vectors(8)
    examples = random_examples(collection, 8)
    system = MappSent(collection, vectors, examples, reading=AS_STORED, mapped=False)
    rows = np.array(slow_systems.mean(words_of(collection), as_dict(vectors), DIMENSIONS))
    check(system, collection, cosines(rows), rows.any(axis=1))


def test_mappsent_reads_lemmas_of_content_words() -> None:
    reading = paper_reading("english")
    collection = collection_of(["the ovens of bakers", "oven", "baker", "of the"])
    words, counts = bags(collection.texts, reading)
    assert [words[place] for place in counts[[0]].indices] == ["baker", "oven"]
    assert {"of", "the"} < set(words)  # of the text that has nothing else
    assert paper_reading("french").parts_of_speech == "all"
