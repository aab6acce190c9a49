"""dupq's own encoder on arrays gives what its network gives."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_padding import pad

from dupq.encoders.bags import Bag, inverse_document_frequencies
from dupq.encoders.encoding import build, encode, rebuild
from dupq.encoders.on_device import DeviceTexts
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import Fitness, SavedEncoder, load, load_reader, read_weights, save, weights, write_tensors
from dupq.encoders.word_bag import WordBag
from dupq.settings import config
from dupq.settings.sections import EncoderSettings
from dupq.tables import TEXTS
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds
from dupq.training.loop import train_on_texts
from dupq.training.word_vectors import untrained_reader

KIND = EncoderSettings(kind="word_bag", dropout=0.2)
TITLES = ["How do I bake bread?", "Baking bread without an oven", "", "Zzyzx or zzyzx?", "Where is my bicycle?"]


def trained_like() -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Weights as after a training, and texts with repeats, unknown words, and none."""
    generator = np.random.default_rng(3)
    network = build(KIND, generator.normal(size=(40, 12)).astype(np.float32), 1)
    texts = [generator.integers(0, 40, size).astype(np.int32) for size in (5, 0, 1, 60, 3)] + [np.zeros(2, np.int32)]
    network.prepare(texts, [])
    network.tune(None)
    tensors = read_weights(weights(network), "here")
    tensors["power"] = np.array(0.37, np.float32)
    tensors["log_weights.weight"] += generator.normal(size=(40, 1)).astype(np.float32)
    return tensors, texts


def test_embeddings_and_measure_are_the_networks() -> None:
    tensors, texts = trained_like()
    network, bag = rebuild(KIND, tensors, "here"), Bag.of(tensors)
    assert (bag.dimensions, bag.measure) == (network.dimensions, network.measure)
    expected, actual = encode(network, texts), bag.encode(TokenIds.of(texts))
    assert actual.vectors.dtype == np.float16
    np.testing.assert_allclose(actual.vectors, expected.vectors, atol=1e-3)
    assert expected.words is not None
    assert actual.words is not None
    np.testing.assert_allclose(actual.words.toarray(), expected.words.toarray(), atol=1e-3)
    assert not actual.vectors[1].any()
    nothing = bag.encode(TokenIds.of([]))
    assert nothing.vectors.shape == (0, 12)
    assert nothing.words is not None
    assert nothing.words.shape[0] == 0


def test_what_is_counted_is_what_a_training_begins_with() -> None:
    table = pa.table([pa.array(np.arange(len(TITLES))), pa.array(TITLES), pa.array(TITLES)], schema=TEXTS)
    for own in ((), ("word_vectors.algorithm=random", "word_vectors.dimensions=8")):
        settings = config.load("dupq", ["title_body.epochs=0", "word_vectors.minimum_count=1", *own])
        actual, expected = untrained_reader(table, settings), train_on_texts(table, settings)
        assert actual.vocabulary.words == expected.vocabulary.words
        assert actual.network.measure == expected.network.measure
        np.testing.assert_allclose(actual.encode(table).vectors, expected.encode(table).vectors, atol=1e-3)


def test_a_saved_bag_is_read_without_its_network(tmp_path: Path) -> None:
    tensors, texts = trained_like()
    uri, words = str(tmp_path), Vocabulary([f"word{number}" for number in range(38)])
    settings = config.load("dupq").changed(encoder=KIND)
    network = rebuild(KIND, tensors, "here")
    fitness = Fitness(questions=1, unknown_words=0.0, bodies_found=None)
    save(uri, SavedEncoder(network, words, settings, None, fitness, {}), "run")
    reader = load_reader(uri)
    assert isinstance(reader.network, Bag)
    assert (reader.vocabulary.words, reader.settings) == (words.words, load(uri).settings)
    actual, expected = (bag.encode(TokenIds.of(texts)).vectors for bag in (reader.network, Bag.of(tensors)))
    assert np.array_equal(actual, expected)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8))
def test_a_text_counts_once_for_each_word_that_it_holds(texts: list[list[int]]) -> None:
    actual = inverse_document_frequencies((np.array(text, np.int32) for text in texts), 10)
    holding = [sum(word in text for text in texts) for word in range(2, 10)]
    assert actual.tolist() == pytest.approx([0, 0, *(np.log(max(1, len(texts)) / max(1, count)) for count in holding)])


