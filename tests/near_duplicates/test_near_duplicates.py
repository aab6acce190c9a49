import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.near_duplicates.minhash import EMPTY, band_keys, signatures
from dupq.near_duplicates.shingles import jaccard, shingle, shingle_sets

WORDS = st.lists(st.sampled_from(["a", "b", "c", "é", "😀", "LINK"]), max_size=12).map(" ".join)


def slow_shingles(text: str, size: int) -> set[tuple[str, ...]]:
    """Broder's shingles as anyone would write them."""
    words = text.split()
    if not words:
        return set()
    return {tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def slow_jaccard(left: str, right: str, size: int) -> float:
    a, b = slow_shingles(left, size), slow_shingles(right, size)
    return len(a & b) / len(a | b) if a | b else 0.0


@settings(deadline=None)  # the first example waits for the compiler
@given(st.lists(WORDS, min_size=2, max_size=6), st.integers(1, 4))
def test_jaccard_equals_that_of_plain_python_sets(texts: list[str], size: int) -> None:
    pairs = list(itertools.combinations(range(len(texts)), 2))
    left, right = (np.array(side) for side in zip(*pairs, strict=True))
    found = jaccard(shingle_sets(pa.array(texts), size), left, right)
    assert found == pytest.approx([slow_jaccard(texts[i], texts[j], size) for i, j in pairs])


@settings(deadline=None)  # the first example waits for the compiler
@given(st.lists(WORDS, min_size=1, max_size=6), st.integers(1, 4))
def test_shingles_are_counted_as_plain_python_counts_them(texts: list[str], size: int) -> None:
    sets = shingle_sets(pa.array(texts), size)
    assert np.diff(sets.offsets).tolist() == [len(slow_shingles(text, size)) for text in texts]


@settings(deadline=None)  # the first example waits for the compiler
@given(st.lists(WORDS, min_size=1, max_size=8))
def test_signatures_are_datasketchs_bit_for_bit(texts: list[str]) -> None:
    shingles = shingle(pa.array(texts), 3)
    ours = signatures(shingles, 64)
    for row in range(len(texts)):
        theirs = MinHash(num_perm=64, scheme="affine32", hashfunc=int)
        hashes = shingles.hashes[shingles.offsets[row] : shingles.offsets[row + 1]]
        theirs.update_batch([int(value) & 0xFFFFFFFF for value in hashes])
        assert theirs.hashvalues.tolist() == ours[row].tolist()


def test_signatures_do_not_depend_on_how_many_texts_come_together() -> None:
    generator = random.Random(1)
    texts = [" ".join(generator.choices("abcdefgh", k=generator.randrange(400))) for _ in range(400)]
    together = signatures(shingle(pa.array(texts), 3), 128)
    alone = [signatures(shingle(pa.array([text]), 3), 128)[0] for text in texts]
    assert (together == np.array(alone)).all()


def test_an_empty_text_has_the_empty_signature() -> None:
    texts = pa.array(["", "a"])
    assert (signatures(shingle(texts, 3), 8)[0] == EMPTY).all()


def test_a_short_text_is_one_shingle() -> None:
    assert np.diff(shingle(pa.array(["a b", "a", "a b c", "a b c d"]), 3).offsets).tolist() == [1, 1, 1, 2]


def test_words_are_not_glued_and_their_order_counts() -> None:
    hashes = shingle(pa.array(["ab c", "a bc", "c ab", "a b c"]), 3).hashes
    assert len(set(hashes.tolist())) == 4


def test_bands_find_pairs_as_often_as_the_formula_says() -> None:
    generator = np.random.default_rng(1)
    similarity, bands, rows, trials = 0.6, 8, 4, 4000
    left = generator.integers(0, 2**32, (trials, 32), dtype=np.uint32)
    agree = generator.random((trials, 32)) < similarity
    right = np.where(agree, left, generator.integers(0, 2**32, (trials, 32), dtype=np.uint32))
    met = (band_keys(left, bands, rows) == band_keys(right, bands, rows)).any(axis=1).mean()
    expected = 1 - (1 - similarity**rows) ** bands
    assert met == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / trials))


def test_bands_of_the_same_values_have_different_keys() -> None:
    keys = band_keys(np.full((1, 8), 7, np.uint32), 4, 2)
    assert len(set(keys[0].tolist())) == 4
