"""The papers' networks by what must hold for every network."""

import torch
from encoders import test_encoder_networks
from encoders.test_encoder_networks import (
    test_a_cpu_and_batches_give_the_same_embeddings,
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
from oracles import encoder_twins as twins

from dupq.settings.sections import EncoderSettings
from dupq_papers.networks.dropout import FeatureDropout

NETWORKS = {
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
    "test_a_cpu_and_batches_give_the_same_embeddings",
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
