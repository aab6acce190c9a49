"""The search by distances, beside a full sort."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_neighbours import archives, as_rows, assert_all_are_found, slow_top_k

from dupq.encoders.encoding import build
from dupq.encoders.protocol import Embedding
from dupq.evaluation.rankers import EncoderRanker
from dupq.neighbours.embeddings import Embeddings, Measure, blocks
from dupq.neighbours.tiles import Search, top_k
from dupq.settings.sections import EncoderSettings
from dupq_papers import distances

KINDS = st.sampled_from(["manhattan", "euclidean"])


@settings(max_examples=40, deadline=None)
@given(archives(), KINDS, st.integers(0, 12), st.integers(1, 70), st.floats(-0.5, 1.5), st.integers(1, 9))
def test_lists_and_pairs_are_those_of_a_full_sort(
    archive: Embeddings, kind: str, k: int, rows: int, threshold: float, at_once: int
) -> None:
    measure = Measure(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "_ROWS", at_once)
        assert_all_are_found(archive, rows, Search(measure, k, threshold))
        if k:
            assert sorted(as_rows(top_k(archive, blocks(archive, rows), k, measure))) == slow_top_k(archive, k, measure)


def test_the_encoder_ranks_and_scores_by_its_measure() -> None:
    keys, vectors = np.arange(10, 70, 10), np.array([[1, 0], [1, 1], [5, 0], [1, 0.5], [0, 0], [9, 9]], np.float16)
    ranker = EncoderRanker([Embeddings(keys, vectors)], Measure("manhattan"))
    assert ranker.rank(np.array([10, 50]), 3) == [[40, 20, 30], []]
    scores = ranker.score(np.array([10, 10, 50, 50]), np.array([20, 30, 10, 50]))
    assert scores == pytest.approx([np.exp(-1), np.exp(-4), 0, 0])
    other = EncoderRanker([Embeddings(keys, vectors)], Measure("euclidean"))
    assert other.score(np.array([20, 60]), np.array([30, 30])) == pytest.approx(
        [np.exp(-(17**0.5)), np.exp(-(97**0.5))]
    )


@pytest.mark.parametrize("kind", ["cosine", "manhattan", "euclidean"])
def test_equal_and_zero_embeddings_have_finite_gradients(kind: str) -> None:
    left = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    network = build(EncoderSettings(kind="lstm", units=2, similarity=kind), np.ones((4, 3), np.float32), 1)
    scores = network.score(Embedding(left), Embedding(left.detach().clone()))
    scores.sum().backward()
    assert left.grad is not None
    assert left.grad.isfinite().all()
    assert scores[0].item() == pytest.approx(1)
