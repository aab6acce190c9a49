"""A compiled hash table of the words of Arrow string columns, whose keys are slices of the columns' own bytes.

Words are separated by single spaces, as in `str.split(" ")`, but an empty text has none. The key of a word
of up to seven bytes is its bytes and their number, that of a longer one a hash, and then all bytes are compared: two
words are never taken for one.
"""

from typing import NamedTuple

import numpy as np

from dupq.kernel_cache import numba
from dupq.text.packed_bytes import eight_bytes, lowest_bit, some_bytes
from dupq.text.strings import Strings

_U = np.uint64
_START = np.uint64(0x243F6A8885A308D3)  # the first digits of pi
_STEP = np.uint64(0x9FB21C651E98DF25)  # odd, from Evensen's rrmxmx
_SPACE = np.uint8(32)
_SPACES = np.uint64(0x2020202020202020)
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_LONG = np.uint64(0xFF << 56)  # where a short word's key has its length
_LEAST_SLOTS = 1 << 10


class WordTable(NamedTuple):
    """n distinct words, word i being `data[starts[i]:ends[i]]`, and where their keys are.

    That is by open addressing with linear probing, in S slots: a power of two, at least 2 n.
    """

    data: np.ndarray  # uint8
    starts: np.ndarray  # int64, (n,)
    ends: np.ndarray  # int64, (n,)
    keys: np.ndarray  # uint64, (S,)
    numbers: np.ndarray  # int32, (S,): of the word whose key it is; -1 in an empty slot

    def words(self) -> list[str]:
        """The words by their numbers."""
        content = self.data.tobytes()
        bounds = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [content[start:end].decode() for start, end in bounds]


def table_of(words: Strings) -> WordTable:
    """The table of `words`, which are distinct, numbered in their order."""
    count = len(words.offsets) - 1
    slots = max(_LEAST_SLOTS, 1 << (2 * count).bit_length())
    keys, numbers = np.zeros(slots, np.uint64), np.full(slots, -1, np.int32)
    table = WordTable(words.data, words.offsets[:-1], words.offsets[1:], keys, numbers)
    _insert(table, count)
    return table


