"""The search as a GPU does it, with the CPU as the device: bounds from above, exact scores, and the whole of it."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_neighbours import archives, assert_all_are_found, random_bags
from scipy import sparse

from dupq.devices import CPU
from dupq.neighbours import tiles
from dupq.neighbours.bounds import finder, gpu_can_score
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import Rule, Side, exact_scores, rule_of, side_of
from dupq.neighbours.gpu import scores as scores_module
from dupq.neighbours.gpu.finder import OnGpu
from dupq.neighbours.gpu.found import best_by_torch
from dupq.neighbours.gpu.rows import columns_of_words, product_rows
from dupq.neighbours.gpu.scores import ExactScores
from dupq.neighbours.gpu.sides import on_device
from dupq.neighbours.matrices import FLOAT32_ERROR, margin
from dupq.neighbours.measure import Measure
from dupq.neighbours.tiles import Search

HOST = torch.device("cpu")
HYBRID = Measure("cosine", 0.7, 1.3)
MEASURES = [
    Measure(),
    Measure("cosine", -1.0),
    HYBRID,
    Measure("cosine", -0.4, 0.8),
    Measure("cosine", 0.0, 1.0),
    Measure("manhattan"),
    Measure("euclidean"),
]
LEFT_TO_CPUS = [Measure("cosine", 0.5, -0.25), Measure("manhattan", 0.6), Measure("euclidean", 1.0, 0.5)]


def test_what_gpus_score_and_what_is_left_to_cpus() -> None:
    assert all(gpu_can_score(rule_of(measure)) for measure in MEASURES)
    assert not any(gpu_can_score(rule_of(measure)) for measure in LEFT_TO_CPUS)


def two_sides(archive: Embeddings, cut: int, rule: Rule) -> tuple[Side, Side]:
    return side_of(archive.take(slice(0, cut)), rule), side_of(archive.take(slice(cut, None)), rule)


def all_pairs_of(left: Side, right: Side) -> tuple[np.ndarray, np.ndarray]:
    shape = len(left.squares), len(right.squares)
    rows, columns = (places.ravel().astype(np.int32) for places in np.indices(shape))
    return rows, columns


@settings(max_examples=80)
@given(
    archive=archives(is_lexical=True),
    cut=st.integers(0, 60),
    columns=st.integers(1, 20),
    dense=st.sampled_from([0.0, 1.0, -0.7]),
    lexical=st.sampled_from([0.2, 1.0, 3.0]),
)
def test_a_product_is_never_below_the_score(
    archive: Embeddings, cut: int, columns: int, dense: float, lexical: float
) -> None:
    rule = rule_of(Measure("cosine", dense, lexical))
    left, right = two_sides(archive, cut, rule)
    if not (len(left.squares) and len(right.squares)):
        return
    one, other = product_rows((left, right), (on_device(left, HOST), on_device(right, HOST)), rule, columns)
    assert one.rows.shape[1] == left.vectors.shape[1] + (columns if len(left.words) and len(right.words) else 0)
    products = (one.rows.double() @ other.rows.double().T).numpy().ravel()  # a product in float32 is within its sums
    scores = exact_scores(*all_pairs_of(left, right), left, right, rule)
    slack = margin(one, other, FLOAT32_ERROR, FLOAT32_ERROR)
    assert (products >= scores - slack).all()
    assert (products <= abs(dense) + lexical + slack).all()
    if columns >= 12:  # as many as there are words: nothing shares a column
        assert products == pytest.approx(scores, abs=slack)


def test_words_are_dealt_to_columns_by_weight_and_those_of_one_side_are_left_out() -> None:
    bags = np.array([[9, 5, 4, 3, 2, 1, 0, 0], [9, 5, 4, 3, 2, 1, 7, 0], [8, 5, 4, 3, 2, 1, 0, 7]], np.float32)
    archive = Embeddings(np.arange(3), np.ones((3, 2), np.float16), sparse.csr_array(bags))
    sides = [on_device(side, HOST) for side in two_sides(archive, 2, rule_of(HYBRID))]
    assert columns_of_words(sides[0], sides[1], 2).tolist() == [0, 1, 1, 0, 0, 1, 2, 2]


def test_384_columns_fill_the_last_step_of_a_product() -> None:
    generator = np.random.default_rng(1)
    for dimensions, width in [(192, 576), (300, 704), (8, 448)]:
        vectors = generator.normal(size=(5, dimensions)).astype(np.float16)
        side = side_of(Embeddings(np.arange(5), vectors, random_bags(generator, 5)), rule_of(HYBRID))
        there = on_device(side, HOST)
        assert product_rows((side, side), (there, there), rule_of(HYBRID))[0].rows.shape == (5, width)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([*MEASURES, *LEFT_TO_CPUS]), st.integers(0, 60), st.sampled_from([1, 50, 1 << 23]))
def test_scores_on_a_device_are_those_of_the_host(
    data: st.DataObject, measure: Measure, cut: int, numbers_at_once: int
) -> None:
    rule = rule_of(measure)
    left, right = two_sides(data.draw(archives(is_lexical=bool(measure.lexical))), cut, rule)
    pairs = all_pairs_of(left, right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "_NUMBERS_AT_ONCE", numbers_at_once)
        on_host = ExactScores(on_device(left, HOST), on_device(right, HOST), rule)
        found = on_host.of(*(torch.from_numpy(side).long() for side in pairs)).numpy()
    expected = exact_scores(*pairs, left, right, rule)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def units(count: int, seed: int) -> Embeddings:
    """Vectors and bags of unit length, rounded: what encoders make."""
    generator = np.random.default_rng(seed)
    vectors, bags = generator.normal(size=(count, 48)), generator.random((count, 90)) ** 8
    bags[bags < 0.1] = 0
    rounded = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (vectors, bags)]
    words = sparse.csr_array(rounded[1].astype(np.float16).astype(np.float32))
    return Embeddings(np.arange(count), rounded[0].astype(np.float16), words)


@pytest.mark.parametrize("measure", MEASURES)
def test_scores_of_unit_embeddings_are_the_same_but_for_roots(measure: Measure) -> None:
    """Sums are exact, and some roots that torch takes are rounded otherwise."""
    rule = rule_of(measure)
    left, right = two_sides(units(150, 2), 70, rule)
    pairs = all_pairs_of(left, right)
    found = ExactScores(on_device(left, HOST), on_device(right, HOST), rule).of(*map(torch.from_numpy, pairs)).numpy()
    np.testing.assert_allclose(
        found, exact_scores(*pairs, left, right, rule), rtol=0, atol=0 if measure.kind == "manhattan" else 2e-15
    )


@pytest.fixture(scope="module")
def as_on_a_gpu() -> Iterator[None]:
    """Tiles that are searched on `cuda:0` are searched on the CPU as on a GPU, in pieces of 16 questions."""

    def on_cpu(left: Side, right: Side, rule: Rule, device: str) -> OnGpu:
        assert device == "cuda:0"
        found = finder(left, right, rule, "cpu:0")
        assert isinstance(found, OnGpu)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "finder", on_cpu)
        patch.setattr(OnGpu, "rows", 16)
        patch.setattr(OnGpu, "columns", 16)
        yield


@pytest.mark.usefixtures("as_on_a_gpu")
@settings(max_examples=60)
@given(st.data(), st.sampled_from(MEASURES), st.integers(0, 12), st.integers(1, 70), st.floats(-0.5, 1.5))
def test_the_way_of_gpus_finds_what_a_full_sort_finds(
    data: st.DataObject, measure: Measure, k: int, rows: int, threshold: float
) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    assert_all_are_found(archive, rows, Search(measure, k, threshold, device="cuda:0"))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("measure", [HYBRID, Measure("manhattan")])
def test_the_way_of_gpus_finds_it_in_an_archive_of_a_real_kind(measure: Measure) -> None:
    """Near copies, exact copies, empty bags and empty vectors among the others."""
    made, generator = units(240, 5), np.random.default_rng(5)
    vectors, bags = made.vectors.astype(np.float32), made.words.toarray()  # type: ignore[union-attr]
    vectors[60:120] = vectors[:60] + 1e-3 * generator.normal(size=(60, 48))
    vectors[120:140], bags[120:140] = vectors[:20], bags[:20]
    vectors[200:220] = 0
    bags[210:230] = 0
    archive = Embeddings(made.keys, vectors.astype(np.float16), sparse.csr_array(bags) if measure.lexical else None)
    assert_all_are_found(archive, 100, Search(measure, 10, 0.8, device="cuda:0"))


def test_a_lower_bound_is_an_exact_score_that_enough_pairs_reach() -> None:
    rule = rule_of(HYBRID)
    side = side_of(units(300, 3), rule)
    on_gpu = OnGpu(side, side, rule, HOST)
    scores = exact_scores(*all_pairs_of(side, side), side, side, rule).reshape(300, 300)
    scores[~np.triu(np.ones((300, 300), bool), 1)] = -np.inf
    for found, mine in zip(on_gpu.bounds(slice(0, 300), slice(0, 300), 5, 0), (scores, scores.T), strict=True):
        fifth = -np.sort(-mine, axis=1)[:, 4]
        assert (found <= fifth + on_gpu.margin).all()
        assert np.median((mine >= found[:, None]).sum(axis=1)) <= 7


@pytest.mark.parametrize("measure", [HYBRID, Measure("euclidean")])
def test_some_rows_and_columns_are_searched_like_a_range(measure: Measure) -> None:
    rule, generator = rule_of(measure), np.random.default_rng(6)
    left, right = two_sides(units(150, 2), 70, rule)
    scores = exact_scores(*all_pairs_of(left, right), left, right, rule).reshape(70, 80)
    on_gpu = OnGpu(left, right, rule, HOST)
    rows, columns = np.flatnonzero(generator.random(70) < 0.5), np.flatnonzero(generator.random(80) < 0.3)
    for some, others in [(rows, columns), (rows, columns[:0]), (rows[:0], columns)]:
        bounds = tuple(np.quantile(scores, 0.8) + generator.normal(0, 0.1, len(part)) for part in (some, others))
        of_rows, of_columns = (bound.astype(np.float32) for bound in bounds)
        (*found,) = on_gpu.places(some, others, (of_rows, of_columns), -1000)
        pairs = {(int(i), int(j)) for places in found for i, j in zip(places.rows, places.columns, strict=True)}
        wanted = scores[np.ix_(some, others)] >= np.minimum(of_rows[:, None], of_columns[None, :])
        assert pairs == set(map(tuple, np.argwhere(wanted).tolist()))


def test_few_pairs_reach_a_bound_by_their_product_alone() -> None:
    """The columns of words are worth having: without them all pairs whose vectors are alike would be scored."""
    rule = rule_of(HYBRID)
    side = side_of(units(300, 4), rule)
    there = on_device(side, HOST)
    one, other = product_rows((side, side), (there, there), rule)
    scores = torch.from_numpy(exact_scores(*all_pairs_of(side, side), side, side, rule)).view(300, 300)
    tenth = scores.topk(10, dim=1).values[:, -1:]
    assert ((one.rows.double() @ other.rows.double().T) >= tenth).sum() <= 1.05 * 10 * 300
    assert best_by_torch(one.rows, other.rows, 1)[0].others[:, 0].tolist() == list(range(300))


def test_a_cpu_is_searched_as_ever() -> None:
    side = side_of(units(5, 3), rule_of(HYBRID))
    assert not isinstance(finder(side, side, rule_of(HYBRID), CPU), OnGpu)
