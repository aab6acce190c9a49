import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq import config
from dupq.encoders.batches import batches, padded_length
from dupq.encoders.build import build
from dupq.encoders.cnn import CNN
from dupq.encoders.decision import Decision
from dupq.encoders.encode import encode
from dupq.encoders.protocol import cosine
from dupq.encoders.saved import SavedEncoder, load, save
from dupq.errors import DupqError
from dupq.text.vocabulary import Vocabulary
from dupq.training.losses import squared_error


def slow_cnn(network: CNN, ids: list[int]) -> np.ndarray:
    """Equation 2 of Bogdanova et al. 2015, word by word, in float64."""
    words = network.words.weight.detach().numpy().astype(np.float64)
    weight = network.convolution.weight.detach().numpy().astype(np.float64)
    bias = network.convolution.bias.detach().numpy().astype(np.float64)
    reach = (network.window - 1) // 2
    padded = [0] * reach + ids + [0] * reach
    local = []
    for n in range(len(ids)):
        z_n = np.concatenate([words[i] for i in padded[n : n + network.window]])
        local.append(np.tanh(weight @ z_n + bias))
    pooled = np.sum(local, axis=0) if network.pooling == "sum" else np.max(local, axis=0)
    return np.tanh(pooled)


def small_network(pooling: str, window: int = 3) -> CNN:
    torch.manual_seed(1)
    return CNN(torch.randn(20, 6), units=5, window=window, pooling=pooling)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 19), min_size=1, max_size=20), min_size=1, max_size=5),
    st.sampled_from(["sum", "max"]),
    st.sampled_from([1, 3, 5]),
)
def test_the_cnn_is_equation_2(texts: list[list[int]], pooling: str, window: int) -> None:
    network = small_network(pooling, window)
    for batch in batches([np.array(text, np.int32) for text in texts], rows=4):
        found = network(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths)).detach().numpy()
        for row, text in enumerate(batch.texts):
            assert found[row] == pytest.approx(slow_cnn(network, texts[text]), abs=1e-5)


@pytest.mark.parametrize("pooling", ["sum", "max"])
def test_gradients_of_the_network_and_the_loss_are_right(pooling: str) -> None:
    network = small_network(pooling).double()
    network.words = torch.nn.Embedding.from_pretrained(network.words.weight.double(), freeze=False)
    ids, lengths = torch.randint(1, 20, (4, 8)), torch.tensor([8, 5, 3, 1])
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def loss(words: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        parameters = {"words.weight": words, "convolution.weight": weight}
        vectors = torch.func.functional_call(network, parameters, (ids, lengths))
        return squared_error(cosine(vectors[:2], vectors[2:]), labels)

    inputs = [
        parameter.detach().clone().requires_grad_() for parameter in (network.words.weight, network.convolution.weight)
    ]
    assert torch.autograd.gradcheck(loss, inputs)


def test_the_loss_is_equation_3() -> None:
    found = squared_error(torch.tensor([0.9, 0.4]), torch.tensor([1.0, 0.0]))
    assert float(found) == pytest.approx(0.5 * (0.1**2 + 0.4**2))


def test_an_empty_text_has_a_zero_embedding() -> None:
    for pooling in ("sum", "max"):
        found = encode(small_network(pooling), [np.zeros(0, np.int32), np.array([3], np.int32)], rows=4)
        assert not found[0].any()
        assert np.linalg.norm(found[1].astype(float)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("pooling", ["sum", "max"])
def test_an_embedding_has_the_same_bits_whatever_its_company(pooling: str) -> None:
    generator = np.random.default_rng(1)
    sequences = [generator.integers(1, 500, generator.integers(0, 200)).astype(np.int32) for _ in range(300)]
    vectors = generator.normal(size=(500, 50)).astype(np.float32)
    network = build(config.EncoderSettings(units=64, pooling=pooling), vectors, seed=1)  # type: ignore[arg-type]
    together = encode(network, sequences, rows=64)
    some = generator.permutation(300)[:90]
    assert encode(network, [sequences[i] for i in some], rows=64).tobytes() == together[some].tobytes()


@given(st.integers(0, 5000))
def test_padding_wastes_at_most_a_third_of_a_long_text(length: int) -> None:
    padded = padded_length(length)
    assert length <= padded <= max(16, length * 4 / 3)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 8))
def test_batches_hold_every_text_once_and_unharmed(lengths: list[int], rows: int) -> None:
    sequences = [np.arange(1, length + 1, dtype=np.int32) for length in lengths]
    seen = []
    for batch in batches(sequences, rows):
        assert batch.ids.shape[0] == rows
        for row, text in enumerate(batch.texts.tolist()):
            seen.append(text)
            assert batch.ids[row, : batch.lengths[row]].tolist() == sequences[text].tolist()
    assert sorted(seen) == list(range(len(lengths)))


@pytest.fixture
def saved(tmp_path: Path) -> str:
    settings = config.load(assignments=["encoder.units=5", "word_vectors.dimensions=6"])
    network = build(settings.encoder, np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32), seed=1)
    encoder = SavedEncoder(network, Vocabulary(["a", "b"]), settings, Decision(0.5, 0.4, 3.0, -1.0), {"x": 1})
    save(str(tmp_path), encoder, run_id="r")
    return str(tmp_path)


def test_a_saved_encoder_is_the_same_when_opened(saved: str, tmp_path: Path) -> None:
    first = load(saved)
    save(str(tmp_path / "again"), first, run_id="r")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / "encoder.json").read_bytes() == (tmp_path / "encoder.json").read_bytes()
    assert first.decision.probability(np.array([1.0])) == pytest.approx(1 / (1 + np.exp(-2.0)))


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.txt"])
def test_a_damaged_encoder_is_refused(saved: str, name: str) -> None:
    path = Path(saved) / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DupqError, match="damaged"):
        load(saved)


def test_a_folder_without_an_encoder_and_one_of_another_format_are_refused(saved: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="no encoder here"):
        load(str(tmp_path / "nowhere"))
    description = json.loads((tmp_path / "encoder.json").read_text())
    (tmp_path / "encoder.json").write_text(json.dumps({**description, "format": 99}))
    with pytest.raises(DupqError, match="format"):
        load(saved)
