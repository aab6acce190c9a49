"""The compiled tokeniser for whole columns: exactly the tokens of `tokens.tokens`, a few hundred times as fast.

Each text is first brought to its normal form, then cut into tokens, both on UTF-8 in place. ASCII, the usual case,
takes a fast path. A text whose form NFKC or lower case depends on more than single characters (see
`characters.py`: combining letters that are not composed yet, final sigmas) gets it from `tokens.normal_form`.
"""

import numpy as np
import pyarrow as pa

from dupq.kernel_cache import Integer, numba
from dupq.text.characters import (
    AFTER_APOSTROPHE,
    ALONE,
    APOSTROPHE,
    BEFORE_SIGMA,
    FIRST,
    FURTHER,
    IN_ADDRESS,
    MARK,
    UNSURE,
    Characters,
    characters,
)
from dupq.text.html import CODE_START, LINK_MARK
from dupq.text.packed_bytes import (
    beyond_ascii_in_64,
    count_bits,
    eight_bytes,
    equal_in_64,
    gather_64,
    highest_bit,
    letters_in_64,
    lower_64,
    lowest_bit,
    store_eight,
    words_in_64,
)
from dupq.text.strings import Strings, longest, string_array, strings_of
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN, normal_form

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
_LINK, _CODE = ord(LINK_MARK), ord(CODE_START)
_LINK_BYTES = np.frombuffer(LINK_MARK.encode(), np.uint8)
_LINK_WORD = np.frombuffer(f"{LINK_TOKEN} ".encode(), np.uint8)
_LINK_TOKEN = np.frombuffer(LINK_TOKEN.encode(), np.uint8)
_PREFIX = np.frombuffer(CODE_PREFIX.encode(), np.uint8)
_QUOTE, _HASH, _PLUS = np.uint8(ord("'")), np.uint8(ord("#")), np.uint8(ord("+"))
_W, _COLON, _SLASH = np.uint8(ord("w")), np.uint8(ord(":")), np.uint8(ord("/"))
_LAST_OF_64 = _U(1) << _U(63)
_LONG_S = 0x17F  # regex takes it for an s where case does not matter
_MOST_ADDED = 6  # bytes a token: a space and CODE_
_SLACK = 160  # bytes behind a text that are read, and written over
_LEAST_ROOM = 1 << 16


def token_texts(texts: pa.StringArray | pa.LargeStringArray) -> pa.Array:
    """The tokens of each text joined by single spaces, "" where there are none; of the type of `texts`.

    An absent text counts as an empty one. Raises ArrowInvalid if the tokens of strings are over 2 GiB together.
    """
    read, known = strings_of(texts), characters()
    ends = np.zeros(len(texts) + 1, np.int64)
    result = np.empty(read.offsets[-1] - read.offsets[0] + _LEAST_ROOM, np.uint8)
    normal = np.empty(longest(read.offsets) * known.growth + _SLACK, np.uint8)
    text, result = _tokenise(read, known, 0, normal, ends, result)
    while text < len(texts):  # it takes the slow way
        form = np.frombuffer(normal_form(texts[text].as_py()).encode(), np.uint8)
        result = _tokenise_form(form, known.kinds, text, ends, result)
        text, result = _tokenise(read, known, text + 1, normal, ends, result)
    return string_array(Strings(ends, result[: ends[-1]]), texts.type)


@numba.njit(nogil=True, cache=True)
def _tokenise(
    read: Strings, known: Characters, text: int, normal: np.ndarray, ends: np.ndarray, result: np.ndarray
) -> tuple[int, np.ndarray]:
    """Append the tokens of the texts from `text` on to `result`, and where those of text i end to `ends[i + 1]`.

    Returns the first text that takes the slow way, or the number of texts; and `result`, which may have grown.
    """
    count = len(read.offsets) - 1
    for place in range(text, count):
        length = _normal_form(read.data, read.offsets[place], read.offsets[place + 1], known, normal)
        if length < 0:
            return place, result
        result = _with_tokens(normal, length, known.kinds, place, ends, result)
    return count, result


@numba.njit(nogil=True, cache=True)
def _tokenise_form(form: np.ndarray, kinds: np.ndarray, text: int, ends: np.ndarray, result: np.ndarray) -> np.ndarray:
    """As `_tokenise` for a single text, of which `form` is the normal form."""
    normal = np.empty(len(form) + _SLACK, np.uint8)
    return _with_tokens(normal, _write(form, 0, len(form), normal, 0), kinds, text, ends, result)


