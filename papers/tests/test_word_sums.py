"""SIF and MappSent against their slow twins."""

from typing import Any

import network_twins
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.encoder_twins import cosine
from scipy.linalg import orthogonal_procrustes

from dupq.encoders.encoding import build, encode, rebuild
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import read_weights, weights
from dupq.settings import config
from dupq.settings.sections import EncoderSettings
from dupq_papers.networks.mappsent import orthogonal_map
from dupq_papers.networks.word_sums import count_ids, principal_components

DIMENSIONS, WORDS = 12, 60
GENERATOR = np.random.default_rng(1)
VECTORS = GENERATOR.normal(size=(WORDS, DIMENSIONS)).astype(np.float32)
VECTORS[0] = 0.0
TEXTS = [GENERATOR.zipf(1.4, GENERATOR.integers(1, 30)).clip(1, WORDS - 1).astype(np.int32) for _ in range(300)]
TEXTS += [np.zeros(0, np.int32), np.array([1, 1], np.int32)]  # empty, and nothing but unknown words
DUPLICATES = [(row, row + 1) for row in range(0, 120, 2)]
PAIRS = [(TEXTS[left], TEXTS[right]) for left, right in DUPLICATES]
TRAINING, ARCHIVE = list(range(200)), list(range(len(TEXTS)))  # the rows that counts are taken from
LISTS = [text.tolist() for text in TEXTS]


def prepared(rows: list[int] = ARCHIVE, exact: bool = False, **settings: Any) -> Encoder:
    """`exact`: in float64."""
    network = build(EncoderSettings(**settings), VECTORS, seed=1)
    if exact:
        network.double()
    network.prepare([TEXTS[row] for row in rows], PAIRS)
    return network.eval()


def dense(network: Encoder) -> np.ndarray:
    """The embeddings of all texts, one by one, before they are brought to length 1."""
    found = [network(torch.from_numpy(text.astype(np.int64))[None], torch.tensor([len(text)])).dense for text in TEXTS]
    return torch.cat(found).double().numpy()


def cosines(rows: np.ndarray) -> np.ndarray:
    return np.array([[cosine(left, right) for right in rows] for left in rows[:40]])


@pytest.mark.parametrize("fitted", [TRAINING, ARCHIVE], ids=["training", "archive"])
@pytest.mark.parametrize("components", [0, 1, 2])
@pytest.mark.parametrize("smoothing", [1e-3, 0.1])
def test_sif_is_algorithm_1(fitted: list[int], components: int, smoothing: float) -> None:
    network = prepared(fitted, kind="sif", smoothing=smoothing, removed_components=components)
    slow = network_twins.sif(VECTORS.astype(float), LISTS, fitted, smoothing, components)
    assert dense(network) == pytest.approx(slow, abs=1e-5)


@pytest.mark.parametrize("fitted", [TRAINING, ARCHIVE], ids=["training", "archive"])
@pytest.mark.parametrize("components", [0, 1, 3])
def test_mappsent_is_section_3_with_r_and_has_the_same_cosines_without(fitted: list[int], components: int) -> None:
    network = prepared(fitted, True, kind="mappsent", removed_components=components)
    parts = VECTORS.astype(float), LISTS, fitted, DUPLICATES, components
    assert dense(network) == pytest.approx(network_twins.mappsent(*parts), abs=1e-9)
    unrotated = cosines(network_twins.mappsent(*parts, rotated=False))
    assert cosines(dense(network)) == pytest.approx(unrotated, abs=1e-11)


@pytest.mark.parametrize("fitted", [TRAINING, ARCHIVE], ids=["training", "archive"])
@pytest.mark.parametrize("components", [0, 2])
def test_without_mapping_mappsent_is_the_plain_sum(fitted: list[int], components: int) -> None:
    sums = network_twins.sums(VECTORS.astype(float), LISTS)
    network = prepared(fitted, True, kind="mappsent", mapping="none", removed_components=components)
    assert dense(network) == pytest.approx(network_twins.less_components(sums, sums[fitted], components), abs=1e-9)


