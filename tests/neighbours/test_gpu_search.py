"""The search as a GPU does it, in plain torch on the CPU: quick scores from above, exact ones, and the whole of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_neighbours import archives, as_rows, exact_order, slow_top_k
from scipy import sparse

from dupq.errors import ClusterError
from dupq.neighbours.candidates import as_neighbours, merge
from dupq.neighbours.embeddings import Embeddings, Measure, blocks
from dupq.neighbours.exact import gpu_can_search, side_of
from dupq.neighbours.gpu import device_questions as lists_module
from dupq.neighbours.gpu import plain, search
from dupq.neighbours.gpu.device_questions import columns_of_words, empty_lists, quick_of, slack_of, upload
from dupq.neighbours.gpu.search import nearest_of_all
from dupq.neighbours.tiles import top_k

HOST = torch.device("cpu")
HYBRID = Measure("cosine", 0.7, 1.3)
MEASURES = [Measure(), HYBRID, Measure("cosine", 0.0, 1.0)]
LEFT_TO_CPUS = [Measure("cosine", -1.0), Measure("cosine", 0.5, -0.25), Measure("manhattan"), Measure("euclidean")]


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Panels, samples and buffers so small that small archives have several rounds, and lose candidates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_SMALLEST_PANEL", 16)
        patch.setattr(search, "_LARGEST_PANEL", 256)
        patch.setattr(search, "_SAMPLE", 8)
        patch.setattr(search, "_SEARCHED_AGAIN", 1 << 14)
        patch.setattr(plain, "_GROUP", 16)
        patch.setattr(lists_module, "_SMALLEST", 16)
        yield


def test_what_gpus_search_and_what_is_left_to_cpus() -> None:
    assert all(map(gpu_can_search, MEASURES))
    assert not any(map(gpu_can_search, LEFT_TO_CPUS))


@settings(max_examples=80)
@given(st.data(), st.sampled_from(MEASURES))
def test_a_quick_score_is_never_below_the_exact_one(data: st.DataObject, measure: Measure) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    archive = archive.take(~archive.is_empty)
    _, questions = upload(archive, measure, HOST)
    if not len(archive.keys):
        return
    quick = quick_of(questions, measure, columns_of_words(questions))
    exact = torch.from_numpy(exact_order(archive, measure))
    assert (plain.product(quick.rows, quick.rows) >= (exact - slack_of(quick, quick)).float()).all()


def units(count: int, seed: int) -> Embeddings:
    """Vectors and bags of unit length, rounded: what encoders make."""
    generator = np.random.default_rng(seed)
    vectors, bags = generator.normal(size=(count, 48)), generator.random((count, 90)) ** 8
    bags[bags < 0.1] = 0
    rounded = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (vectors, bags)]
    words = sparse.csr_array(rounded[1].astype(np.float16).astype(np.float32))
    return Embeddings(np.arange(count), rounded[0].astype(np.float16), words)


@pytest.mark.parametrize("measure", MEASURES)
def test_scores_are_the_host_s_to_the_last_bit(measure: Measure) -> None:
    made = units(90, 2)
    _, questions = upload(made, measure, HOST)
    lists, rows = empty_lists(90, 1, HOST), torch.arange(90)
    lists = lists._replace(
        buffer=rows.int().expand(90, 90).contiguous(), counts=torch.full((90,), 90, dtype=torch.int32)
    )
    found = plain.score(measure, questions, questions, rows, lists, rows.int()).numpy()
    expected = exact_order(made, measure)
    np.fill_diagonal(expected, -np.inf)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(questions.squares, side_of(made, measure).squares)


def assert_all_are_found(archive: Embeddings, rows: int, measure: Measure, k: int, shares: int = 1) -> None:
    """The lists, of pieces of `rows` questions and merged from some shares, are those of a full sort in float64."""
    found = []
    searches = [nearest_of_all(blocks(archive, rows), measure, k, HOST, (share, shares)) for share in range(shares)]
    for (keys, nearest), *others in zip(*searches, strict=True):
        for same_keys, more in others:
            np.testing.assert_array_equal(same_keys, keys)
            merge(nearest, more)
        order = np.argsort(keys)
        found += as_rows(as_neighbours(keys[order], type(nearest)(*(column[order] for column in nearest))))
    assert sorted(found) == slow_top_k(archive, k, measure)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(MEASURES), st.integers(1, 12), st.integers(1, 70))
def test_lists_are_those_of_a_full_sort(data: st.DataObject, measure: Measure, k: int, rows: int) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    assert_all_are_found(archive, rows, measure, k)


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("measure", [HYBRID, Measure()])
def test_lists_are_right_in_a_realistic_archive(measure: Measure, shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near copies, exact copies, empty bags and empty vectors among the others, in an order that is not the keys'."""
    monkeypatch.setattr(search, "_TILE", 16)  # so that there are 16 panels
    made, generator = units(301, 5), np.random.default_rng(5)
    vectors, bags = made.vectors.astype(np.float32), made.words.toarray()  # type: ignore[union-attr]
    vectors[60:120] = vectors[:60] + 1e-3 * generator.normal(size=(60, 48))
    vectors[120:140], bags[120:140] = vectors[:20], bags[:20]
    vectors[200:220] = 0
    bags[210:230] = 0
    words = sparse.csr_array(bags) if measure.lexical else None
    archive = Embeddings(generator.permutation(301), vectors.astype(np.float16), words)
    assert_all_are_found(archive, 100, measure, 10, shares)


@settings(max_examples=40)
@given(st.data(), st.sampled_from(MEASURES), st.integers(1, 6), st.integers(1, 30), st.integers(0, 60))
def test_the_nearest_are_the_cpu_s(data: st.DataObject, measure: Measure, k: int, rows: int, queries: int) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    some, targets = archive.take(slice(0, queries)), list(blocks(archive.take(slice(queries // 2, None)), rows))
    found, expected = (top_k(some, targets, k, measure, device) for device in ("cpu:0", "cpu"))
    assert as_rows(found) == as_rows(expected)


def test_few_pairs_reach_a_bound_by_their_product_alone() -> None:
    """The columns of words are worth having: without them all pairs whose vectors are alike would be scored."""
    made, measure = units(300, 4), HYBRID
    _, questions = upload(made, measure, HOST)
    quick = quick_of(questions, measure, columns_of_words(questions))
    tenth = torch.from_numpy(exact_order(made, HYBRID)).topk(10, dim=1).values[:, -1:]
    assert (quick.rows.double() @ quick.rows.double().T >= tenth).sum() <= 1.05 * 10 * 300


@pytest.mark.parametrize("rooms", [2, 3])
def test_copies_that_fill_buffers_to_the_last_place_are_all_found(rooms: int) -> None:
    """Ties keep bounds from rising, and a question that is searched again meets itself, too."""
    k = 3
    count = 1 + rooms * empty_lists(1, k, HOST).room
    assert_all_are_found(Embeddings(np.arange(count)[::-1], np.ones((count, 16), np.float16)), count, Measure(), k)


def wrong_sample(searching: search._Search) -> torch.Tensor:
    """A sample whose bounds are too high."""
    known = BEGIN(searching)
    searching.lists.bounds.add_(0.1)
    return known + 0.1


BEGIN = search._Search._begin


@pytest.mark.parametrize(
    ("module", "name", "fault"), [(plain, "find", lambda *_: None), (search._Search, "_begin", wrong_sample)]
)
def test_a_search_that_loses_neighbours_ends(
    module: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(ClusterError, match=r"^a GPU of the node .* found other neighbours than exact scores give"):
        next(nearest_of_all([units(100, 6)], HYBRID, 3, HOST))
