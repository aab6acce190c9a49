"""The papers' networks by what must hold for every network."""

from dataclasses import asdict

import network_twins as twins
import numpy as np
import pytest
import torch
from encoders import test_encoder_networks
from encoders.test_encoder_networks import (
    DOUBLE,
    TEXTS,
    WORDS,
    Twin,
    forward,
    small_network,
    test_a_network_is_its_equations,
    test_a_saved_network_is_the_same_when_opened,
    test_a_score_is_its_equation,
    test_an_embedding_has_the_same_bits_whatever_its_company,
    test_an_empty_text_has_a_zero_embedding,
    test_gradients_of_the_network_and_the_score_are_right,
    test_padding_does_not_matter,
    test_training_mode_gives_gradients_to_all_that_is_learned_and_to_the_words_of_the_batch_only,
    test_without_padding_a_network_is_the_same,
)
from hypothesis import given, settings
from oracles.encoder_twins import bag, weights_of

from dupq.encoders.encoding import build, rebuild
from dupq.encoders.saved import read_weights, weights
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Measure
from dupq.settings.sections import EncoderSettings
from dupq_papers.networks.dropout import FeatureDropout

NETWORKS: dict[str, tuple[EncoderSettings, Twin]] = {
    "word bag cnn": (
        EncoderSettings(kind="word_bag_cnn", units=5, dropout=0.2),
        lambda weights, ids: twins.word_bag_cnn_vector(weights, ids, 3),
    ),
    "bogdanova sum": (
        EncoderSettings(kind="cnn", pooling="sum", units=5),
        lambda weights, ids: twins.cnn(weights, ids, 3, "sum"),
    ),
    "bogdanova max": (
        EncoderSettings(kind="cnn", pooling="max", units=5, window=5),
        lambda weights, ids: twins.cnn(weights, ids, 5, "max"),
    ),
    "dos santos cnn": (
        EncoderSettings(kind="max_cnn", units=7),
        lambda weights, ids: twins.max_cnn(weights, ids, 3),
    ),
    "dos santos bow-cnn": (
        EncoderSettings(kind="bow_cnn", units=7, window=1),
        lambda weights, ids: twins.max_cnn(weights, ids, 1),
    ),
    "othman lstm": (
        EncoderSettings(kind="lstm", units=5, pooling="final", similarity="manhattan"),
        lambda weights, ids: twins.recurrent(weights, ids, "lstm", "final"),
    ),
    "othman gru": (
        EncoderSettings(kind="gru", units=5, pooling="final", similarity="euclidean"),
        lambda weights, ids: twins.recurrent(weights, ids, "gru", "final"),
    ),
    "othman attentive lstm": (
        EncoderSettings(kind="lstm", units=5, pooling="attention", similarity="manhattan"),
        lambda weights, ids: twins.recurrent(weights, ids, "lstm", "attention"),
    ),
    "othman attentive gru": (
        EncoderSettings(kind="gru", units=5, pooling="attention", similarity="cosine"),
        lambda weights, ids: twins.recurrent(weights, ids, "gru", "attention"),
    ),
    "othman lstm of both directions": (
        EncoderSettings(kind="lstm", units=4, pooling="final", directions="both", similarity="manhattan"),
        lambda weights, ids: twins.recurrent(weights, ids, "lstm", "final"),
    ),
    "othman attentive lstm of both directions": (
        EncoderSettings(kind="lstm", units=4, pooling="attention", directions="both", similarity="manhattan"),
        lambda weights, ids: twins.recurrent(weights, ids, "lstm", "attention"),
    ),
    "othman attentive gru of both directions": (
        EncoderSettings(kind="gru", units=3, pooling="attention", directions="both", similarity="cosine"),
        lambda weights, ids: twins.recurrent(weights, ids, "gru", "attention"),
    ),
    "othman cnn": (
        EncoderSettings(kind="width_cnn", units=5, widths=(2, 3, 4), filters=3, similarity="manhattan"),
        lambda weights, ids: twins.width_cnn(weights, ids, (2, 3, 4)),
    ),
    "othman stacked cnn": (
        EncoderSettings(kind="stacked_cnn", units=5, filters=4, similarity="manhattan"),
        lambda weights, ids: twins.stacked_cnn(weights, ids, 3, 2, 5.0),
    ),
    "othman stacked cnn of two layers": (
        EncoderSettings(kind="stacked_cnn", units=4, filters=3, layers=2, pool=3, window=2, scale="sum"),
        lambda weights, ids: twins.stacked_cnn(weights, ids, 2, 3, 1.0),
    ),
}
test_encoder_networks.NETWORKS.clear()  # those that its tests are called for
test_encoder_networks.NETWORKS.update(NETWORKS)
__all__ = [
    "test_a_network_is_its_equations",
    "test_a_saved_network_is_the_same_when_opened",
    "test_a_score_is_its_equation",
    "test_an_embedding_has_the_same_bits_whatever_its_company",
    "test_an_empty_text_has_a_zero_embedding",
    "test_gradients_of_the_network_and_the_score_are_right",
    "test_padding_does_not_matter",
    "test_training_mode_gives_gradients_to_all_that_is_learned_and_to_the_words_of_the_batch_only",
    "test_without_padding_a_network_is_the_same",
]


