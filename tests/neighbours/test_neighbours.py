import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_neighbours import (
    all_pairs,
    archives,
    as_rows,
    assert_all_are_found,
    exact_order,
    random_bags,
    slow_top_k,
)
from scipy import sparse

from dupq import storage
from dupq.errors import DupqError
from dupq.neighbours.candidates import complete
from dupq.neighbours.embeddings import Embeddings, Measure, blocks, embeddings_of, gathered
from dupq.neighbours.exact import fingerprints, pair_scores
from dupq.neighbours.products import Bfloat16Products, Products, padded
from dupq.neighbours.tiles import Search, block, top_k
from dupq.stages.embeddings import embeddings_table
from dupq.text.keys import ID_BITS, Sites

COSINE = Measure()
MEASURES = [COSINE, Measure("cosine", 0.7, 1.3), Measure("cosine", 0.5, -0.25)]


def slow_scores(archive: Embeddings, measure: Measure) -> np.ndarray:
    """The scores of all pairs in float64, straight from Measure."""
    scores = measure.dense * slow_cosines(archive.vectors.astype(np.float64))
    if archive.words is not None:
        scores = scores + measure.lexical * slow_cosines(archive.words.toarray().astype(np.float64))
    return scores


def slow_cosines(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1)
    lengths[lengths == 0] = 1
    return (vectors @ vectors.T) / lengths[:, None] / lengths[None, :]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(MEASURES), st.integers(1, 12), st.integers(1, 70), st.integers(1, 70))
def test_neighbours_equal_a_full_sort_for_any_block_size_and_measure(
    data: st.DataObject, measure: Measure, k: int, query_rows: int, target_rows: int
) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    found = [top_k(piece, blocks(archive, target_rows), k, measure) for piece in blocks(archive, query_rows)]
    rows = sorted(row for neighbours in found for row in as_rows(neighbours))
    assert rows == slow_top_k(archive, k, measure)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_score_can_be_recomputed_from_the_embeddings(measure: Measure) -> None:
    generator = np.random.default_rng(4)
    vectors = generator.normal(size=(50, 30)).astype(np.float16)
    archive = Embeddings(np.arange(50), vectors, random_bags(generator, 50) if measure.lexical else None)
    found = top_k(archive, [archive], 3, measure)
    expected = slow_scores(archive, measure)
    assert found.similarities == pytest.approx(expected[found.queries, found.neighbours], rel=1e-5, abs=1e-7)
    pairs = pair_scores(measure, archive.take(found.queries), archive.take(found.neighbours))
    assert pairs == pytest.approx(expected[found.queries, found.neighbours], rel=1e-12, abs=1e-15)


@given(st.one_of(archives(), archives(True)), st.randoms())
@settings(deadline=None, max_examples=50)
def test_fingerprints_tell_embeddings_apart_in_any_order(archive: Embeddings, order: random.Random) -> None:
    marks = fingerprints(archive)
    bags = archive.words if archive.words is not None else sparse.csr_array((len(archive.keys), 0))
    rows = [(vector.tobytes(), bags[[row]].toarray().tobytes()) for row, vector in enumerate(archive.vectors)]
    of_row = dict(zip(rows, marks.tolist(), strict=True))
    empty = archive.is_empty
    assert ((marks == 0) == empty).all()
    filled = [row for row, is_empty in zip(rows, empty, strict=True) if not is_empty]
    assert len({of_row[row] for row in filled}) == len(set(filled))
    places = list(range(len(rows)))
    order.shuffle(places)
    assert (fingerprints(archive.take(np.array(places, np.int64))) == marks[places]).all()


def test_words_of_other_blocks_do_not_matter() -> None:
    """Bags of different widths, as blocks of different shards have them."""
    narrow = sparse.csr_array(np.array([[0, 1.0]], np.float32))
    wide = sparse.csr_array(np.array([[0, 0.5, 0, 0, 0.5], [0, 0, 0, 0, 1]], np.float32))
    left = Embeddings(np.array([7]), np.ones((1, 2), np.float16), narrow)
    right = Embeddings(np.array([3, 5]), np.ones((2, 2), np.float16), wide)
    found = top_k(left, [right, left], 2, Measure("cosine", 0.5, 0.5))
    assert found.neighbours.tolist() == [3, 5]
    assert found.similarities == pytest.approx([0.5 + 0.5 / 2**0.5, 0.5])
    together = gathered([left, right])
    assert together.keys.tolist() == [3, 5, 7]
    assert together.words is not None
    assert together.words.toarray().tolist() == [[0, 0.5, 0, 0, 0.5], [0, 0, 0, 0, 1], [0, 1, 0, 0, 0]]


