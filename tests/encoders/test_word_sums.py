"""SIF and MappSent against their closed forms."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes

from dupq.encoders.build import build, rebuild
from dupq.encoders.encode import encode
from dupq.encoders.networks.mappsent import orthogonal_map
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import read_weights, weights
from dupq.encoders.word_sums import count_ids, principal_components
from dupq.settings import config
from dupq.settings.encoder import EncoderSettings

DIMENSIONS, WORDS = 12, 60
GENERATOR = np.random.default_rng(1)
VECTORS = GENERATOR.normal(size=(WORDS, DIMENSIONS)).astype(np.float32)
VECTORS[0] = 0.0
TEXTS = [GENERATOR.zipf(1.4, GENERATOR.integers(1, 30)).clip(1, WORDS - 1).astype(np.int32) for _ in range(300)]
TEXTS += [np.zeros(0, np.int32), np.array([1, 1], np.int32)]  # empty, and nothing but unknown words
PAIRS = [(TEXTS[i], TEXTS[i + 1]) for i in range(0, 120, 2)]


def prepared(**settings: Any) -> Encoder:
    network = build(EncoderSettings(**settings), VECTORS, seed=1)
    network.prepare(TEXTS, PAIRS)
    return network.eval()


def dense(network: Encoder) -> np.ndarray:
    """The embeddings of all texts, one by one, before they are brought to length 1."""
    found = [network(torch.from_numpy(text.astype(np.int64))[None], torch.tensor([len(text)])).dense for text in TEXTS]
    return torch.cat(found).double().numpy()


def sif_averages(smoothing: float) -> np.ndarray:
    """Algorithm 1, line by line, in float64."""
    counts = np.bincount(np.concatenate(TEXTS), minlength=WORDS)
    share = counts / counts.sum()
    averages = np.zeros((len(TEXTS), DIMENSIONS))
    for row, text in enumerate(TEXTS):
        for word in text[text > 1]:
            averages[row] += smoothing / (smoothing + share[word]) * VECTORS[word].astype(float) / len(text)
    return averages


def less_components(rows: np.ndarray, number: int) -> np.ndarray:
    """By the singular value decomposition of all rows at once."""
    components = np.linalg.svd(rows, full_matrices=False)[2][:number]
    return rows - rows @ components.T @ components


@pytest.mark.parametrize("components", [0, 1, 2])
@pytest.mark.parametrize("smoothing", [1e-3, 0.1])
def test_sif_is_algorithm_1(components: int, smoothing: float) -> None:
    network = prepared(kind="sif", smoothing=smoothing, removed_components=components)
    assert dense(network) == pytest.approx(less_components(sif_averages(smoothing), components), abs=1e-5)


def units() -> np.ndarray:
    sums = np.array([VECTORS[text[text > 1]].astype(float).sum(axis=0) for text in TEXTS])
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)


@pytest.mark.parametrize("components", [0, 1, 2])
def test_mappsent_is_procrustes_on_centred_units(components: int) -> None:
    unit = units()
    present = unit.any(axis=1)
    centred = (unit - unit[present].mean(axis=0)) * present[:, None]
    left, right = centred[0:120:2], centred[1:120:2]
    rotation, _ = orthogonal_procrustes(left, right)
    network = prepared(kind="mappsent", removed_components=components)
    assert network.mapping.numpy() == pytest.approx(rotation, abs=1e-4)
    assert dense(network) == pytest.approx(less_components(centred @ rotation, components), abs=1e-4)


@pytest.mark.parametrize("components", [0, 2])
def test_without_mapping_mappsent_is_the_plain_sum(components: int) -> None:
    sums = np.array([VECTORS[text[text > 1]].astype(float).sum(axis=0) for text in TEXTS])
    network = prepared(kind="mappsent", mapping="none", removed_components=components)
    assert dense(network) == pytest.approx(less_components(sums, components), abs=1e-3)


def test_the_orthogonal_map_changes_no_cosine() -> None:
    unit = units()
    present = unit.any(axis=1)
    centred = (unit - unit[present].mean(axis=0)) * present[:, None]
    network = prepared(kind="mappsent")
    assert not np.allclose(network.mapping.numpy(), np.eye(DIMENSIONS), atol=0.1)
    mapped = dense(network)
    assert mapped @ mapped.T == pytest.approx(centred @ centred.T, abs=1e-4)


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
