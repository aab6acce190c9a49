"""Sets of hashed word shingles (Broder 1997) of whole columns of texts, and the exact Jaccard coefficients
|A ∩ B| / |A ∪ B| of candidate pairs.

A shingle is `size` consecutive tokens. A text with fewer tokens is one shingle; an empty text has none, so that it has
no duplicates. Texts are tokens joined by single spaces, as in the TEXTS table. A text that is only a title is compared
letter by letter: it has so few words that one typing error would change half of its shingles.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.kernel_cache import numba, read_only
from dupq.text.languages import one_spelling
from dupq.text.token_arrays import strings_of
from dupq.text.written import title_of

# Compiled hashes of tokens and shingles, on the bytes of Arrow's string buffers.
#
# A token's hash depends on its bytes alone. Eight bytes at a time pass a step that is a bijection, and MurmurHash3's
# finaliser, another bijection, follows. So tokens of up to seven bytes never share a hash, and any two share one with a
# probability of about 2**-64. A shingle's hash is the polynomial of its tokens' hashes at an odd point, modulo 2**64,
# and a last bijective mix. If hashes of tokens are as good as random, two shingles share a hash with a probability of
# nearly always 2**-64, and at most 2**-60: with the same four tokens, the outer ones swapped, the difference of the
# point's powers has up to four factors of two. They share the lower 32 bits, which a signature is made from, with a
# probability of about 2**-32.

_U = np.uint64
POINT = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd; POINT - 1 has two factors of two
_START = np.uint64(0x243F6A8885A308D3)  # of a token: the first digits of pi
_STEP = np.uint64(0xD6E8FEB86659FD93)  # odd, from Evensen's rrmxmx
_LAST = np.uint64(0x94D049BB133111EB)  # odd, from Stafford's mix 13
_FMIX_1, _FMIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


@numba.njit(nogil=True, cache=True)
def _fmix(value: np.uint64) -> np.uint64:
    """Return MurmurHash3's 64-bit finaliser: every input bit reaches every output bit."""
    value = (value ^ (value >> _U(33))) * _FMIX_1
    value = (value ^ (value >> _U(33))) * _FMIX_2
    return value ^ (value >> _U(33))


@numba.njit(nogil=True, cache=True)
def _fold(value: np.uint64, word: np.uint64) -> np.uint64:
    """Mix in eight more bytes; a bijection of `value` for any `word`, and of `word` for any `value`."""
    value = (value ^ word) * _STEP
    return value ^ (value >> _U(32))


@numba.njit(nogil=True, cache=True)
def _hash_tokens(data: np.ndarray, start: int, end: int, hashes: np.ndarray) -> int:
    """Write the hashes of the tokens between `start` and `end`, which single spaces separate; return their number."""
    count, value, word, bits = 0, _START, _U(0), _U(0)
    for at in range(start, end):
        byte = data[_U(at)]
        if byte == 32:
            hashes[_U(count)] = _fmix(_fold(value, word))
            count, value, word, bits = count + 1, _START, _U(0), _U(0)
            continue
        word |= _U(byte) << bits
        bits += _U(8)
        if bits == 64:
            value, word, bits = _fold(value, word), _U(0), _U(0)
    if start < end and data[_U(end - 1)] != 32:
        hashes[_U(count)] = _fmix(_fold(value, word))
        count += 1
    return count


@numba.njit(nogil=True, cache=True)
def _hash_shingles(data: np.ndarray, offsets: np.ndarray, size: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of the shingles of all texts (uint64), and the offsets of each text's (int64, (n + 1,)).

    Fewer tokens than `size` make one shingle, no token makes none. `longest` is the most bytes of a text.
    """
    hashes = np.empty(offsets[-1] - offsets[0], np.uint64)  # a text has at most as many tokens as bytes
    words, begins = np.empty(longest, np.uint64), np.zeros(len(offsets), np.int64)
    for text in range(len(offsets) - 1):
        tokens = _hash_tokens(data, offsets[text], offsets[text + 1], words)
        length = min(size, tokens)
        count = tokens - length + (tokens > 0)
        begins[text + 1] = begins[text] + count
        own = hashes[begins[text] :]
        own[:count] = words[:count]
        for follower in range(1, length):
            for index in range(count):
                own[_U(index)] = own[_U(index)] * POINT + words[_U(index + follower)]
        for index in range(count):
            value = (own[_U(index)] ^ (own[_U(index)] >> _U(32))) * _LAST
            own[_U(index)] = value ^ (value >> _U(29))
    return hashes[: begins[-1]], begins


class Shingles(NamedTuple):
    """The shingles of n texts: those of text i are `hashes[offsets[i]:offsets[i + 1]]` (uint64)."""

    hashes: np.ndarray
    offsets: np.ndarray


def compared(titles: pa.StringArray, texts: pa.StringArray, written: pa.StringArray) -> pa.StringArray:
    """Return the texts (title and body) as they are compared: in one spelling, and those that are only a title with
    letters as tokens. `written` are the `written_titles`.
    """
    is_title = pc.and_(pc.equal(titles, texts), pc.not_equal(titles, ""))
    rows = zip(written.filter(is_title).to_pylist(), titles.filter(is_title).to_pylist(), strict=True)
    spelled = pa.array([" ".join(title_of(*row).words.replace(" ", "_")) for row in rows], pa.string())
    is_other = pc.and_(pc.invert(is_title), pc.invert(pc.string_is_ascii(texts)))
    others = pa.array(map(one_spelling, texts.filter(is_other).to_pylist()), pa.string())
    for rows_of, column in ((is_title, spelled), (is_other, others)):
        texts = pc.replace_with_mask(texts, rows_of, column) if len(column) else texts  # which copies all texts
    return texts


def shingle(texts: pa.StringArray, size: int) -> Shingles:
    """Return the shingles of each text, in order and with repeats; offsets are int64."""
    offsets, data = strings_of(texts)
    return Shingles(*_hash_shingles(data, offsets, size, int(np.diff(offsets).max(initial=0))))


def shingle_sets(texts: pa.StringArray, size: int) -> Shingles:
    """Return the set of shingles of each text: sorted, without repeats; offsets are int64."""
    hashes, begins = shingle(texts, size)
    owners = np.repeat(np.arange(len(texts)), np.diff(begins))
    order = np.lexsort((hashes, owners))
    hashes, is_first = hashes[order], np.ones(len(hashes), bool)
    is_first[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    return Shingles(hashes[is_first], np.append(0, np.cumsum(is_first))[begins])


def jaccard(sets: Shingles, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the coefficient of each pair (float64, (m,)); `left` and `right` are rows of `sets` (`shingle_sets`).

    Two empty sets have coefficient 0, as an empty text has no duplicates.
    """
    result = np.empty(len(left))
    _compare(read_only(sets.hashes), sets.offsets, read_only(left), read_only(right), result)
    return result


@numba.njit(nogil=True, cache=True)
def _compare(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    for pair in range(len(left)):
        i, i_end = offsets[left[pair]], offsets[left[pair] + 1]
        j, j_end = offsets[right[pair]], offsets[right[pair] + 1]
        both = (i_end - i) + (j_end - j)
        common = 0
        while i < i_end and j < j_end:
            a, b = hashes[i], hashes[j]
            common += a == b
            i += a <= b
            j += b <= a
        result[pair] = common / (both - common) if both else 0.0
