"""dupq's own encoder on arrays gives what its network gives."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.encoders.bags import Bag, inverse_document_frequencies
from dupq.encoders.encoding import build, encode, rebuild
from dupq.encoders.saved import Fitness, SavedEncoder, load, load_reader, read_weights, save, weights
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
