"""Bags without padding against those of `forward`, with their gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_padding import pad

from dupq.encoders.encoding import build
from dupq.encoders.on_device import DeviceTexts
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


def given_to(arrays: list[np.ndarray], on_device: bool) -> TokenIds | DeviceTexts:
    texts = TokenIds.of(arrays)
    return DeviceTexts.of(texts, torch.device("cpu")) if on_device else texts


@pytest.mark.parametrize("on_device", [False, True])
@given(texts=TEXTS)
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