def look_up(texts: Strings, table: WordTable, buckets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The number in `table` of each word of `texts` (int32), and where each text's begin.

    Where a word is not there, the number is -1, less its bucket if there are any.
    """
    begins = _begins_of_words(texts.data, texts.offsets)
    numbers = np.empty(begins[-1], np.int32)
    _look_up(texts.data, texts.offsets, *table, begins, max(1, buckets), numbers)
    return numbers, begins


def bucket_of(word: str, buckets: int) -> int:
    """Which of `buckets` a word belongs to, by a hash of its bytes."""
    return int(_bucket_of(np.frombuffer(word.encode(), np.uint8), buckets))


def distinct_words(texts: Strings) -> tuple[np.ndarray, np.ndarray, WordTable]:
    """As `look_up`, in the table of all words of `texts`, numbered as they first appear, which comes third."""
    begins = _begins_of_words(texts.data, texts.offsets)
    numbers = np.empty(begins[-1], np.int32)
    return numbers, begins, _number(texts.data, texts.offsets, begins, numbers)


@numba.njit(nogil=True, cache=True)
def _begins_of_words(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Where each text's words begin, counted in words, and where the last one's end (int64, shape (n + 1,))."""
    begins = np.zeros(len(offsets), np.int64)
    for text in range(len(offsets) - 1):
        blanks = 0
        for at in range(offsets[text], offsets[text + 1]):
            blanks += data[_U(at)] == _SPACE
        begins[text + 1] = begins[text] + blanks + (offsets[text] < offsets[text + 1])
    return begins


@numba.njit(nogil=True, cache=True)
def _look_up(
    data: np.ndarray,
    offsets: np.ndarray,
    known: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    keys: np.ndarray,
    found: np.ndarray,
    begins: np.ndarray,
    buckets: int,
    numbers: np.ndarray,
) -> None:
    for text in range(len(offsets) - 1):
        start = offsets[text]
        for place in range(begins[text], begins[text + 1]):
            key, end = _next_word(data, start, offsets[text + 1])
            slot = _seek(keys, found, key, _mix(key))
            while _is_doubtful(key, found[slot]) and not _is_word(known, starts, ends, found[slot], data, start, end):
                slot = _seek(keys, found, key, slot + _U(1))
            numbers[place] = found[slot] if found[slot] >= 0 else -1 - _bucket(key, buckets)
            start = end + 1


@numba.njit(nogil=True, cache=True)
def _number(data: np.ndarray, offsets: np.ndarray, begins: np.ndarray, numbers: np.ndarray) -> WordTable:
    """Number all words to `numbers`; their table."""
    _, starts, ends, keys, found = _with_room(data, _LEAST_SLOTS)
    count = 0
    for text in range(len(offsets) - 1):
        start = offsets[text]
        for place in range(begins[text], begins[text + 1]):
            key, end = _next_word(data, start, offsets[text + 1])
            slot = _seek(keys, found, key, _mix(key))
            while _is_doubtful(key, found[slot]) and not _is_word(data, starts, ends, found[slot], data, start, end):
                slot = _seek(keys, found, key, slot + _U(1))
            if found[slot] < 0:
                starts[count], ends[count], keys[slot], found[slot] = start, end, key, count
                count += 1
            numbers[place] = found[slot]
            start = end + 1
            if count == len(starts):
                _, starts, ends, keys, found = _grown(data, starts, ends)
    return WordTable(data, starts[:count].copy(), ends[:count].copy(), keys, found)


@numba.njit(nogil=True, cache=True)
def _with_room(data: np.ndarray, slots: int) -> WordTable:
    """A table without words."""
    starts, ends = np.empty(slots // 2, np.int64), np.empty(slots // 2, np.int64)
    return WordTable(data, starts, ends, np.zeros(slots, np.uint64), np.full(slots, np.int32(-1)))


@numba.njit(nogil=True, cache=True)
def _grown(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> WordTable:
    """A table of the same words with room for twice as many."""
    count = len(starts)
    grown = _with_room(data, 4 * count)
    grown.starts[:count], grown.ends[:count] = starts, ends
    _insert(grown, count)
    return grown


@numba.njit(nogil=True, cache=True)
def _insert(table: WordTable, count: int) -> None:
    """Give the first `count` words, which are distinct, their slots, which are all empty."""
    for number in range(count):
        key = _key(table.data, table.starts[number], table.ends[number])
        slot = _mix(key) & _U(len(table.keys) - 1)
        while table.numbers[slot] >= 0:
            slot = (slot + _U(1)) & _U(len(table.keys) - 1)
        table.keys[slot], table.numbers[slot] = key, number


@numba.njit(nogil=True, cache=True)
def _seek(keys: np.ndarray, found: np.ndarray, key: np.uint64, slot: np.uint64) -> np.uint64:
    """The first slot (uint64) from `slot` on, modulo their number, that has this key or is empty."""
    mask = _U(len(keys) - 1)
    slot &= mask
    while found[slot] >= 0 and keys[slot] != key:
        slot = (slot + _U(1)) & mask
    return slot


@numba.njit(nogil=True, cache=True)
def _is_doubtful(key: np.uint64, number: int) -> bool | np.bool:
    """Whether the word of this number and key may still be another, as its bytes are not all in the key."""
    return number >= 0 and key >= _LONG


@numba.njit(nogil=True, cache=True)
def _is_word(
    known: np.ndarray, starts: np.ndarray, ends: np.ndarray, number: int, data: np.ndarray, start: int, end: int
) -> bool:
    """Whether `data[start:end]`, at least eight bytes, is the word of this number."""
    first, last = starts[_U(number)], ends[_U(number)]
    if last - first != end - start:
        return False
    for at in range(0, end - start - 8, 8):
        if eight_bytes(known, first + at) != eight_bytes(data, start + at):
            return False
    return eight_bytes(known, last - 8) == eight_bytes(data, end - 8)


@numba.njit(nogil=True, cache=True)
def _next_word(data: np.ndarray, start: int, stop: int) -> tuple[np.uint64, int]:
    """The key of the word that begins at `start`, and where it ends, in a text that ends at `stop`."""
    value, at = _START, start
    while True:
        word = eight_bytes(data, at) if at + 8 <= len(data) else some_bytes(data, at, stop)
        left = min(_before_space(word), stop - at)
        if left < 8:
            return _key_of(value, word, left, at > start), at + left
        value = _mix(value ^ word)
        at += 8


@numba.njit(nogil=True, cache=True)
def _key(data: np.ndarray, start: int, end: int) -> np.uint64:
    """The key of the word `data[start:end]`, spaces and all."""
    value, at = _START, start
    while end - at >= 8:
        value = _mix(value ^ eight_bytes(data, at))
        at += 8
    return _key_of(value, some_bytes(data, at, end), end - at, at > start)


@numba.njit(nogil=True, cache=True)
def _key_of(value: np.uint64, word: np.uint64, left: int, is_long: bool) -> np.uint64:
    """The key of a word whose last `left` bytes, under eight, are in `word`, `value` being made of those before."""
    word &= (_U(1) << _U(8 * left)) - _U(1)
    return _mix(value ^ word) | _LONG if is_long else word | _U(left) << _U(56)


@numba.njit(nogil=True, cache=True)
def _before_space(word: np.uint64) -> int:
    """How many of eight bytes come before the first space (int64, 8 if there is none); Lamport's search."""
    other = word ^ _SPACES
    return lowest_bit((other - _ONES) & ~other & _HIGH_BITS) >> 3


@numba.njit(nogil=True, cache=True)
def _bucket_of(word: np.ndarray, buckets: int) -> np.int32:
    return _bucket(_key(word, 0, len(word)), buckets)


@numba.njit(nogil=True, cache=True)
def _bucket(key: np.uint64, buckets: int) -> np.int32:
    """Of the word that has this key."""
    return np.int32(_mix(key) % _U(buckets))


@numba.njit(nogil=True, cache=True)
def _mix(value: np.uint64) -> np.uint64:
    """A bijection that brings all bits to the lower ones."""
    value = (value ^ (value >> _U(28))) * _STEP
    return value ^ (value >> _U(32))
