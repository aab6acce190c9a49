"""The words of string columns as numbers, by Arrow. Words are separated by single spaces; an empty text has none."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import numba
from dupq.text.strings import Strings

_U = np.uint64
_START = np.uint64(0x243F6A8885A308D3)  # the first digits of pi
_STEP = np.uint64(0x9FB21C651E98DF25)  # odd, from Evensen's rrmxmx
_LONG = np.uint64(0xFF << 56)  # where a word of up to seven bytes has its length


def distinct_words(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
    """The number of each word of `texts` (int32), where each text's words begin (int64, (n + 1,)), and the words.

    Words are numbered as they first appear. An absent text has no words.
    """
    texts = texts.cast(pa.large_string())
    lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), " ")
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    words = pc.list_flatten(lists).dictionary_encode()
    return words.indices.to_numpy(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), words.dictionary


@numba.njit(nogil=True, cache=True)
def buckets_of(words: Strings, buckets: int) -> np.ndarray:
    """Which of `buckets` each word belongs to (int32), by a hash of its bytes: the saved encoders depend on it."""
    found = np.empty(len(words.offsets) - 1, np.int32)
    for word in range(len(found)):
        start, end = words.offsets[word], words.offsets[word + 1]
        value, some, bits = _START, _U(0), _U(0)
        for at in range(start, end):
            some |= _U(words.data[_U(at)]) << bits
            bits += _U(8)
            if bits == 64:
                value, some, bits = _mix(value ^ some), _U(0), _U(0)
        key = some | _U(end - start) << _U(56) if end - start < 8 else _mix(value ^ some) | _LONG
        found[word] = _mix(key) % _U(buckets)
    return found


@numba.njit(nogil=True, cache=True)
def _mix(value: np.uint64) -> np.uint64:
    """A bijection that brings all bits to the lower ones."""
    value = (value ^ (value >> _U(28))) * _STEP
    return value ^ (value >> _U(32))
