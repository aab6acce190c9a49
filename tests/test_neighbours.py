import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.neighbours.embeddings import Embeddings, Neighbours, blocks
from dupq.neighbours.search import top_k


def slow_top_k(embeddings: Embeddings, k: int) -> list[tuple[int, int, int]]:
    """(query, rank, neighbour) by sorting all cosines in float64, ties by key; equal only to float32."""
    vectors = embeddings.vectors.astype(np.float64)
    result = []
    for i, query in enumerate(embeddings.keys.tolist()):
        if not vectors[i].any():
            continue
        scored = []
        for j, other in enumerate(embeddings.keys.tolist()):
            if i != j and vectors[j].any():
                cosine = vectors[i] @ vectors[j] / (np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j]))
                scored.append((-float(np.float32(np.round(cosine, 12))), other))
        result += [(query, rank, other) for rank, (_, other) in enumerate(sorted(scored)[:k], start=1)]
    return sorted(result)


def as_rows(neighbours: Neighbours) -> list[tuple[int, int, int]]:
    return list(
        zip(neighbours.queries.tolist(), neighbours.ranks.tolist(), neighbours.neighbours.tolist(), strict=True)
    )


@st.composite
def archives(draw: st.DrawFn) -> Embeddings:
    count = draw(st.integers(0, 60))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "copies", "signs", "tiny", "zeros"]))
    vectors = generator.normal(size=(count, 8))
    if kind == "copies":
        vectors = vectors[generator.integers(0, max(1, count // 4), count)] if count else vectors
    elif kind == "signs":
        vectors = np.sign(vectors)
    elif kind == "tiny":
        vectors *= 6e-7  # among float16's subnormal numbers
    elif kind == "zeros":
        vectors[generator.random(count) < 0.5] = 0
    return Embeddings(generator.permutation(count).astype(np.int64) * 3, vectors.astype(np.float16))


@settings(max_examples=60, deadline=None)
@given(archives(), st.integers(1, 12), st.integers(1, 70), st.integers(1, 70))
def test_neighbours_equal_a_full_sort_for_any_block_size(
    archive: Embeddings, k: int, query_rows: int, target_rows: int
) -> None:
    found = [top_k(piece, blocks(archive, target_rows), k) for piece in blocks(archive, query_rows)]
    rows = sorted(row for neighbours in found for row in as_rows(neighbours))
    assert rows == slow_top_k(archive, k)


def test_real_sized_neighbours_do_not_depend_on_blocks_or_row_order() -> None:
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(1500, 300))
    vectors[300:600] = vectors[:300] + generator.normal(size=(300, 300)) * 1e-3
    archive = Embeddings(np.arange(1500), (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float16))
    order = generator.permutation(1500)
    shuffled = Embeddings(archive.keys[order], archive.vectors[order])
    whole = top_k(archive, [archive], 10)
    pieces = top_k(archive, blocks(shuffled, 177), 10)
    for left, right in zip(whole, pieces, strict=True):
        assert left.tobytes() == right.tobytes()


def test_a_score_can_be_recomputed_from_the_embeddings() -> None:
    generator = np.random.default_rng(4)
    archive = Embeddings(np.arange(50), generator.normal(size=(50, 30)).astype(np.float16))
    found = top_k(archive, [archive], 3)
    exact = archive.vectors.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1)[:, None]
    cosines = (exact[found.queries] * exact[found.neighbours]).sum(axis=1)
    assert found.similarities == pytest.approx(cosines, abs=1e-7)
