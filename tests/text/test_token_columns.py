"""The compiled tokeniser against `tokens`, its slow twin: whatever the text, the same tokens."""

import ctypes
import mmap
import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.slow_shingles import slow_hashes

from dupq.near_duplicates.minhash import text_signatures
from dupq.near_duplicates.shingles import shingle
from dupq.settings.sections import NearDuplicateSettings
from dupq.text import token_arrays
from dupq.text.token_arrays import token_texts
from dupq.text.tokens import tokens

# What is treated specially: marks, addresses, apostrophes, capitals, sigmas, marks that compose or change places,
# Hangul in pieces, letters that become several, wide and narrow forms, scripts without spaces, blanks of all kinds.
PIECES = [
    *["a", "Z", "0", "_", "+", "#", "++", "'", "’", ".", " ", "\n", "\0", "\x1c", "-", "don't", "C++", "word_2"],
    *["http://", "HTTPS://", "httpſ://", "ftp://", "www.", "WWW.", "://", "ww", "<", '"', "h", "ht", "f", "\xa0"],
    *["\ue000", "\ue001", "\ue002", "Σ", "ΑΣ", "σ", "𝚺", "Ϲ", "'Σ", "İ", "ß", "ẞ", "ﬁ", "ﷺ", "㌀", "…", "①", "⑴", "½"],
    *["é", "e\u0301", "\u0301", "\u0323", "\u0344", "\u0345", "\u05b0", "\u05bc", "\u0651", "\u064b", "آ", "ا\u0653"],
    *["كِتَاب", "ﻻ", "\u1112", "\u1161", "\u11ab", "한", "中", "か", "ｶﾞ", "゙", "々", "ー", "〇", "丽"],
    *["\u0915\u093c", "क्षि", "\u09c7", "\u09be", "😀", "👩\u200d🔬", "\ufeff", "\u00ad", "Ⅷ", "ａ"],
    *["日本語の文", "ー", "ไทยแลนด์", "ລາວ", "ខ្មែរ", "မြန်မာ", "๑๒", "ๆ", "\u200b", "\u3099", "𠀋", "第3章", "㈱"],
    *["\U0001d400", "\U00010400", "\U0010ffff"],
]
TEXT = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=12)


def assert_same(texts: list[str], kind: pa.DataType | None = None) -> None:
    found = token_texts(pa.array(texts, kind or pa.string()))
    pairs = zip(texts, found.to_pylist(), strict=True)
    assert [(text, line) for text, line in pairs if line != " ".join(tokens(text))] == []


@settings(max_examples=1_000, deadline=None)
@given(st.lists(TEXT.map("".join), min_size=1, max_size=3), st.booleans())
@example(["http://a\u0301"], False)
@example(["ᄒ\ue000\u1161"], False)
@example(["c+", "c++", "c+++", "c#", "c##", "c'", "c''d"], False)
def test_columns_have_the_tokens_of_single_texts(texts: list[str], is_large: bool) -> None:
    assert_same(texts, pa.large_string() if is_large else pa.string())


def test_every_character_alone() -> None:
    """Of those that mean nothing, which are most, some."""
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert_same([one for one in every if unicodedata.category(one) not in ("Cn", "Co") or ord(one) % 50 == 0])


def test_every_assigned_character_among_others() -> None:
    every = (chr(code) for code in range(sys.maxunicode + 1))
    assigned = (one for one in every if unicodedata.category(one) not in ("Cn", "Co", "Cs", "Lo"))
    others = (chr(code) for code in [*range(0x80, 0x3400, 3), 0x4E00, 0xAC00, 0xAC01, 0xF900, *range(0xFB00, 0xFFFE)])
    assert_same([f"A{one}b" for one in [*assigned, *others]])


def test_tokens_may_take_more_room_than_their_texts() -> None:
    assert_same(["\ue001" + "c#" * 100_000, "\ue001" + "ﷺ" * 10_000, "㌀" * 10_000, "a" * 300_000, ""])


def misaligned(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    """`texts` as the middle of a longer column, in which they are neither first nor last."""
    column = pa.array(["zero ü", None, *texts, "last http://a.b", None, ""], kind)
    return column.slice(2, len(texts))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("texts", [[], ["", ""], [None], [None, "a"], ["ΟΔΟΣ", None, "", "cafe\u0301"], ["b" * 64, ""]])
def test_columns_of_every_shape(texts: list[str | None], kind: pa.DataType) -> None:
    expected = [" ".join(tokens(text or "")) for text in texts]
    for column in (pa.array(texts, kind), misaligned(texts, kind)):
        found = token_texts(column)
        found.validate(full=True)
        assert (found.to_pylist(), found.type) == (expected, kind)


def test_offsets_beyond_two_gibibytes_are_read_as_they_are() -> None:
    """A large column whose offsets begin behind 2 GiB of bytes that no text has: reserved, never touched."""
    far = (1 << 31) + 100
    content = np.zeros(far + 200, np.uint8)  # zero pages, which the system hands out when they are written
    text = b"don't see c++11 or \xee\x80\x80 here " * 3
    content[far : far + len(text)] = np.frombuffer(text, np.uint8)
    offsets = np.array([far, far + len(text), far + len(text)], np.int64)
    column = pa.LargeStringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(content))
    assert token_texts(column).to_pylist() == [" ".join(tokens(text.decode())), ""]
    assert len(shingle(column, 3).hashes) == text.count(b" ") - 2


def test_a_column_at_the_very_end_of_its_memory_is_not_read_beyond() -> None:
    """Behind the bytes stands a page that may not be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    for size in [*range(1, 140), page]:
        text = (b"it isn't c++ or longerthansixteenbytes www.a.b " * 100)[:size]
        memory[page - size : page] = text
        content = pa.foreign_buffer(address + page - size, size)
        column = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, size], np.int32)), content)
        assert token_texts(column).to_pylist() == [" ".join(tokens(text.decode()))]
        words = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, size], np.int32)), content)
        assert shingle(words, 3).hashes.tolist() == slow_hashes(text.decode().rstrip(" "), 3)
        text_signatures(words, NearDuplicateSettings())


def test_only_short_words_are_remembered_and_foreign_texts_are_split_at_once() -> None:
    token_arrays._cached_split.cache_clear()
    long = "x" * 400 + "é"
    texts = ["where is the café near here", f"a file {long} that nobody can open " * 9, "Где находится вокзал?"]
    assert token_texts(pa.array(texts)).to_pylist() == [" ".join(tokens(text)) for text in texts]
    assert token_arrays._cached_split.cache_info().currsize == 1  # café