TENSORS = {
    "é/first": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array(7, np.int64),
    "a": np.array([[1.5], [2.5]]),
    "none": np.zeros((0, 4), np.float16),
    "c": np.array([1, 2], np.int32),
    "half": np.array([0.5], np.float16),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "d": np.array([3], np.int64),
    "text": np.frombuffer(b"[1, 2]", np.uint8),
}


@pytest.mark.parametrize("names", [list(TENSORS), ["a"], ["half"], []])
def test_a_file_is_what_safetensors_writes(names: list[str], tmp_path: Path) -> None:
    tensors = {name: TENSORS[name] for name in names}
    write_tensors(str(tmp_path / "some.safetensors"), tensors)
    plain = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    assert (tmp_path / "some.safetensors").read_bytes() == safetensors.numpy.save(plain)


WORDS = 12
BATCHES = st.lists(st.lists(st.integers(0, WORDS - 1), max_size=9), min_size=1, max_size=6)


def bag(dimensions: int, dropout: float = 0.0) -> Encoder:
    vectors = np.random.default_rng(1).normal(size=(WORDS, dimensions))
    network = build(EncoderSettings(kind="word_bag", dropout=dropout), vectors.astype(np.float32), 1).double()
    assert isinstance(network, WordBag)
    network.log_weights.weight.data[:, 0] = torch.from_numpy(np.random.default_rng(2).normal(size=WORDS))
    return network.train()


def gradients(network: Encoder, dense: torch.Tensor) -> dict[str, torch.Tensor]:
    direction = torch.from_numpy(np.random.default_rng(3).normal(size=tuple(dense.shape)))
    (dense * direction).sum().backward()
    actual = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}
    return {name: gradient.to_dense() if gradient.is_sparse else gradient for name, gradient in actual.items()}


def given_to(arrays: list[np.ndarray], on_device: bool) -> TokenIds | DeviceTexts:
    texts = TokenIds.of(arrays)
    return DeviceTexts.of(texts, torch.device("cpu")) if on_device else texts


@pytest.mark.parametrize("on_device", [False, True])
@given(texts=BATCHES)
def test_without_padding_a_bag_and_its_gradients_are_the_same(on_device: bool, texts: list[list[int]]) -> None:
    """By the loops of a CPU, and by what a GPU does."""
    arrays = [np.array(text, np.int32) for text in texts]
    flat, padded = bag(5), bag(5)
    one, other = flat.forward_unpadded(given_to(arrays, on_device)), padded(*pad(arrays))
    assert one is not None
    assert torch.allclose(one.dense, other.dense)
    actual, expected = gradients(flat, one.dense), gradients(padded, other.dense)
    assert set(actual) == set(expected) == {"words.weight", "log_weights.weight", "power"}
    for name, gradient in expected.items():
        assert torch.allclose(actual[name], gradient), name
    rows = [flat.get_parameter(name).grad for name in ("words.weight", "log_weights.weight")]
    for gradient in rows:  # each word that is there once
        assert gradient is not None
        assert gradient.is_coalesced() or not on_device
        assert gradient._indices()[0].tolist() == sorted(
            {word for text in arrays for word in text.tolist() if word > 1}
        )


@pytest.mark.parametrize("on_device", [False, True])
def test_dropout_leaves_words_out_of_texts_one_by_one(on_device: bool) -> None:
    vectors = np.eye(WORDS, dtype=np.float32)
    network = build(EncoderSettings(kind="word_bag", dropout=0.3), vectors, 1).train()
    texts = given_to([np.array([2, 3, 3, 5], np.int32)] * 4_000, on_device)
    whole = network.eval().forward_unpadded(texts)
    torch.manual_seed(1)
    some = network.train().forward_unpadded(texts)
    assert whole is not None
    assert some is not None
    is_kept = some.dense > 0
    assert torch.equal(some.dense, whole.dense * is_kept)
    # four standard deviations of the share of 4,000
    assert torch.allclose(is_kept[:, [2, 3, 5]].double().mean(dim=0), torch.tensor(0.7).double(), atol=0.029)
    assert torch.corrcoef(is_kept[:, [2, 3, 5]].T.double()).triu(1).abs().max() < 4 / 4_000**0.5
