"""The all-pairs search as a full sort of all exact scores, and archives to search."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from dupq.neighbours.candidates import Nearest, as_neighbours, empty_nearest, merge
from dupq.neighbours.embeddings import Embeddings, Measure, Neighbours, blocks
from dupq.neighbours.exact import pair_scores
from dupq.neighbours.tiles import Block, Pairs, Search, block, search_tile


def exact_order(archive: Embeddings, measure: Measure) -> np.ndarray:
    """What pairs are ordered by (float64, (n, n)): the product's own exact scores, which another test checks."""
    count = len(archive.keys)
    rows, columns = (places.ravel() for places in np.indices((count, count)))
    return pair_scores(measure, archive, archive, (rows, columns)).reshape(count, count)


def slow_top_k(archive: Embeddings, k: int, measure: Measure) -> list[tuple[int, int, int]]:
    """(query, rank, neighbour) by sorting all scores in float64, ties by key."""
    order = exact_order(archive, measure)
    keys, there = archive.keys.tolist(), ~archive.is_empty
    result = []
    for i in np.flatnonzero(there).tolist():
        scored = [(-order[i, j], keys[j]) for j in np.flatnonzero(there).tolist() if i != j]
        result += [(keys[i], rank, other) for rank, (_, other) in enumerate(sorted(scored)[:k], start=1)]
    return sorted(result)


def as_rows(neighbours: Neighbours) -> list[tuple[int, int, int]]:
    return list(
        zip(neighbours.queries.tolist(), neighbours.ranks.tolist(), neighbours.neighbours.tolist(), strict=True)
    )


def random_bags(generator: np.random.Generator, count: int, words: int = 12) -> sparse.csr_array:
    weights = generator.random((count, words)) * (generator.random((count, words)) < 0.25)
    weights[generator.random(count) < 0.3] = np.round(weights[:1] if count else 0)
    return sparse.csr_array(weights.astype(np.float16).astype(np.float32))


@st.composite
def archives(draw: st.DrawFn, is_lexical: bool = False) -> Embeddings:
    count = draw(st.integers(0, 60))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "copies", "signs", "tiny", "large", "zeros"]))
    vectors = generator.normal(size=(count, 8))
    if kind == "copies":
        vectors = vectors[generator.integers(0, max(1, count // 4), count)] if count else vectors
    elif kind == "signs":
        vectors = np.sign(vectors)
    elif kind == "tiny":
        vectors *= 6e-7  # among float16's subnormal numbers
    elif kind == "large":
        vectors *= 100  # exp(-distance) is no float32 number
    elif kind == "zeros":
        vectors[generator.random(count) < 0.5] = 0
    words = random_bags(generator, count) if is_lexical else None
    return Embeddings(generator.permutation(count).astype(np.int64) * 3, vectors.astype(np.float16), words)


def all_pairs(blocks: Sequence[Block], search: Search) -> tuple[list[Nearest], Pairs]:
    """The k best of each block's questions among all, and all pairs above the threshold, sorted by keys."""
    nearest, pairs = [empty_nearest(len(block.keys), search.k) for block in blocks], []
    numbers = range(len(blocks))
    for left, right in [*zip(numbers, numbers, strict=True), *combinations(numbers, 2)]:
        known = [nearest[side].scores[:, -1] if search.k else None for side in (left, right)]
        of_left, of_right, above, _ = search_tile(blocks[left], blocks[right], search, known=(known[0], known[1]))
        merge(nearest[left], of_left)
        if left != right:
            merge(nearest[right], of_right)
        pairs.append(above)
    every = Pairs(*(np.concatenate(columns) for columns in zip(*pairs, strict=True)))
    order = np.lexsort((every.right, every.left))
    return nearest, Pairs(*(column[order] for column in every))


def assert_all_are_found(archive: Embeddings, rows: int, search: Search) -> None:
    """The nearest, and the pairs above the threshold, in blocks of `rows`, are those of a full sort."""
    archive, measure = archive.take(np.argsort(archive.keys)), search.measure
    made = [block(piece, measure) for piece in blocks(archive, rows)]
    nearest, pairs = all_pairs(made, search)
    found = [as_rows(as_neighbours(b.keys, n)) for b, n in zip(made, nearest, strict=True)]
    assert sorted(row for one in found for row in one) == slow_top_k(archive, search.k, measure)
    there = np.flatnonzero(~archive.is_empty)
    similarities = exact_order(archive, measure).astype(np.float32)
    over = [(i, j) for i in there for j in there if i < j and similarities[i, j] >= np.float32(search.threshold)]
    keys = archive.keys.tolist()
    assert list(zip(*(column.tolist() for column in pairs[:2]), strict=True)) == [(keys[i], keys[j]) for i, j in over]
    assert pairs.similarities.tolist() == [similarities[i, j] for i, j in over]
