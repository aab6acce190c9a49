"""Compiled hashes of tokens and shingles, on the bytes of Arrow's string buffers.

A token's hash is a function of its bytes alone. Eight bytes at a time pass a step that maps no two of
them to one value, then MurmurHash3's finaliser follows, which is a bijection: tokens of up to seven bytes never share a
hash, and any two share one with a probability of about 2**-64. A shingle's hash is the polynomial of its tokens'
hashes at an odd point, modulo 2**64, and a last bijective mix. If hashes of tokens are as good as random, two
shingles share it with a probability of at most 2**-60 (the worst case: the same four tokens, the outer ones
swapped, since the difference of the point's powers then holds up to four factors of two), nearly always 2**-64;
its lower 32 bits, which a signature is made from, with one of about 2**-32.
"""

from typing import NamedTuple

import numpy as np

from dupq.kernel_cache import Integer, numba
from dupq.text.packed_bytes import count_bits, eight_bytes, equal_in_64, some_bytes, store_places
from dupq.text.strings import longest

_U = np.uint64
POINT = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd; POINT - 1 has two factors of two
_START = np.uint64(0x243F6A8885A308D3)  # of a token: the first digits of pi
_STEP = np.uint64(0xD6E8FEB86659FD93)  # odd, from Evensen's rrmxmx
_LAST = np.uint64(0x94D049BB133111EB)  # odd, from Stafford's mix 13
_FMIX_1, _FMIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SPACE = np.uint8(32)
_AT_ONCE = 32  # numbers that one step of a loop on vectors takes, if LLVM unrolls it four times for AVX-512
SLACK = 2 * _AT_ONCE  # extra room after the last number, whose content is undefined
_LARGEST_HEAP = 24  # hashes in one bucket from which insertion is too slow


@numba.njit(nogil=True, cache=True)
def _fmix(value: np.uint64) -> np.uint64:
    """MurmurHash3's 64-bit finaliser: every input bit reaches every output bit."""
    value = (value ^ (value >> _U(33))) * _FMIX_1
    value = (value ^ (value >> _U(33))) * _FMIX_2
    return value ^ (value >> _U(33))


class Room(NamedTuple):
    """Work arrays (uint64) for the tokens of one text."""

    sizes: np.ndarray  # where each ends, and then how many bytes are left to be hashed, 0 to 15
    words: np.ndarray  # these bytes and what follows, as two numbers a token
    hashes: np.ndarray


@numba.njit(nogil=True, cache=True)
def room_for(size: Integer) -> Room:
    """Work arrays for texts of up to `size` bytes."""
    count = size + 1 + SLACK
    return Room(np.zeros(count, np.uint64), np.zeros(2 * count, np.uint64), np.zeros(count, np.uint64))


@numba.njit(nogil=True, cache=True)
def whole_vectors(count: Integer) -> Integer:
    """`count` rounded up, so that a loop on vectors leaves nothing to be done one by one; by less than SLACK / 2."""
    return (count + _AT_ONCE - 1) & ~(_AT_ONCE - 1)


@numba.njit(nogil=True, cache=True)
def _token_hashes(data: np.ndarray, start: int, end: int, room: Room) -> Integer:
    """Hash the tokens between `start` and `end`, which single spaces separate, to `room.hashes`; how many those are.

    Only what must be done token by token is: the loops below it that hash run on vectors.
    """
    count = _find_ends(data, start, end, room.sizes)
    if end + 16 <= len(data):
        _fetch(data, start, count, room)
    else:
        _fetch_last(data, start, count, room)
    for token in range(whole_vectors(count)):
        size, first, second = room.sizes[_U(token)], room.words[_U(2 * token)], room.words[_U(2 * token + 1)]
        rest = (_U(1) << ((size & _U(7)) << _U(3))) - _U(1)
        is_long = _U(0) - (size >> _U(3))  # all bits or none
        value = _fold(_START, first & (rest | is_long))
        room.hashes[_U(token)] = _fmix(value ^ ((value ^ _fold(value, second & rest)) & is_long))
    return count


