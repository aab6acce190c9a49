"""Texts to ids: the compiled way is the plain one, text by text."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.slow_ids import slow_ids, words_read
from real_texts import real_texts

from dupq.settings.sections import TextSettings
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds, distinct_words, token_texts

SETTINGS = [{}, {"word_form": "stems"}]
with_every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings.values()))

SHORT = "how do i 😀 日 الـ الكـتاب من ـ 2014 12 5 may june 4th of 42 ٤"
WORDS = [
    *("visa", "visas", "c++", "don’t", "internationalisation", "internationalise", "eightfor", "CODE_files", "LINK"),
    *SHORT.split(" "),
    *("seven77", "", "num", "date", "a" * 300),
]


def assert_is_plain(vocabulary: Vocabulary, texts: list[str], maximum: int) -> None:
    """`sequences` against `ids` of each text; what is cut against what more words would give."""
    found, cut = vocabulary.sequences(pa.array(texts, pa.string()), maximum)
    expected = [slow_ids(vocabulary, text, maximum) for text in texts]
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    assert cut == sum(len(slow_ids(vocabulary, text, len(text) + 1)) > maximum for text in texts)
    assert found.ids.dtype == np.int32


@with_every_setting
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=8),
    known=st.sets(st.sampled_from([*WORDS, "chang", "internationalis", "كتب", "ال", "visa"])),
    maximum=st.integers(1, 14),
)
@example(texts=["how do i do", "ـ", "how ـ", "", " "], known={"how"}, maximum=2)
def test_ids_of_columns_are_of_texts(settings: dict[str, Any], texts: list[str], known: set[str], maximum: int) -> None:
    assert_is_plain(Vocabulary(sorted(known), TextSettings(**settings)), texts, maximum)


@given(
    texts=st.lists(st.text(st.sampled_from(" ab\0é日😀"), max_size=30), max_size=5),
    words=st.lists(st.text(st.sampled_from(" ab\0é日😀"), max_size=20), unique=True),
)
def test_words_of_any_bytes_are_told_apart(texts: list[str], words: list[str]) -> None:
    assert_is_plain(Vocabulary(words), texts, 99)


def test_words_are_numbered_as_they_first_appear() -> None:
    numbers, begins, words = distinct_words(pa.array(["x", "b a", "", None, "a  c", "b"])[1:])
    assert words.to_pylist() == ["b", "a", "", "c"]
    assert (numbers.tolist(), numbers.dtype) == ([0, 1, 1, 2, 3, 0], np.int32)
    assert (begins.tolist(), begins.dtype) == ([0, 2, 2, 2, 5, 6], np.int64)


def test_a_slice_of_a_column_and_absent_texts_are_read_as_they_should() -> None:
    vocabulary = Vocabulary(["a", "b"])
    column = pa.chunked_array([pa.array(["b", "a b", None]), pa.array(["b b", "a"])])
    found, cut = vocabulary.sequences(column.slice(1, 3), 9)
    assert [ids.tolist() for ids in found] == [[2, 3], [], [3, 3]]
    assert (len(found), cut) == (3, 0)
    assert [ids.tolist() for ids in TokenIds.of(found)] == [[2, 3], [], [3, 3]]
    assert TokenIds.of([]).lengths.tolist() == []


@pytest.fixture(scope="module")
def some_real_texts(shared_data: Path) -> list[list[str]]:
    """Of each source."""
    return [token_texts(pa.array(texts)).to_pylist() for _, texts in real_texts(shared_data, 300)]


@pytest.mark.realdata
@with_every_setting
def test_ids_of_real_texts_are_those_of_the_texts(settings: dict[str, Any], some_real_texts: list[list[str]]) -> None:
    """The vocabulary is every other of their words, as normalised."""
    for texts in some_real_texts:
        normaliser = Vocabulary([], TextSettings(**settings))._normaliser
        words = sorted({word for text in texts for word in words_read(normaliser, text)})
        assert_is_plain(Vocabulary(words[::2], TextSettings(**settings)), texts, 60)


def test_the_words_of_ids_are_told_but_of_those_that_rare_words_share() -> None:
    vocabulary = Vocabulary.from_bytes(Vocabulary(["visa", "passport"]).to_bytes())
    assert [vocabulary.word(number) for number in slow_ids(vocabulary, "passport visa", 9)] == ["passport", "visa"]
    assert {vocabulary.word(number) for number in slow_ids(vocabulary, "zugzwang", 9)} == {"a rare word"}
