"""Each network against its slow twin; what must hold for every one of them."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from encoder_settings import where_read
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import encoder_twins as twins

from dupq.encoders.bags import Encoded, batch_slices
from dupq.encoders.encoding import _in_batches, build, encode, network_settings
from dupq.encoders.protocol import Embedding, Encoder, batches
from dupq.encoders.saved import Fitness, SavedEncoder, load, save, weights
from dupq.encoders.word_bag import WordBag
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds
from dupq.training.optimisation import TEMPERATURE, distillation

Twin = Callable[[twins.Weights, list[int]], np.ndarray]
WORDS, DIMENSIONS = 20, 6
# For float64 no bound needs to be near: 1e-9 is millions of roundings, and an equation that is wrong is off by 1e-3.
DOUBLE = 1e-9

NETWORKS: dict[str, tuple[EncoderSettings, Twin]] = {
    "word bag": (EncoderSettings(kind="word_bag", dropout=0.2), twins.word_bag_vector),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def small_network(name: str) -> Encoder:
    """In float64, every parameter drawn anew, so that none is zero; torch's second bias of an LSTM stays so."""
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(WORDS, DIMENSIONS)).astype(np.float32)
    network = build(NETWORKS[name][0], vectors, seed=1).double()
    for parameter in network.parameters():
        if parameter.requires_grad and parameter is not network.words.weight:
            parameter.data = torch.from_numpy(np.asarray(generator.normal(size=parameter.shape) * 0.7))
    if isinstance(network, WordBag):
        network.lexical.fill_(0.3)
    return network.eval()


def batch_of(texts: list[list[int]], padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, texts)) + padding
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    return ids, torch.tensor([len(text) for text in texts])


def forward(network: Encoder, texts: list[list[int]], padding: int = 0) -> Embedding:
    return network(*batch_of(texts, padding))


TEXTS = st.lists(st.lists(st.integers(1, WORDS - 1), min_size=1, max_size=20), min_size=1, max_size=5)


@every_network
@settings(max_examples=15, deadline=None)
@given(texts=TEXTS)
def test_a_network_is_its_equations(name: str, texts: list[list[int]]) -> None:
    network = small_network(name)
    parameters = twins.weights_of(network)
    expected = [NETWORKS[name][1](parameters, text) for text in texts]
    for batch in batches(TokenIds.of(np.array(text, np.int32) for text in texts), rows=4):
        actual = network(batch.ids, batch.lengths).dense.detach().numpy()
        for row, text in enumerate(batch.texts):
            assert actual[row] == pytest.approx(expected[text], abs=DOUBLE)
    assert forward(network.float(), texts).dense[0].tolist() == pytest.approx(expected[0], rel=1e-3, abs=1e-3)


@every_network
@settings(max_examples=15, deadline=None)
@given(texts=TEXTS)
def test_a_score_is_its_equation(name: str, texts: list[list[int]]) -> None:
    network, twin = small_network(name), NETWORKS[name][1]
    parameters = twins.weights_of(network)
    others = texts[1:] + texts[:1]
    actual = network.score(forward(network, texts), forward(network, others)).tolist()
    for score, left, right in zip(actual, texts, others, strict=True):
        expected = twins.similarity(network.kind, twin(parameters, left), twin(parameters, right))
        if "betas" in parameters:  # of the papers
            beta_1, beta_2 = parameters["betas"]
            expected *= beta_2
            expected += beta_1 * twins.cosine(twins.bag(parameters, left), twins.bag(parameters, right))
        assert score == pytest.approx(expected, abs=DOUBLE)


@every_network
@settings(max_examples=15, deadline=None)
@given(texts=TEXTS)
def test_a_bag_is_its_equation_and_scores_by_the_weight_learned(name: str, texts: list[list[int]]) -> None:
    network = small_network(name)
    parameters = twins.weights_of(network)
    for text, *bag in zip(texts, *(side.tolist() for side in forward(network, texts).bag), strict=True):
        expected = {word: weight for word, weight in twins.word_bag(parameters, text).items() if weight}
        actual = {word: weight for word, weight in zip(*bag, strict=True) if weight}
        assert actual == pytest.approx(expected, abs=DOUBLE)
    assert network.measure == Measure(lexical=float(parameters["lexical"]))