@numba.njit(nogil=True, cache=True)
def _find_ends(data: np.ndarray, start: int, end: int, ends: np.ndarray) -> Integer:
    """Write where the tokens end; how many those are. Several are written at once, real or not, to save branches."""
    count = np.int64(0)
    for chunk in range(start, end, 64):
        spaces = equal_in_64(data, chunk, _SPACE) if chunk + 64 <= len(data) else _spaces(data, chunk)
        if end - chunk < 64:
            spaces &= (_U(1) << _U(end - chunk)) - _U(1)
        found = count_bits(spaces)
        store_places(spaces, chunk, ends, count)
        for written in range(16, found, 16):
            for _ in range(16):
                spaces &= spaces - _U(1)
            store_places(spaces, chunk, ends, count + written)
        count += found
    if start < end and (count == 0 or ends[_U(count - 1)] + _U(1) < _U(end)):
        ends[_U(count)] = _U(end)
        count += 1
    return count


@numba.njit(nogil=True, cache=True)
def _spaces(data: np.ndarray, chunk: int) -> np.uint64:
    """As `equal_in_64`, for the last bytes of the column."""
    found = _U(0)
    for index in range(len(data) - chunk):
        found |= _U(data[_U(chunk + index)] == _SPACE) << _U(index)
    return found


@numba.njit(nogil=True, cache=True)
def _fold(value: np.uint64, word: np.uint64) -> np.uint64:
    """Mix in eight more bytes; a bijection of `value` for any `word`, and of `word` for any `value`."""
    value = (value ^ word) * _STEP
    return value ^ (value >> _U(32))


@numba.njit(nogil=True, cache=True)
def _fetch(data: np.ndarray, begin: Integer, count: Integer, room: Room) -> None:
    """Fetch the bytes of each token, which 16 more follow. Of one longer than 15, fold all but the last 8 to 15."""
    for token in range(count):
        end = np.int64(room.sizes[_U(token)])
        size = end - begin
        if size > 15:
            begin, folded = _fold_most(data, begin, end)
            room.words[_U(2 * token)] = eight_bytes(data, begin) ^ folded
            size = end - begin
        else:
            room.words[_U(2 * token)] = eight_bytes(data, begin)
        room.words[_U(2 * token + 1)] = eight_bytes(data, begin + 8)
        room.sizes[_U(token)] = _U(size)
        begin = end + 1


@numba.njit(nogil=True, cache=True)
def _fetch_last(data: np.ndarray, begin: Integer, count: Integer, room: Room) -> None:
    """As `_fetch` for the tokens at the end of the column, behind which nothing may be read."""
    for token in range(count):
        end = np.int64(room.sizes[_U(token)])
        begin, folded = _fold_most(data, begin, end)
        room.words[_U(2 * token)] = some_bytes(data, begin, end) ^ folded
        room.words[_U(2 * token + 1)] = some_bytes(data, begin + 8, end)
        room.sizes[_U(token)] = _U(end - begin)
        begin = end + 1


@numba.njit(nogil=True, cache=True)
def _fold_most(data: np.ndarray, begin: Integer, end: Integer) -> tuple[Integer, np.uint64]:
    """Fold eight bytes after eight while more than 15 are left: where those begin, and what the next is to take in."""
    value = _START
    while end - begin > 15:
        value = _fold(value, eight_bytes(data, begin))
        begin += 8
    return begin, value ^ _START


