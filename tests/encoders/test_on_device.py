"""Texts on a device, which is the CPU here, against those of the host."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupq.encoders import on_device
from dupq.encoders.bags import flat_bags
from dupq.encoders.encoding import build, encode
from dupq.encoders.on_device import DeviceTexts, bags_on_device
from dupq.encoders.protocol import WordTable, batches, padded_length
from dupq.settings.sections import EncoderSettings
from dupq.text.token_arrays import TokenIds

CPU = torch.device("cpu")
TEXTS = st.lists(st.lists(st.integers(0, 8), max_size=12), max_size=8)


def ids_of(texts: list[list[int]]) -> TokenIds:
    return TokenIds.of(np.array(text, np.int32) for text in texts)


@given(TEXTS, st.data())
def test_texts_lie_one_behind_the_other_in_any_order(texts: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=10) if texts else st.just([]))
    expected = [texts[row] for row in rows]
    ids, owners, begins = DeviceTexts.of(ids_of(texts), CPU).take(np.array(rows, np.int64)).flat()
    assert ids.tolist() == [word for text in expected for word in text]
    assert owners.tolist() == [row for row, text in enumerate(expected) for _ in text]
    assert begins.tolist() == [sum(map(len, expected[:row])) for row in range(len(expected))]


@given(TEXTS)
def test_bags_are_those_of_the_host(texts: list[list[int]]) -> None:
    actual, counts = bags_on_device(DeviceTexts.of(ids_of(texts), CPU), 0.0)
    expected, expected_counts = flat_bags(ids_of(texts))
    counted = counts > 0
    assert actual.words[counted].tolist() == expected.ids.tolist()
    assert counts[counted].tolist() == expected_counts.tolist()
    owners, entries, distinct, firsts = actual.by_word
    assert torch.bincount(owners, minlength=len(texts)).tolist() == expected.lengths.tolist()
    assert owners[entries.argsort()].tolist() == np.repeat(np.arange(len(texts)), expected.lengths).tolist()
    assert sorted(entries.tolist()) == counted.nonzero()[:, 0].tolist()
    assert distinct.tolist() == sorted(set(expected.ids.tolist()))
    by_word = entries.tensor_split(firsts)[1:] if texts else ()
    for word, own in zip(distinct.tolist(), by_word, strict=True):
        assert set(actual.words[own].tolist()) == {word}


@pytest.mark.parametrize("most", [1 << 18, 40])
@given(lengths=st.lists(st.integers(0, 70), max_size=40))
def test_batches_have_each_text_once_and_are_few(most: int, lengths: list[int]) -> None:
    texts = [list(range(2, 2 + length)) for length in lengths]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(on_device, "_MOST_IDS", most)
        made = list(DeviceTexts.of(ids_of(texts), CPU).batches())
    assert sorted(row for *_, rows in made for row in rows.tolist()) == list(range(len(texts)))
    for ids, sizes, rows in made:
        assert sizes.tolist() == [lengths[row] for row in rows]
        assert ids.shape == (len(rows), max(1, sizes.max()))
        assert ids.tolist() == [texts[row] + [0] * (ids.shape[1] - lengths[row]) for row in rows]
        assert len(rows) == 1 or ids.numel() <= most
        assert sizes.min() > ids.shape[1] // 2 or ids.shape[1] <= max(1, max(lengths) // 8)
    if most > 40 * 70:
        assert len(made) <= 4


def test_a_table_has_the_gradient_of_torch_with_each_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ids = np.random.default_rng(1).normal(size=(9, 3)), torch.tensor([[2, 5, 2, 0], [8, 5, 0, 0]])
    direction = torch.randn(2, 4, 3, dtype=torch.float64)
    gradients = []
    for is_gpu in (False, True):
        monkeypatch.setattr(on_device, "is_gpu", lambda _, is_gpu=is_gpu: is_gpu)
        table = WordTable(rows, is_updated=True)
        (table(ids) * direction).sum().backward()
        assert table.weight.grad is not None
        gradients.append(table.weight.grad)
    assert gradients[1]._indices().tolist() == [[0, 2, 5, 8]]
    assert torch.allclose(gradients[1].to_dense(), gradients[0].to_dense())


@pytest.mark.parametrize("kind", ["word_bag", "cnn"])
def test_embeddings_are_those_of_the_host(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    network = build(EncoderSettings(kind=kind), generator.normal(size=(40, 12)).astype(np.float32), seed=1)
    texts = TokenIds.of(generator.integers(0, 40, size).astype(np.int32) for size in (5, 0, 1, 90, 3, 30, 30))
    expected = encode(network, texts)
    monkeypatch.setattr(on_device, "is_gpu", lambda _: True)
    actual = encode(network, texts)
    assert np.allclose(actual.vectors, expected.vectors, atol=2e-3)  # two steps of float16 below 1
    assert (actual.words is None) == (expected.words is None)
    assert encode(network, TokenIds.of([])).vectors.shape == expected.vectors[:0].shape


@given(st.integers(0, 5000))
def test_padding_adds_at_most_eight_words_or_a_third(length: int) -> None:
    padded = padded_length(length)
    assert 0 <= padded - length <= max(8, length / 3)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 8))
def test_batches_hold_every_text_once_and_unharmed(lengths: list[int], rows: int) -> None:
    sequences = [np.arange(1, length + 1, dtype=np.int32) for length in lengths]
    seen, padded = [], []
    for batch in batches(TokenIds.of(sequences), rows):
        assert batch.ids.shape[0] == len(batch.lengths) == (rows or len(batch.texts))
        padded.append(batch.ids.shape[1])
        for row, text in enumerate(batch.texts.tolist()):
            seen.append(text)
            assert batch.ids[row, : batch.lengths[row]].tolist() == sequences[text].tolist()
    assert sorted(seen) == list(range(len(lengths)))
    assert rows or len(set(padded)) == len(padded)
