"""The compiled hashes of tokens, shingles and sets against plain Python."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_shingles import slow_hashes, words_of

from dupq.near_duplicates.minhash import EMPTY, signatures, text_signatures
from dupq.near_duplicates.shingles import compared, shingle, shingle_sets
from dupq.settings.sections import NearDuplicateSettings

TOKEN = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=30)
TEXT = st.lists(TOKEN | st.sampled_from(["a", "b", "LINK", "don't", "ünï", "كتاب", "😀"]), max_size=12).map(" ".join)
TEXTS = st.lists(TEXT, min_size=1, max_size=6)


def column(texts: list[str], large: bool = False) -> pa.Array:
    return pa.array(texts, pa.large_string() if large else pa.string())


@settings(deadline=None)  # the first example waits for the compiler
@given(TEXTS, st.integers(1, 5), st.booleans())
def test_shingles_are_those_of_plain_python(texts: list[str], size: int, large: bool) -> None:
    hashes, offsets = shingle(column(texts, large), size)
    expected = [slow_hashes(text, size) for text in texts]
    assert [hashes[a:b].tolist() for a, b in pairwise(offsets)] == expected


@settings(deadline=None)  # the first example waits for the compiler
@given(TEXTS, st.integers(1, 4))
def test_shingle_sets_are_those_of_plain_python(texts: list[str], size: int) -> None:
    hashes, offsets = shingle_sets(column(texts), size)
    assert (offsets.dtype, hashes.dtype) == (np.int64, np.uint64)
    expected = [sorted(set(slow_hashes(text, size))) for text in texts]
    assert [hashes[a:b].tolist() for a, b in pairwise(offsets)] == expected


def test_a_set_is_sorted_however_often_a_shingle_stands_in_the_text() -> None:
    generator = random.Random(1)
    texts = [" ".join(generator.choices("ab" if row % 2 else "abcdefghij", k=row)) for row in range(300)]
    hashes, offsets = shingle_sets(column(texts), 2)
    for row, text in enumerate(texts):
        assert hashes[offsets[row] : offsets[row + 1]].tolist() == sorted(set(slow_hashes(text, 2)))


@settings(deadline=None)  # the first example waits for the compiler
@given(TEXTS)
def test_one_pass_gives_the_signatures_of_the_shingles(texts: list[str]) -> None:
    found = signatures(shingle(column(texts), 3), 70)
    assert (text_signatures(column(texts), NearDuplicateSettings(permutations=70)) == found).all()
    for row, text in enumerate(texts):
        theirs = MinHash(num_perm=70, scheme="affine32", hashfunc=lambda value: value & 0xFFFFFFFF)
        theirs.update_batch(slow_hashes(text, 3))
        assert theirs.hashvalues.tolist() == found[row].tolist()


def test_an_empty_text_has_no_shingle_and_the_empty_signature() -> None:
    texts = column(["", "a", ""])
    assert np.diff(shingle_sets(texts, 3).offsets).tolist() == [0, 1, 0]
    assert (text_signatures(texts, NearDuplicateSettings())[[0, 2]] == EMPTY).all()


@pytest.mark.parametrize("texts", [pa.array([], pa.string()), pa.array(["", ""]), pa.array([None, "a"], pa.string())])
def test_columns_without_texts_are_no_trouble(texts: pa.StringArray) -> None:
    assert len(shingle_sets(texts, 3).offsets) == len(texts) + 1
    assert text_signatures(texts, NearDuplicateSettings()).shape == (len(texts), 128)


def test_a_slice_of_a_column_gives_what_its_texts_give() -> None:
    texts = column(["a b c d", "e f g", "h", "i j k l m"])
    assert shingle(texts[1:3], 2).hashes.tolist() == slow_hashes("e f g", 2) + slow_hashes("h", 2)


def test_short_tokens_and_their_orders_never_share_a_hash() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [a + b + c for a in letters for b in letters for c in letters]
    assert len(np.unique(shingle(column(tokens), 1).hashes)) == len(tokens)
    some = tokens[:40]
    ordered = [f"{a} {b} {c}" for a in some for b in some for c in some]
    hashes = shingle(column(ordered), 3).hashes
    assert len(np.unique(hashes)) == len(ordered)
    assert len(np.unique(hashes.astype(np.uint32))) >= len(ordered) - 4  # 0.5 pairs share 32 bits by chance


def test_signatures_estimate_the_jaccard_coefficient() -> None:
    generator = random.Random(1)
    chosen = NearDuplicateSettings()
    errors = []
    for _ in range(200):
        words = [str(generator.randrange(10**6)) for _ in range(120)]
        changed = [word if generator.random() < 0.95 else word + "x" for word in words]
        texts = column([" ".join(words), " ".join(changed)])
        left, right = text_signatures(texts, chosen)
        a, b = set(slow_hashes(" ".join(words), 3)), set(slow_hashes(" ".join(changed), 3))
        errors.append((left == right).mean() - len(a & b) / len(a | b))
    assert abs(np.mean(errors)) < 0.01
    assert np.std(errors) < 0.06  # sqrt(s * (1 - s) / 128) is at most 0.044


def test_the_twin_knows_words() -> None:
    assert words_of("a b") == ["a", "b"]
    assert words_of("") == []


def test_a_title_alone_is_compared_letter_by_letter() -> None:
    titles, texts = column(["a bé", "a b", "", "", "x 5mm"]), column(["a bé", "a b ё", "a b", "", "x 5mm"])
    written = column([""] * 4 + ["x 5 mm\t\t"])
    assert compared(titles, texts, written).to_pylist() == ["a _ b é", "a b е", "a b", "", "x _ 5 _ m m"]
    assert compared(titles[:0], texts[:0], written[:0]).to_pylist() == []