def test_a_relation_is_the_divergence_of_the_teachers_neighbours() -> None:
    generator = np.random.default_rng(1)
    scores, targets, own = generator.normal(size=(3, 6)), generator.normal(size=(3, 6)), np.array([1, 4, 5])
    expected = 0.0
    for row in range(3):
        sides = [np.delete(np.exp(side[row] / TEMPERATURE), own[row]) for side in (targets, scores)]
        teachers, students = (side / side.sum() for side in sides)
        expected += (teachers * np.log(teachers / students)).sum()
    actual = distillation(*(torch.from_numpy(part) for part in (scores, targets, own)))
    assert float(actual) == pytest.approx(expected)


@every_network
def test_gradients_of_the_network_and_the_score_are_right(name: str) -> None:
    network = small_network(name)
    for part in network.children():
        if isinstance(part, torch.nn.Embedding):
            part.sparse = False
    names = [key for key, parameter in network.named_parameters() if parameter.requires_grad]
    generator = np.random.default_rng(2)
    texts = [generator.integers(1, WORDS, length).tolist() for length in (8, 5, 3, 1)]
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def whole(*values: torch.Tensor) -> torch.Tensor:
        actual = torch.func.functional_call(network, dict(zip(names, values, strict=True)), batch_of(texts))
        betas = {"betas": values[names.index("betas")]} if "betas" in names else {}
        with mock.patch.dict(network._parameters, betas):
            scores = network.score(actual.rows(0, 2), actual.rows(2, 4))
        return (labels - scores).square().sum()

    parameters = dict(network.named_parameters())
    inputs = [parameters[key].detach().clone().requires_grad_() for key in names]
    assert torch.autograd.gradcheck(whole, inputs, fast_mode=True)


@every_network
def test_training_mode_gives_gradients_to_all_that_is_learned_and_to_the_words_of_the_batch_only(name: str) -> None:
    network = small_network(name).train()
    actual = forward(network, [[2, 3, 4], [3, 5]])
    network.score(actual.rows(0, 1), actual.rows(1, 2)).sum().backward()
    for key, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, key
    gradient = network.words.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert set(gradient.coalesce().indices()[0].tolist()) <= {0, 2, 3, 4, 5}


@every_network
def test_padding_does_not_matter(name: str) -> None:
    network, texts = small_network(name), [[2, 3, 4], [5], [], [7, 7, 2, 1, 1]]
    close, wide = forward(network, texts), forward(network, texts, padding=13)
    assert close.dense.detach().numpy() == pytest.approx(wide.dense.detach().numpy(), abs=DOUBLE)
    assert network.score(close, close).tolist() == pytest.approx(network.score(close, wide).tolist())


@every_network
def test_an_empty_text_has_a_zero_embedding(name: str) -> None:
    network = small_network(name).float()
    actual = Embeddings(np.arange(2), *encode(network, [np.zeros(0, np.int32), np.array([3], np.int32)], rows=4))
    assert actual.is_empty.tolist() == [True, False]
    if network.kind == "cosine":
        assert np.linalg.norm(actual.vectors[1].astype(float)) == pytest.approx(1, abs=1e-3)


def same_bits(left: Encoded, right: Encoded) -> bool:
    bags = [
        None if bag is None else (bag.data.tobytes(), bag.indices.tolist(), bag.indptr.tolist())
        for bag in (left.words, right.words)
    ]
    return bags[0] == bags[1] and left.vectors.tobytes() == right.vectors.tobytes()


def in_batches(network: Encoder, texts: list[np.ndarray], rows: int) -> Encoded:
    """As a GPU encodes."""
    with torch.inference_mode():
        return Encoded(_in_batches(network.eval(), TokenIds.of(texts), rows, torch.device("cpu")), None)


def network_and_texts(name: str, count: int) -> tuple[Encoder, list[np.ndarray]]:
    generator = np.random.default_rng(1)
    texts = [generator.integers(1, 1_500, generator.integers(0, 150)).astype(np.int32) for _ in range(count)]
    vectors = generator.normal(size=(1_500, 50)).astype(np.float32)
    return build(where_read(Settings(encoder=NETWORKS[name][0]), units=50).encoder, vectors, seed=1), texts