@pytest.mark.parametrize("products", [Products, Bfloat16Products])
@pytest.mark.parametrize("measure", MEASURES)
def test_quick_scores_are_within_their_margin_with_torch_or_not(products: type[Products], measure: Measure) -> None:
    generator = np.random.default_rng(4)
    vectors = generator.normal(size=(300, 24)).astype(np.float16)
    archive = Embeddings(np.arange(300), vectors, random_bags(generator, 300))
    side = block(archive, measure).side
    quick = products(side, side, measure)
    exact = slow_scores(archive, measure)
    for rows, columns in ((slice(3, 203), slice(50, 300)), (np.array([0, 7, 9]), np.arange(5, 95))):
        width = padded(len(exact[0][columns]))
        quickly, rest = quick.scores(rows, columns, width), quick.rest(rows, columns)
        scores = np.empty(quickly.shape, np.float32)
        for row, buffer in enumerate(scores):
            complete(quickly, rest, row, buffer)
        wanted = exact[rows][:, columns]
        assert np.abs(scores[:, : wanted.shape[1]] - wanted).max() <= quick.margin
        assert np.isneginf(scores[:, wanted.shape[1] :]).all()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(MEASURES), st.integers(0, 12), st.integers(1, 70), st.floats(-0.5, 1.5))
def test_all_pairs_equal_a_full_sort_and_every_pair_over_the_threshold_is_found(
    data: st.DataObject, measure: Measure, k: int, rows: int, threshold: float
) -> None:
    archive = data.draw(archives(is_lexical=bool(measure.lexical)))
    assert_all_are_found(archive, rows, Search(measure, k, threshold))


@pytest.mark.parametrize(("kind", "count"), [("random", 0), ("random", 1), ("clustered", 3_500), ("copies", 3_500)])
def test_large_archives_equal_a_full_sort(kind: str, count: int) -> None:
    """Large enough for bounds, full candidate lists and pieces that only touch the diagonal."""
    generator = np.random.default_rng(6)
    vectors = generator.normal(size=(count, 24))
    if kind != "random" and count:
        centres = generator.normal(size=(count // 300 + 1, 24))
        spread = 0.05 if kind == "clustered" else 0.0
        vectors = centres[generator.integers(0, len(centres), count)] + spread * vectors
    archive = Embeddings(np.arange(count), vectors.astype(np.float16))
    measure = Measure()
    made = [block(piece, measure) for piece in blocks(archive, 2_300)]
    nearest, pairs = all_pairs(made, Search(measure, 10, 0.97))
    exact = np.array([]) if not count else exact_order(archive, measure)
    np.fill_diagonal(exact, -np.inf) if count else None
    for b, n in zip(made, nearest, strict=True):
        for key, others in zip(b.keys.tolist(), n.others.tolist(), strict=True):
            order = np.lexsort((archive.keys, -exact[key]))[:10]
            assert [other for other in others if other >= 0] == [place for place in order.tolist() if place != key]
    if count:
        over = np.argwhere(np.triu(exact.astype(np.float32) >= np.float32(0.97), 1))
        assert (np.stack(pairs[:2], axis=1) == over).all()


SITES = Sites(["a.example.com", "b.example.com"])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_an_embedding_that_is_not_finite_is_told_with_file_and_question(value: float, tmp_path: Path) -> None:
    vectors = np.ones((4, 3), np.float16)
    vectors[2, 1] = value
    uri = str(tmp_path / "part-00000.parquet")
    table = embeddings_table(Embeddings(np.array([3, 9, 5, 8]) | (1 << ID_BITS), vectors), SITES)
    storage.write_table(uri, table, table.schema)
    with pytest.raises(DupqError) as raised:
        embeddings_of(storage.read_table(uri), SITES, uri)
    assert str(raised.value) == f"{uri}: the embedding of question b.example.com/5 is not finite"


@pytest.mark.parametrize("shape", [(0, 3), (2, 3)])
def test_finite_ones_of_any_size_are_read_as_they_were_written(shape: tuple[int, int], tmp_path: Path) -> None:
    vectors = np.full(shape, np.finfo(np.float16).max)
    vectors[:, ::2] = np.finfo(np.float16).smallest_subnormal
    written = Embeddings(np.arange(shape[0]), vectors)
    table = embeddings_table(written, SITES)
    storage.write_table(str(tmp_path / "one.parquet"), table, table.schema)
    read = embeddings_of(storage.read_table(str(tmp_path / "one.parquet")), SITES, "one.parquet")
    assert read.keys.tolist() == written.keys.tolist()
    assert read.vectors.tobytes() == vectors.tobytes()
