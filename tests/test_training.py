import random

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupq import config
from dupq.encoders.build import build
from dupq.errors import DupqError
from dupq.training.calibration import best_cluster_threshold, fit_probability
from dupq.training.loop import optimizer_for, train_epoch
from dupq.training.pairs import Pairs, with_random_negatives
from dupq.training.split import split_links
from dupq.training.word_vectors import train_word_vectors

SETTINGS = config.TrainingSettings()
LINKS = st.lists(st.tuples(st.integers(0, 40), st.integers(41, 80)), min_size=30, max_size=60, unique=True)


@given(LINKS, st.randoms())
def test_no_link_crosses_two_parts_and_order_does_not_matter(
    links: list[tuple[int, int]], order: random.Random
) -> None:
    shuffled = list(links)
    order.shuffle(shuffled)
    try:
        split = split_links(np.array(links), SETTINGS)
    except DupqError:
        return
    again = split_links(np.array(shuffled), SETTINGS)
    assert (split.parts == again.parts).all()
    part_of = dict(zip(split.questions.tolist(), split.parts.tolist(), strict=True))
    assert all(part_of[left] == part_of[right] for left, right in links)
    assert sum(len(split.links_of(part, np.array(links))) for part in ("train", "development", "test")) == len(links)


def test_parts_have_their_shares_of_the_sets() -> None:
    links = np.array([(2 * i, 2 * i + 1) for i in range(100)])
    split = split_links(links, config.TrainingSettings(development_share=0.2, test_share=0.3))
    sizes = [len(split.questions_of(part)) // 2 for part in ("train", "development", "test")]
    assert sizes == [50, 20, 30]


def test_too_few_links_to_train_on_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DupqError, match=r"2 sets of known duplicates.*at least 3"):
        split_links(np.array([(1, 2), (3, 4)]), SETTINGS)
    with pytest.raises(DupqError, match="0 sets"):
        split_links(np.zeros((0, 2), np.int64), SETTINGS)


@pytest.mark.parametrize("negatives", [1, 3])
def test_negatives_are_never_duplicates_and_as_many_as_asked(negatives: int) -> None:
    links = np.array([(2 * i, 2 * i + 1) for i in range(10)] + [(0, 2)])
    split = split_links(links, SETTINGS)
    pairs = with_random_negatives(links, np.arange(24), split, negatives, np.random.default_rng(1))
    assert pairs.labels.sum() == len(links)
    assert len(pairs.labels) == (1 + negatives) * len(links)
    wrong = pairs.labels == 0
    sets_left, sets_right = split.set_of(pairs.left[wrong]), split.set_of(pairs.right[wrong])
    assert not ((sets_left == sets_right) & (sets_left >= 0)).any()
    assert (pairs.left != pairs.right).all()


def test_several_workers_take_the_steps_of_one() -> None:
    """Two processes' gradients, averaged as DDP does, against one process with the whole batch."""
    vectors = np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32)
    sequences = {key: np.random.default_rng(key).integers(1, 30, 9).astype(np.int32) for key in range(20)}
    generator = np.random.default_rng(2)
    pairs = Pairs(generator.integers(0, 20, 7), generator.integers(0, 20, 7), (np.arange(7) % 2).astype(np.float32))

    def gradients(rank: int, workers: int) -> list[torch.Tensor]:
        network = build(config.EncoderSettings(units=6), vectors, seed=1)
        before = [parameter.detach().clone() for parameter in network.parameters()]
        train_epoch(network, optimizer_for(network, 1.0), sequences, pairs, 7, (rank, workers))
        return [old - new.detach() for old, new in zip(before, network.parameters(), strict=True)]

    whole = gradients(0, 1)
    shares = [gradients(rank, 3) for rank in range(3)]
    for index, gradient in enumerate(whole):
        mean = sum(share[index] for share in shares) / 3
        assert torch.allclose(mean, gradient, atol=1e-5)


def test_training_brings_duplicates_together() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    sequences = {key: np.random.default_rng(key).integers(1, 50, 6).astype(np.int32) for key in range(40)}
    links = np.array([(2 * i, 2 * i + 1) for i in range(20)])
    split = split_links(links, SETTINGS)
    network = build(config.EncoderSettings(units=16), vectors, seed=1)
    optimizer, generator = optimizer_for(network, 0.1), np.random.default_rng(3)
    losses = [
        train_epoch(network, optimizer, sequences, with_random_negatives(links, np.arange(40), split, 1, generator), 4)
        for _ in range(30)
    ]
    assert losses[-1] < losses[0] / 3


def test_word_vectors_are_the_same_each_time_and_order_words_by_frequency() -> None:
    sentences = [["flat", "bread"], ["bread", "rises"], ["bread", "flat", "flat"]] * 20
    settings = config.WordVectorSettings(dimensions=8, minimum_count=20)
    vocabulary, table = train_word_vectors(sentences, settings, seed=1)
    again, same = train_word_vectors(sentences, settings, seed=1)
    assert vocabulary.words == again.words == ["bread", "flat", "rises"]
    assert table.tobytes() == same.tobytes()
    assert table.shape == (5, 8)
    assert not table[0].any()
    assert table[1] == pytest.approx(table[2:].mean(axis=0))


def test_texts_without_frequent_words_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DupqError, match="minimum_count"):
        train_word_vectors([["once"]], config.WordVectorSettings(minimum_count=5), seed=1)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(9, 15), st.integers(0, 9)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 8), st.integers(9, 15)), min_size=1, max_size=6, unique=True),
)
def test_the_threshold_makes_the_best_clusters_of_all(
    rows: list[tuple[int, int, int]], known: list[tuple[int, int]]
) -> None:
    """Against every threshold, with networkx's components and sets."""
    queries = sorted({query for query, _ in known})

    def measure(threshold: float) -> float:
        graph = nx.Graph([(a, b) for a, b, score in rows if score / 10 >= threshold])
        graph.add_nodes_from(range(16))
        cluster = {query: nx.node_connected_component(graph, query) - {query} for query in queries}
        hits = sum(duplicate in cluster[query] for query, duplicate in known)
        called = sum(len(others) for others in cluster.values())
        precision, recall = hits / called if called else 0, hits / len(known)
        return 1.25 * precision * recall / (0.25 * precision + recall) if hits else 0.0

    edges = np.array([(a, b) for a, b, _ in rows])
    similarities = np.array([score / 10 for _, _, score in rows])
    threshold, found = best_cluster_threshold(edges, similarities, np.array(queries), np.array(known), 0.5)
    tried = sorted(similarities, reverse=True)[min(10, len(rows)) - 1 :]
    assert found["f"] == pytest.approx(max(measure(value) for value in tried))
    assert found["f"] == pytest.approx(measure(threshold))


def test_probabilities_follow_the_frequencies() -> None:
    generator = np.random.default_rng(1)
    similarities = generator.random(20_000)
    known = generator.random(20_000) < 1 / (1 + np.exp(-(8 * similarities - 6)))
    assert fit_probability(similarities, known) == pytest.approx((8, -6), abs=0.4)


def test_probabilities_are_finite_for_separable_scores() -> None:
    slope, intercept = fit_probability(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    assert np.isfinite([slope, intercept]).all()
    assert slope > 0