@every_network
@pytest.mark.parametrize("encode_by", [encode, in_batches])
def test_an_embedding_has_the_same_bits_whatever_its_company(name: str, encode_by: Callable[..., Encoded]) -> None:
    network, texts = network_and_texts(name, 600)
    whole = Embeddings(np.arange(600), *encode_by(network, texts, rows=64))
    for count in (1, 70, 290):
        some = np.random.default_rng(count).permutation(600)[:count]
        again = encode_by(network, [texts[i] for i in some], rows=64)
        expected = whole.take(some)
        assert same_bits(again, Encoded(expected.vectors, expected.words))


@every_network
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.lists(st.integers(0, WORDS - 1), max_size=20), max_size=6))
def test_without_padding_a_network_is_the_same(name: str, texts: list[list[int]]) -> None:
    network = small_network(name)
    with torch.inference_mode():
        flat = network.dense_unpadded(TokenIds.of(np.array(text, np.int32) for text in texts))
    assert (flat is None) == ("both directions" in name or "stacked" in name)  # of the papers
    if texts and flat is not None:
        assert flat.numpy() == pytest.approx(forward(network, texts, padding=1).dense.detach().numpy(), abs=DOUBLE)


def test_pieces_are_all_texts_in_their_order_and_no_larger_than_they_must() -> None:
    offsets = np.array([0, 3, 3, 7, 30, 31, 31, 36])
    assert list(batch_slices(offsets, 7)) == [slice(0, 3), slice(3, 4), slice(4, 7)]
    sizes = [stop - start for start, stop, _ in (some.indices(7) for some in batch_slices(offsets, 1))]
    assert sum(sizes) == 7
    assert list(batch_slices(offsets[:1], 7)) == []


def test_a_bag_is_the_sum_of_its_words_by_weight_and_its_mix_is_what_ranks_best() -> None:
    network = build(EncoderSettings(kind="word_bag"), np.ones((6, 3), np.float32), 1)
    texts = [np.array(text, np.int32) for text in ([2, 2, 3], [2, 1], [4, 3, 2], [2])]
    network.prepare(texts, [])
    starts, rarities = network.state_dict()["log_weights.weight"][2:, 0].exp(), network.state_dict()["rarities"][2:]
    assert starts.tolist() == pytest.approx([0.1, np.log(4 / 2), np.log(4 / 1), np.log(4 / 1)])
    assert rarities.tolist() == pytest.approx(starts.tolist())
    assert isinstance(network, WordBag)
    network.tune(None)  # nothing to rank
    usual = network.measure
    network.tune(lambda: -abs(network.lexical.item() - 0.45))
    assert network.measure == Measure("cosine", 1.0, pytest.approx(0.5))
    network.tune(None)
    assert network.measure == usual
    assert usual.lexical > 0


def test_a_network_that_gives_nan_is_an_error() -> None:
    network = small_network("word bag").float()
    network.words.weight.data[3] = torch.nan
    with pytest.raises(DupqError, match="not numbers"):
        encode(network, [np.array([3], np.int32)], rows=2)


@every_network
def test_a_saved_network_is_the_same_when_opened(name: str, tmp_path: Path) -> None:
    network = small_network(name).float()
    chosen = Settings().changed(encoder=network_settings(NETWORKS[name][0]).to_section())
    words = Vocabulary([f"w{i}" for i in range(WORDS - 2)])
    fitness = Fitness(questions=9, unknown_words=0.1, bodies_found=None)
    save(str(tmp_path / "one"), SavedEncoder(network, words, chosen, 0.5, fitness, {"x": 1}), run_id="r")
    opened = load(str(tmp_path / "one"))
    save(str(tmp_path / "again"), opened, run_id="r")
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    assert (opened.settings, opened.pair_threshold, opened.fitness, opened.metrics) == (chosen, 0.5, fitness, {"x": 1})
    assert opened.network.measure == network.measure
    assert weights(opened.network) == weights(network)
    texts = [np.array([2, 3, 3], np.int32), np.array([1, 9], np.int32)]
    assert same_bits(encode(opened.network, texts, 4), encode(network, texts, 4))