@numba.njit(nogil=True, cache=True)
def _with_tokens(
    normal: np.ndarray, length: Integer, kinds: np.ndarray, text: int, ends: np.ndarray, result: np.ndarray
) -> np.ndarray:
    """`result` with the tokens of `normal[:length]`, the normal form of `text`."""
    end = ends[text]
    most = length * (1 + _MOST_ADDED) + _SLACK
    if end + most > len(result):
        result = _grown(result, end, most)
    _write_blanks(normal, length)
    ends[text + 1] = _write_tokens(normal, length, kinds, result, end)
    return result


@numba.njit(nogil=True, cache=True)
def _grown(result: np.ndarray, end: Integer, more: Integer) -> np.ndarray:
    larger = np.empty(max(2 * len(result), end + more), np.uint8)
    _write(result, 0, end, larger, 0)
    return larger


@numba.njit(nogil=True, cache=True)
def _write_blanks(normal: np.ndarray, length: Integer) -> None:
    """Write 64 spaces from `length` on."""
    for place in range(64):
        normal[_U(length + place)] = 32


# The normal form: addresses become LINK_MARK, then NFKC and lower case


@numba.njit(nogil=True, cache=True)
def _normal_form(data: np.ndarray, start: Integer, end: Integer, known: Characters, normal: np.ndarray) -> Integer:
    """Write the text's normal form to `normal`; its length, or -1 if it takes the slow way."""
    is_ascii = _write_lower(data, start, end, normal, 0)
    if _may_have_address(normal, end - start) and _has_address(data, start, end):
        return _without_addresses(data, start, end, known, normal)
    if is_ascii or _are_normal(data, start, end, known.forms):
        return end - start
    return _normal_characters(data, start, end, known, normal, np.int64(0))


@numba.njit(nogil=True, cache=True)
def _are_normal(data: np.ndarray, at: Integer, end: Integer, forms: np.ndarray) -> bool:
    """Whether all characters beyond ASCII are their own forms, so that nothing but the case of ASCII may change."""
    while True:
        at = _ascii_end(data, at, end)
        if at == end:
            return True
        code, size = _decode(data, at, end)
        if size == 0 or forms[_U(code)] != 0:
            return False
        at += size


@numba.njit(nogil=True, cache=True)
def _may_have_address(normal: np.ndarray, length: Integer) -> bool:
    """Whether there is a :/ or ww; behind `normal[:length]` is room."""
    found = _U(0)
    for chunk in range(0, length, 64):
        found |= equal_in_64(normal, chunk, _W) & equal_in_64(normal, chunk + 1, _W)
        found |= equal_in_64(normal, chunk, _COLON) & equal_in_64(normal, chunk + 1, _SLASH)
    return found != 0


@numba.njit(nogil=True, cache=True)
def _has_address(data: np.ndarray, start: Integer, end: Integer) -> bool:
    """Whether :// or www. is in the text, which `tokens` checks first."""
    for at in range(start, end - 2):
        byte = data[_U(at)]
        if byte == 58 and data[_U(at + 1)] == 47 and data[_U(at + 2)] == 47:
            return True
        is_www = byte == 119 and data[_U(at + 1)] == 119 and data[_U(at + 2)] == 119
        if is_www and at + 3 < end and data[_U(at + 3)] == 46:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def _without_addresses(
    data: np.ndarray, start: Integer, end: Integer, known: Characters, normal: np.ndarray
) -> Integer:
    """As `_normal_form`, with LINK_MARK for each web address. It is no mark, has no case, and composes with nothing."""
    length: Integer = np.int64(0)
    at = begin = start
    while at < end:
        after = _address_end(data, at, end, known.kinds) if _may_begin_address(data[_U(at)]) else at
        if after > at:
            length = _normal_characters(data, begin, at, known, normal, length)
            if length < 0:
                return -1
            length = _write(_LINK_BYTES, 0, 3, normal, length)
            at = begin = after
        else:
            at += 1
    return _normal_characters(data, begin, end, known, normal, length)