@pytest.mark.parametrize("components", [0, 2])
def test_r_changes_no_cosine(components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"kind": "mappsent", "removed_components": components}
    mapped = dense(prepared(TRAINING, True, **settings))
    monkeypatch.setattr("dupq_papers.networks.mappsent.orthogonal_map", lambda _, dimensions: np.eye(dimensions))
    unmapped = dense(prepared(TRAINING, True, **settings))
    assert np.abs(mapped - unmapped).max() > 0.1
    assert np.abs(cosines(mapped) - cosines(unmapped)).max() < 1e-12


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_the_map_is_orthogonal_and_brings_pairs_nearest(pairs: int, dimensions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    left, right = generator.normal(size=(2, pairs, dimensions))
    found = orthogonal_map([np.stack([left, right], axis=1).reshape(-1, dimensions)], dimensions)
    assert found @ found.T == pytest.approx(np.eye(dimensions), abs=1e-9)
    best = np.linalg.norm(left @ orthogonal_procrustes(left, right)[0] - right)
    assert np.linalg.norm(left @ found - right) == pytest.approx(best)


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_components_do_not_depend_on_how_the_rows_come(number: int, pieces: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(40, 6)) * np.arange(6, 0, -1) ** 2
    whole = principal_components([rows], 6, number)
    some = principal_components(np.array_split(rows, pieces), 6, number)
    assert whole.T @ whole == pytest.approx(some.T @ some, abs=1e-6)
    right = np.linalg.svd(rows)[2][:number]
    assert whole.T @ whole == pytest.approx(right.T @ right, abs=1e-6)


def test_more_components_than_there_are_remove_what_there_is() -> None:
    assert principal_components([np.array([[3.0, 0.0], [1.0, 0.0]])], 2, 3).tolist()[1:] == [[0, 0], [0, 0]]
    assert not principal_components([], 2, 1).any()


def test_ids_are_counted_over_any_number_of_texts() -> None:
    many = [np.array([text % 7, 3], np.int32) for text in range(9_000)]
    assert count_ids(iter(many), 9).tolist() == np.bincount(np.concatenate(many), minlength=9).tolist()
    assert count_ids([], 3).tolist() == [0, 0, 0]


ALL = [
    {"kind": "sif"},
    {"kind": "sif", "removed_components": 1},
    {"kind": "mappsent"},
    {"kind": "mappsent", "removed_components": 2},
    {"kind": "mappsent", "mapping": "none", "removed_components": 1},
]


@pytest.mark.parametrize("settings", ALL)
def test_nothing_is_left_to_gradients_and_all_is_saved(settings: dict[str, Any]) -> None:
    network = prepared(**settings)
    assert not network.trainable
    content = weights(network)
    again = rebuild(EncoderSettings(**settings), read_weights(content, "here"), "here")
    assert weights(again) == content
    assert encode(again, TEXTS, 8).vectors.tobytes() == encode(network, TEXTS, 8).vectors.tobytes()


@pytest.mark.parametrize("settings", ALL)
def test_a_text_without_a_known_word_is_zero_and_company_changes_nothing(settings: dict[str, Any]) -> None:
    network = prepared(**settings)
    together = encode(network, TEXTS, 16).vectors
    expected = [float(any(word > 1 for word in text)) for text in TEXTS]
    assert expected[-2:] == [0, 0]
    assert np.linalg.norm(together.astype(float), axis=1) == pytest.approx(expected, abs=1e-2)
    some = np.random.default_rng(2).permutation(len(TEXTS))[:70]
    assert encode(network, [TEXTS[row] for row in some], 16).vectors.tobytes() == together[some].tobytes()


@pytest.mark.parametrize("settings", ALL)
def test_preparing_again_gives_the_same(settings: dict[str, Any]) -> None:
    network = prepared(**settings)
    before = weights(network)
    network.prepare(iter_again(TEXTS), iter(PAIRS))
    assert weights(network) == before


class iter_again:  # noqa: N801
    """Texts that can be iterated several times, and nothing else."""

    def __init__(self, texts: list[np.ndarray]) -> None:
        self._texts = texts

    def __iter__(self) -> Any:
        return iter(self._texts)


@pytest.mark.parametrize(
    ("preset", "components"), [("arora-sif", 0), ("arora-sif-pca", 1), ("mappsent", 0), ("mappsent-pca", 1)]
)
def test_the_presets_have_the_papers_numbers(preset: str, components: int) -> None:
    settings = config.load(preset)
    assert settings.encoder.removed_components == components
    assert (settings.text.word_form, settings.text.stop_words, settings.text.parts_of_speech) == (
        "lemmas",
        "removed",
        "content",
    )
    assert (settings.text.tokens, settings.encoder.taken_from) == ("written", "training")
    assert settings.training.positives == "links"
    words = settings.word_vectors
    assert (words.algorithm, words.objective, words.negative, words.sample, words.epochs) == (
        "skip-gram",
        "both",
        5,
        1e-3,
        15,
    )
