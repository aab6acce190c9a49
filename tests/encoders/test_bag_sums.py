"""Bags without padding against those of `forward`, with their gradients."""

from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_padding import pad

from dupq.encoders import unpadded, word_bag
from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.encoders.word_bag import WordBag
from dupq.settings.sections import EncoderSettings
from dupq.text.token_arrays import TokenIds

WORDS = 12
TEXTS = st.lists(st.lists(st.integers(0, WORDS - 1), max_size=9), min_size=1, max_size=6)


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


@given(TEXTS, st.sampled_from([unpadded.weighted_sums, unpadded.sums_on_gpu]))
def test_without_padding_a_bag_and_its_gradients_are_the_same(texts: list[list[int]], sums: Any) -> None:
    """By the loops of a CPU, and by what a GPU does."""
    arrays = [np.array(text, np.int32) for text in texts]
    flat, padded = bag(5), bag(5)
    with mock.patch.object(unpadded, "weighted_sums", sums), mock.patch.object(word_bag, "weighted_sums", sums):
        check_like_padded(arrays, flat, padded)


def check_like_padded(arrays: list[np.ndarray], flat: Encoder, padded: Encoder) -> None:
    one, other = flat.forward_unpadded(TokenIds.of(arrays)), padded(*pad(arrays))
    assert one is not None
    assert torch.allclose(one.dense, other.dense)
    actual, expected = gradients(flat, one.dense), gradients(padded, other.dense)
    assert set(actual) == set(expected) == {"words.weight", "log_weights.weight", "power"}
    for name, gradient in expected.items():
        assert torch.allclose(actual[name], gradient), name
    rows = [flat.get_parameter(name).grad for name in ("words.weight", "log_weights.weight")]
    for gradient in rows:  # each word that is there once
        assert gradient is not None
        assert gradient._indices()[0].tolist() == sorted(
            {word for text in arrays for word in text.tolist() if word > 1}
        )


def test_dropout_leaves_words_out_of_texts_one_by_one() -> None:
    vectors = np.eye(WORDS, dtype=np.float32)
    network = build(EncoderSettings(kind="word_bag", dropout=0.3), vectors, 1).train()
    texts = TokenIds.of([np.array([2, 3, 3, 5], np.int32)] * 4_000)
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


def test_a_bag_that_scores_read_is_not_left_out() -> None:
    network = bag(3)
    network.tune(None)
    assert network.forward_unpadded(TokenIds.of([np.array([2], np.int32)])) is None