@numba.njit(nogil=True, cache=True)
def _normal_characters(
    data: np.ndarray, at: Integer, end: Integer, known: Characters, normal: np.ndarray, length: Integer
) -> Integer:
    """Append the normal form of a stretch to `normal`, which has `length`; its new length, or -1 for the slow way."""
    last_class = np.uint8(0)
    while at < end:
        if data[_U(at)] < 128:
            after = _ascii_end(data, at, end)
            _write_lower(data, at, after, normal, length)
            length += after - at
            at = after
            last_class = np.uint8(0)
            continue
        code, size = _decode(data, at, end)
        if size == 0:
            return -1
        form = known.forms[_U(code)]
        if form == 0:
            length = _write_character(data, at, size, normal, length)
            last_class = np.uint8(0)
        else:
            first_class = known.first_class[form]
            is_disordered = first_class != 0 and first_class < last_class
            if first_class == UNSURE or is_disordered:
                return -1
            if known.is_sigma[form] and length > 0 and not known.kinds[normal[_U(length - 1)]] & BEFORE_SIGMA:
                return -1
            length = _write(known.text, known.starts[form], known.starts[form + 1], normal, length)
            last_class = known.last_class[form]
        at += size
    return length


@numba.njit(nogil=True, cache=True)
def _ascii_end(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """Where the run of ASCII ends that begins at `at`."""
    while at < end and at + 64 <= len(data):
        others = beyond_ascii_in_64(data, at)
        if others:
            return min(at + lowest_bit(others), end)
        at += 64
    while at < end and data[_U(at)] < 128:
        at += 1
    return min(at, end)


@numba.njit(nogil=True, cache=True)
def _write_lower(data: np.ndarray, start: Integer, end: Integer, normal: np.ndarray, length: Integer) -> bool:
    """Write the bytes to `normal` from `length` on, ASCII in lower case; whether all are ASCII.

    Up to 63 bytes behind them are written over.
    """
    at, others = start, _U(0)
    while at < end and at + 64 <= len(data):
        lower_64(data, at, normal, length + at - start)
        others |= beyond_ascii_in_64(data, at) & _first(end - at)
        at += 64
    for place in range(at, end):  # at the end of the column
        byte = data[_U(place)]
        is_capital = np.uint8(byte - np.uint8(65)) < np.uint8(26)
        normal[_U(length + place - start)] = byte | np.uint8(np.uint8(is_capital) << np.uint8(5))
        others |= _U(byte >> np.uint8(7))
    return others == 0


@numba.njit(nogil=True, cache=True)
def _first(count: Integer) -> np.uint64:
    """The mask of the first `count` bytes of 64, 1 or more."""
    return ~_U(0) >> _U(max(64 - count, 0))


@numba.njit(nogil=True, cache=True)
def _write(source: np.ndarray, start: Integer, end: Integer, target: np.ndarray, length: Integer) -> Integer:
    """Append bytes to `target`, which has `length`; its new length."""
    for place in range(end - start):
        target[_U(length + place)] = source[_U(start + place)]
    return length + end - start


@numba.njit(nogil=True, cache=True)
def _write_character(source: np.ndarray, at: Integer, size: Integer, target: np.ndarray, length: Integer) -> Integer:
    """As `_write` for one character, of one to four bytes: no loop that is made ready for more."""
    target[_U(length)] = source[_U(at)]
    if size > 1:
        target[_U(length + 1)] = source[_U(at + 1)]
    if size > 2:
        target[_U(length + 2)] = source[_U(at + 2)]
    if size > 3:
        target[_U(length + 3)] = source[_U(at + 3)]
    return length + size


@numba.njit(nogil=True, cache=True)
def _may_begin_address(byte: np.uint8) -> bool:
    letter = byte | 32
    return letter == 104 or letter == 102 or letter == 119  # h, f, w


@numba.njit(nogil=True, cache=True)
def _address_end(data: np.ndarray, start: Integer, end: Integer, kinds: np.ndarray) -> Integer:
    """Where the web address that begins at `start` ends; `start` if none does."""
    at = _scheme_end(data, start, end)
    first = at
    while start < at < end:
        code, size = _decode(data, at, end)
        if size == 0 or not kinds[_U(code)] & IN_ADDRESS:
            break
        at += size
    return at if at > first else start


@numba.njit(nogil=True, cache=True)
def _scheme_end(data: np.ndarray, start: Integer, end: Integer) -> Integer:
    """Where http://, https://, ftp:// or www. ends, in whatever case; `start` if it is not there."""
    first = _letter(data, start, end)
    second, third = _letter(data, start + 1, end), _letter(data, start + 2, end)
    if first == 119:  # www.
        is_there = second == 119 and third == 119 and _letter(data, start + 3, end) == 46
        return start + 4 if is_there else start
    if first == 102 and second == 116 and third == 112:  # ftp
        return _colon_end(data, start, start + 3, end)
    if first == 104 and second == 116 and third == 116 and _letter(data, start + 3, end) == 112:  # http
        after = start + 4
        if _letter(data, after, end) == 115:
            after += 1
        elif after < end:
            code, size = _decode(data, after, end)
            after += size if code == _LONG_S else 0
        return _colon_end(data, start, after, end)
    return start


@numba.njit(nogil=True, cache=True)
def _letter(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The byte at `at` in lower case; 0 behind the end."""
    if at >= end:
        return 0
    byte = np.int64(data[_U(at)])
    return byte | 32 if 65 <= byte <= 90 else byte


@numba.njit(nogil=True, cache=True)
def _colon_end(data: np.ndarray, start: Integer, at: Integer, end: Integer) -> Integer:
    is_there = at + 3 <= end and data[_U(at)] == 58 and data[_U(at + 1)] == 47 and data[_U(at + 2)] == 47
    return at + 3 if is_there else start


@numba.njit(nogil=True, cache=True)
def _decode(data: np.ndarray, at: Integer, end: Integer) -> tuple[Integer, int]:
    """The code point at `at` and its number of bytes, 0 where there is no valid UTF-8."""
    lead = np.int64(data[_U(at)])
    if lead < 0x80:
        return lead, 1
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if size == 0 or at + size > end:
        return np.int64(0), 0
    code = lead & (0x7F >> size)
    for place in range(1, size):
        byte = np.int64(data[_U(at + place)])
        if byte & 0xC0 != 0x80:
            return np.int64(0), 0
        code = code << 6 | (byte & 63)
    is_surrogate = 0xD800 <= code < 0xE000
    is_too_long = (size == 3 and code < 0x800) or (size == 4 and code < 0x10000)
    if is_surrogate or is_too_long or code > 0x10FFFF:
        return np.int64(0), 0
    return code, size


# Tokens of the normal form


@numba.njit(nogil=True, cache=True)
def _write_tokens(normal: np.ndarray, length: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer) -> Integer:
    """Append the tokens of `normal[:length]`, with spaces between, to `result` from `end` on; where they end.

    64 spaces follow `normal[:length]`, and there is room for 64 bytes after what is written.
    """
    begin, at, is_code = end, np.int64(0), False
    while at < length:
        if not is_code:
            at, end = _write_plain_words(normal, at, length, kinds, result, end)  # type: ignore[assignment]
        if at < length:
            at, end, is_code = _write_some_tokens(normal, at, kinds, is_code, result, end)  # type: ignore[assignment]
    return end - 1 if end > begin else end


@numba.njit(nogil=True, cache=True)
def _write_plain_words(
    normal: np.ndarray, at: Integer, length: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append words of ASCII and links, each with a space behind it, from `at` on, as long as it can.

    A token may begin at `at`. Returns where the words end and another token may begin, and where `result` ends. Takes
    64 bytes at a time, through the middle of words, so that no step waits for the one before; falls back to whole
    words where a token may need more than its bytes in their order.
    """
    begin, carry = end, _U(0)  # the latter: a word that is not complete precedes `at`
    while at < length or carry:
        parts, unsure, edge = _parts_of_words(normal, at, carry)
        size, inside, width = 64, ~_U(0), 0
        if unsure | edge:
            size = lowest_bit(unsure)
            width = _width_between(normal, at + size, kinds) if unsure else 0
            if width == 0:
                if carry:
                    at, end, carry = _without_last_word(at, result, begin, end)
                    parts, unsure, edge = _parts_of_words(normal, at, carry)
                size = _sure_size(normal, at, parts, unsure)
                if size == 0:
                    break
            inside = (_U(2) << _U(size - (width == 0))) - _U(1)
        blanks = (parts << _U(1) | carry) & ~parts
        chosen = (parts | blanks) & inside
        gather_64(normal, at, chosen, blanks, result, end)
        end += count_bits(chosen)
        at += size
        carry = parts >> _U(63) if size == 64 else _U(0)
        if width:
            if normal[_U(at)] == _LINK_BYTES[0] and _character(normal, at)[0] == _LINK:
                end = _write(_LINK_WORD, 0, 5, result, end)
            at += width
    return at, end


@numba.njit(nogil=True, cache=True)
def _width_between(normal: np.ndarray, at: Integer, kinds: np.ndarray) -> int:
    """The bytes of the character at `at` if it is beyond ASCII and ends words, but does not tell code; else 0."""
    if normal[_U(at)] < 128:
        return 0
    code, size = _character(normal, at)
    is_between = code == _LINK or not kinds[_U(code)] & (FIRST | FURTHER | AFTER_APOSTROPHE | APOSTROPHE | ALONE | MARK)
    return size if is_between else 0


@numba.njit(nogil=True, cache=True)
def _parts_of_words(normal: np.ndarray, at: Integer, carry: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Which of the 64 bytes from `at` on belong to words; `carry` is 1 if the byte before them does, else 0.

    Then those before which that is not sure or not enough: characters beyond ASCII, and what follows a token at once
    ("c++11", "don't2"), since the space between takes a byte more. And whether the next 64 bytes matter to the last.
    """
    letters, words, others = letters_in_64(normal, at), words_in_64(normal, at), beyond_ascii_in_64(normal, at)
    hashes, pluses = equal_in_64(normal, at, _HASH), equal_in_64(normal, at, _PLUS)
    quotes = equal_in_64(normal, at, _QUOTE)
    edge = (hashes | quotes | pluses) >> _U(63)
    before = words << _U(1) | carry
    inner = quotes & before & letters >> _U(1)
    pluses &= before & pluses >> _U(1)  # the first of two
    hashes &= before
    tails = letters + (inner << _U(1))  # the carry runs through the letters behind an apostrophe
    edge |= tails < letters
    unsure = others | words & (tails & ~letters | hashes << _U(1) | pluses << _U(2))
    return words | inner | hashes | pluses | pluses << _U(1), unsure, edge


@numba.njit(nogil=True, cache=True)
def _sure_size(normal: np.ndarray, at: Integer, parts: np.uint64, unsure: np.uint64) -> int:
    """How many of the 64 bytes are whole words, up to and with a byte that belongs to none."""
    quotes = equal_in_64(normal, at, _QUOTE) & unsure >> _U(1)  # what follows may belong to the word
    outside = ~(parts | quotes | _LAST_OF_64) & (unsure - _U(1)) & ~unsure
    return highest_bit(outside) + 1


@numba.njit(nogil=True, cache=True)
def _without_last_word(
    at: Integer, result: np.ndarray, begin: Integer, end: Integer
) -> tuple[Integer, Integer, np.uint64]:
    """Takes what is there of the last word out of `result[begin:end]`; and the carry that is left, which is none."""
    while end > begin and result[_U(end - 1)] != 32:
        at, end = at - 1, end - 1
    return at, end, _U(0)


@numba.njit(nogil=True, cache=True)
def _write_some_tokens(
    normal: np.ndarray, chunk: Integer, kinds: np.ndarray, is_code: bool, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer, bool]:
    """Append whatever tokens begin in the 64 bytes from `chunk` on, where one may, each with a space behind it.

    Returns where the next may begin, where `result` ends, and whether the next is code. Walks from one byte that may
    begin a token to the next: the first ASCII letter, digit or underscore of a run, and whatever is not ASCII.
    """
    at = chunk
    letters, others = words_in_64(normal, chunk), beyond_ascii_in_64(normal, chunk)
    closing = others | equal_in_64(normal, chunk, _QUOTE) | equal_in_64(normal, chunk, _HASH)
    closing |= equal_in_64(normal, chunk, _PLUS)  # these may belong to the word in front of them
    starts = letters & ~(letters << _U(1)) | others
    while starts:
        place = lowest_bit(starts)
        starts &= starts - _U(1)
        at = chunk + place
        if others >> _U(place) & _U(1):
            code, size = _character(normal, at)
            kind = kinds[_U(code)]
            if not kind & (FIRST | ALONE | MARK) or (kind & MARK and code != _LINK):
                is_code = code == _CODE if kind & MARK else is_code
                at += size
                starts = _from(starts, at - chunk, letters)
                continue
            if is_code and code != _LINK:
                end = _write(_PREFIX, 0, 5, result, end)
            at, end = _write_other(normal, at, kinds, result, end)
            starts = _from(starts, at - chunk, letters)
        else:
            if is_code:
                end = _write(_PREFIX, 0, 5, result, end)
            size = lowest_bit(~(letters >> _U(place)))
            at, end = _write_word(normal, at, size, result, end)
            place += size
            if place >= 64 or closing >> _U(place) & _U(1):
                at, end = _write_rest(normal, at, kinds, result, end)
                starts = _from(starts, at - chunk, letters)
        result[_U(end)] = 32
        end += 1
    return max(at, chunk + 64), end, is_code


@numba.njit(nogil=True, cache=True)
def _from(starts: np.uint64, place: Integer, letters: np.uint64) -> np.uint64:
    """The starts from `place` on, where the last token ended. A letter there begins the next one."""
    if place > 63:
        return _U(0)
    return (starts >> _U(place) << _U(place)) | (letters & (_U(1) << _U(place)))


@numba.njit(nogil=True, cache=True)
def _write_word(
    normal: np.ndarray, at: Integer, size: Integer, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append `size` bytes: at least 16 are written over, so that most words take no branch."""
    store_eight(result, end, eight_bytes(normal, at))
    store_eight(result, end + 8, eight_bytes(normal, at + 8))
    for place in range(16, size, 8):
        store_eight(result, end + place, eight_bytes(normal, at + place))
    return at + size, end + size


@numba.njit(nogil=True, cache=True)
def _write_other(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the token that begins at `at` with a character beyond ASCII; where it ends in `normal` and `result`."""
    code, size = _character(normal, at)
    if code == _LINK:
        return at + size, _write(_LINK_TOKEN, 0, 4, result, end)
    end = _write_character(normal, at, size, result, end)
    if kinds[_U(code)] & ALONE:
        return at + size, end
    return _write_rest(normal, at + size, kinds, result, end)


@numba.njit(nogil=True, cache=True)
def _write_rest(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append what belongs to a word behind its first letters: further ones, 's, ++, #."""
    at, end = _write_run(normal, at, kinds, FURTHER, result, end)
    while True:
        code, size = _character(normal, at)
        if not kinds[_U(code)] & APOSTROPHE:
            break
        begin = at + size
        after, written = _write_run(normal, begin, kinds, AFTER_APOSTROPHE, result, end + size)
        if after == begin:
            break
        _write_character(normal, at, size, result, end)
        at, end = after, written
    suffix = 1 if normal[_U(at)] == 35 else 2 if normal[_U(at)] == 43 and normal[_U(at + 1)] == 43 else 0  # C#, C++
    return at + suffix, _write(normal, at, at + suffix, result, end)


@numba.njit(nogil=True, cache=True)
def _write_run(
    normal: np.ndarray, at: Integer, kinds: np.ndarray, wanted: int, result: np.ndarray, end: Integer
) -> tuple[Integer, Integer]:
    """Append the run of characters that are `wanted` from `at` on."""
    while True:
        code, size = _character(normal, at)
        if not kinds[_U(code)] & wanted:
            return at, end
        end = _write_character(normal, at, size, result, end)
        at += size


@numba.njit(nogil=True, cache=True)
def _character(normal: np.ndarray, at: Integer) -> tuple[Integer, int]:
    """The code point at `at` of valid UTF-8, and its number of bytes."""
    lead = np.int64(normal[_U(at)])
    if lead < 0x80:
        return lead, 1
    return _beyond_ascii(normal, at, lead)


@numba.njit(nogil=True, cache=True)
def _beyond_ascii(normal: np.ndarray, at: Integer, lead: Integer) -> tuple[Integer, int]:
    second = np.int64(normal[_U(at + 1)]) & 63
    if lead < 0xE0:
        return (lead & 31) << 6 | second, 2
    third = np.int64(normal[_U(at + 2)]) & 63
    if lead < 0xF0:
        return (lead & 15) << 12 | second << 6 | third, 3
    return (lead & 7) << 18 | second << 12 | third << 6 | np.int64(normal[_U(at + 3)]) & 63, 4
