"""Terms of texts against splitting, stemming and counting in Python."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import Stemmer
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.text.languages import one_spelling
from dupq.text.questions import BUCKETS, Terms, document_counts, rare_words, rarities, tags_of, terms_of

KNOWN = ("run", "running", "runs", "graph", "graphs", "c++", "2014", "x11", "naïve", "سؤال", "the", "a" * 300)
LETTERS = st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"))
WORDS = st.one_of(st.sampled_from(KNOWN), st.text(LETTERS, min_size=1, max_size=12))
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=6)


def bucket(word: str, language: str = "english") -> int:
    word = one_spelling(word)
    stem = Stemmer.Stemmer(language).stemWord(word) or word
    return xxhash.xxh3_64_intdigest(stem.encode()) % BUCKETS


def slow_terms(text: str, language: str = "english") -> dict[int, int]:
    counts = Counter(bucket(word, language) for word in text.split(" ")) if text else Counter()
    return {term: min(255, count) for term, count in counts.items()}


def rows_of(terms: Terms) -> list[list[tuple[int, int]]]:
    pairs = list(zip(terms.ids.tolist(), terms.counts.tolist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(terms.offsets.tolist())]


def column(texts: list[str]) -> pa.StringArray:
    return pa.array(texts, pa.string())


@given(TEXTS, st.sampled_from(["english", "french", "arabic"]))
def test_the_terms_of_a_text_are_its_stems_counted(texts: list[str], language: str) -> None:
    found = terms_of(column(texts), language)
    assert rows_of(found) == [sorted(slow_terms(text, language).items()) for text in texts]
    assert (found.offsets.dtype, found.ids.dtype, found.counts.dtype) == (np.int64, np.int32, np.uint8)


def test_a_word_counts_255_times_at_most() -> None:
    repeated = [" ".join(["again"] * times) for times in (254, 255, 256, 700)]
    assert [row[0][1] for row in rows_of(terms_of(column(repeated), "english"))] == [254, 255, 255, 255]


def test_absent_and_empty_texts_have_no_terms() -> None:
    assert rows_of(terms_of(pa.array(["", None, "word", ""], pa.string()), "english")) == [
        [],
        [],
        [(bucket("word"), 1)],
        [],
    ]
    assert rows_of(terms_of(column([]), "english")) == []


def test_tags_may_be_null_in_a_table_from_elsewhere() -> None:
    tags = pa.array([["b"], ["a", None], None, [], [None], ["a"]], pa.list_(pa.string()))
    [b], [a], *none, other = rows_of(tags_of(tags.slice(0)))
    assert (none, other) == ([[], [], []], [a])
    assert rows_of(tags_of(tags.slice(1))) == [[a], *none, other]
    assert a != b


@settings(max_examples=10)  # with a count of each of four million terms
@given(TEXTS)
def test_a_term_is_counted_once_in_each_text_that_has_it(texts: list[str]) -> None:
    counts = document_counts(terms_of(column(texts), "english"))
    expected = Counter(term for text in texts for term in slow_terms(text))
    assert counts.shape == (BUCKETS,)
    assert {int(term): int(counts[term]) for term in np.flatnonzero(counts)} == expected


@pytest.mark.parametrize(("count", "questions"), [(0, 10), (1, 10), (10, 10), (3, 24_000_000), (0, 0), (12, 10)])
def test_the_rarity_of_a_term_is_bm25s_inverse_document_frequency(count: int, questions: int) -> None:
    [found] = rarities(np.array([count]), questions)
    count = min(count, questions)  # a bucket may count more questions than there are
    assert found == pytest.approx(math.log(1 + (questions - count + 0.5) / (count + 0.5)), rel=1e-6)
    assert found.dtype == np.float32


def test_a_word_of_one_question_is_rare_whatever_its_form() -> None:
    texts = pa.array(["bread oven", "breads", "", "ovens"])
    table = rarities(document_counts(terms_of(texts, "english")), len(texts))
    is_rare = rare_words(table, len(texts), "english")
    assert [is_rare(word) for word in ("bread", "oven", "unknown")] == [False, False, True]
    alone = rarities(document_counts(terms_of(texts[:1], "english")), 1)
    assert rare_words(alone, 1, "english")("ovens")
