"""The compiled hashes of tokens, shingles and sets against plain Python."""

import itertools
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.slow_shingles import slow_hashes
from real_texts import real_texts

from dupq.near_duplicates.minhash import text_signatures
from dupq.near_duplicates.shingles import compared, jaccard, shingle, shingle_sets
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.token_arrays import token_texts

TOKEN = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=30)
TEXT = st.lists(TOKEN | st.sampled_from(["a", "b", "LINK", "don't", "ünï", "كتاب", "😀"]), max_size=12).map(" ".join)
WORDS = st.lists(st.sampled_from("abcé"), max_size=12).map(" ".join)
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


@settings(deadline=None)  # the first example waits for the compiler
@given(st.lists(WORDS, min_size=2, max_size=6), st.integers(1, 4))
def test_a_coefficient_is_that_of_plain_python_sets(texts: list[str], size: int) -> None:
    pairs = list(itertools.combinations(range(len(texts)), 2))
    found = jaccard(shingle_sets(column(texts), size), *(np.array(side) for side in zip(*pairs, strict=True)))
    sets = [set(slow_hashes(text, size)) for text in texts]
    assert found == pytest.approx([len(sets[i] & sets[j]) / max(1, len(sets[i] | sets[j])) for i, j in pairs])


@settings(deadline=None)  # the first example waits for the compiler
@given(TEXTS)
def test_signatures_are_datasketchs(texts: list[str]) -> None:
    found = text_signatures(column(texts), NearDuplicateSettings(permutations=70))
    for row, text in enumerate(texts):
        theirs = MinHash(num_perm=70, scheme="affine32", hashfunc=lambda value: value & 0xFFFFFFFF)
        theirs.update_batch(slow_hashes(text, 3))
        assert theirs.hashvalues.tolist() == found[row].tolist()


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


def test_a_title_alone_is_compared_letter_by_letter() -> None:
    titles, texts = column(["a bé", "a b", "", "", "x 5mm"]), column(["a bé", "a b ё", "a b", "", "x 5mm"])
    written = column([""] * 4 + ["x 5 mm\t\t"])
    assert compared(titles, texts, written).to_pylist() == ["a _ b é", "a b е", "a b", "", "x _ 5 _ m m"]
    assert compared(titles[:0], texts[:0], written[:0]).to_pylist() == []


@pytest.mark.realdata
def test_signatures_of_real_texts_are_datasketchs(shared_data: Path) -> None:
    """Of every third text: datasketch takes them one by one."""
    for name, every in real_texts(shared_data, 3_000):
        texts = token_texts(pa.array(every[::3], pa.string()))
        hashes, offsets = shingle(texts, 3)
        narrow = (hashes & np.uint64(0xFFFFFFFF)).tolist()
        given = (narrow[begin:end] for begin, end in pairwise(offsets))
        theirs = MinHash.generator(given, num_perm=128, seed=1, scheme="affine32", hashfunc=int)
        ours = text_signatures(texts, NearDuplicateSettings())
        for row, minhash in enumerate(theirs):
            assert (minhash.hashvalues == ours[row]).all(), f"{name}, row {row}"