@numba.njit(nogil=True, cache=True)
def shingle_hashes(data: np.ndarray, start: int, end: int, size: int, room: Room, hashes: np.ndarray) -> Integer:
    """Hash the shingles of the text between `start` and `end` to `hashes`; how many those are.

    Fewer tokens than `size` make one shingle, no token makes none. Up to SLACK hashes behind are written over.
    """
    tokens = _token_hashes(data, start, end, room)
    if tokens == 0:
        return 0
    words = room.hashes
    length = min(size, tokens)
    count = tokens - length + 1
    if length == 3:  # the usual size, in one pass
        for index in range(whole_vectors(count)):
            value = (words[_U(index)] * POINT + words[_U(index + 1)]) * POINT + words[_U(index + 2)]
            hashes[_U(index)] = _last_mix(value)
        return count
    for index in range(whole_vectors(count)):
        hashes[_U(index)] = words[_U(index)]
    for follower in range(1, length):
        for index in range(whole_vectors(count)):
            hashes[_U(index)] = hashes[_U(index)] * POINT + words[_U(index + follower)]
    for index in range(whole_vectors(count)):
        hashes[_U(index)] = _last_mix(hashes[_U(index)])
    return count


@numba.njit(nogil=True, cache=True)
def _last_mix(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _U(32))) * _LAST
    return value ^ (value >> _U(29))


@numba.njit(nogil=True, cache=True)
def count_shingles(data: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Where each text's shingles begin, and where the last one's end (int64, shape (n + 1,))."""
    begins = np.zeros(len(offsets), np.int64)
    for text in range(len(offsets) - 1):
        start, end = offsets[text], offsets[text + 1]
        blanks = 0
        for at in range(start, end):
            blanks += data[_U(at)] == 32
        if end > start:
            tokens = blanks + 1 - (data[_U(end - 1)] == 32)  # the kernel below sees no token behind a last space
            begins[text + 1] = begins[text] + max(tokens - size + 1, 1)
        else:
            begins[text + 1] = begins[text]
    return begins


@numba.njit(nogil=True, cache=True)
def hash_shingles(data: np.ndarray, offsets: np.ndarray, size: int, begins: np.ndarray, hashes: np.ndarray) -> None:
    """The shingles of all texts, those of text i from `begins[i]` on."""
    room = room_for(longest(offsets))
    for text in range(len(offsets) - 1):
        shingle_hashes(data, offsets[text], offsets[text + 1], size, room, hashes[begins[text] :])


@numba.njit(nogil=True, cache=True)
def sort_sets(begins: np.ndarray, hashes: np.ndarray, ends: np.ndarray) -> None:
    """Sort each text's shingles in place and remove repeats: the sets are moved to the front, without gaps.

    `ends[i + 1]` becomes where the set of text i ends.
    """
    most = longest(begins)
    starts = np.empty(most + 1, np.int64)
    spread = np.empty(most, np.uint64)
    end = np.int64(0)
    for text in range(len(begins) - 1):
        count = begins[text + 1] - begins[text]
        mine = spread[:count]
        _sort(hashes[begins[text] : begins[text + 1]], starts, mine)
        for index in range(count):
            if index == 0 or mine[index] != mine[index - 1]:
                hashes[_U(end)] = mine[index]
                end += 1
        ends[text + 1] = end


@numba.njit(nogil=True, cache=True)
def _sort(values: np.ndarray, starts: np.ndarray, result: np.ndarray) -> None:
    """Sort hashes: they are uniform, so each is put near its final position, and insertion sort does the rest."""
    count = len(values)
    starts[: count + 1] = 0
    for value in values:
        starts[_U(_bucket(value, count) + 1)] += 1
    largest = np.int64(0)
    for bucket in range(count):
        largest = max(largest, starts[_U(bucket + 1)])
        starts[_U(bucket + 1)] += starts[_U(bucket)]
    if largest > _LARGEST_HEAP:  # one shingle repeated many times
        result[:] = np.sort(values)
        return
    for value in values:
        mine = _U(_bucket(value, count))
        result[_U(starts[mine])] = value
        starts[mine] += 1
    for index in range(1, count):
        value = result[_U(index)]
        hole = index
        while hole > 0 and result[_U(hole - 1)] > value:
            result[_U(hole)] = result[_U(hole - 1)]
            hole -= 1
        result[_U(hole)] = value


@numba.njit(nogil=True, cache=True)
def _bucket(value: np.uint64, count: int) -> np.int64:
    """Which of `count` equal parts of the range of hashes it falls into."""
    return np.int64((value >> _U(32)) * _U(count) >> _U(32))