def test_dropout_of_a_step_is_the_same_for_all_its_texts_and_that_of_texts_is_not() -> None:
    ones = torch.ones(4, 50)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        of_step, of_texts = (FeatureDropout(0.5, 50, of) for of in ("step", "texts"))
        first = torch.cat([of_step(ones), of_step(ones[:2])])
        of_step.draw()
        second = of_step(ones)
        others = of_texts(ones)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert (first == first[0]).all()
    assert (second == second[0]).all()
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(others[0], others[1])
    assert torch.equal(of_step.eval()(ones), ones)


@settings(max_examples=40, deadline=None)
@given(texts=TEXTS)
def test_a_bag_of_words_is_equation_1_of_dos_santos(texts: list[list[int]]) -> None:
    network = small_network("dos santos bow-cnn")
    found = forward(network, texts)
    words, weights = found.bag
    for row, text in enumerate(texts):
        whole = np.zeros(WORDS)
        for word, weight in zip(words[row].tolist(), weights[row].tolist(), strict=True):
            whole[word] += weight
        assert whole == pytest.approx(bag(weights_of(network), text), abs=DOUBLE)
        assert (words[row].diff() >= 0).all()


def test_word_vectors_that_are_fixed_and_weights_that_are_fixed_are_not_learned() -> None:
    vectors = np.ones((4, 3), np.float32)
    chosen = EncoderSettings(kind="bow_cnn", units=2, word_vectors="fixed", word_weights="fixed")
    learned = [name for name, parameter in build(chosen, vectors, 1).named_parameters() if parameter.requires_grad]
    assert learned == ["betas", "convolution.weight", "convolution.bias"]


def test_the_weights_of_words_start_as_their_idf_or_as_ones() -> None:
    vectors = np.ones((6, 3), np.float32)
    texts = [np.array(text, np.int32) for text in ([2, 2, 3], [2, 1], [4, 3, 0], [])]
    network = build(EncoderSettings(kind="bow_cnn", units=2), vectors, 1)
    network.prepare(texts, [])
    idf = network.state_dict()["word_weights.weight"][:, 0].tolist()
    assert idf == pytest.approx([0, 0, np.log(4 / 2), np.log(4 / 2), np.log(4 / 1), np.log(4 / 1)])
    network = build(EncoderSettings(kind="bow_cnn", units=2, first_word_weights="ones"), vectors, 1)
    network.prepare(texts, [])
    assert set(network.state_dict()["word_weights.weight"][:, 0].tolist()) == {1.0}


def test_a_learned_mix_is_saved() -> None:
    network = small_network("dos santos bow-cnn")
    beta_1, beta_2 = weights_of(network)["betas"]
    assert network.measure == Measure("cosine", dense=beta_2, lexical=beta_1)
    assert Measure(**asdict(network.measure)) == network.measure


def test_weights_of_another_network_are_an_error_that_names_the_file() -> None:
    tensors = read_weights(weights(small_network("othman lstm").float()), "a")
    with pytest.raises(DupqError, match=r"place.*not the weights of a network of kind gru"):
        rebuild(NETWORKS["othman gru"][0], tensors, "place")
    del tensors["words.weight"]
    with pytest.raises(DupqError, match=r"place.*words\.weight"):
        rebuild(NETWORKS["othman lstm"][0], tensors, "place")
    with pytest.raises(DupqError, match=r"place.*not readable"):
        read_weights(b"\x80\x04pickle", "place")
