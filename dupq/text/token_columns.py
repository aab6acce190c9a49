"""The compiled tokeniser for whole columns: exactly the tokens of `tokens.tokens`, a few hundred times as fast.

Each text is first brought to its normal form (`normal_form_bytes.py`), then cut into tokens (`token_bytes.py`), both on
UTF-8 in place. ASCII, the usual case, takes a fast path. A text whose normal form depends on more than
single characters (see `characters.py`: combining letters that are not composed yet) gets it from
`tokens.normal_form`.
"""

import numpy as np
import pyarrow as pa

from dupq.kernel_cache import Integer, numba
from dupq.text.characters import Characters, characters
from dupq.text.normal_form_bytes import write_normal_form
from dupq.text.strings import Strings, longest, string_array, strings_of
from dupq.text.token_bytes import write_tokens
from dupq.text.tokens import normal_form
from dupq.text.utf8 import write_bytes

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one
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
        length = write_normal_form(read.data, read.offsets[place], read.offsets[place + 1], known, normal)
        if length < 0:
            return place, result
        result = _with_tokens(normal, length, known.kinds, place, ends, result)
    return count, result


@numba.njit(nogil=True, cache=True)
def _tokenise_form(form: np.ndarray, kinds: np.ndarray, text: int, ends: np.ndarray, result: np.ndarray) -> np.ndarray:
    """As `_tokenise` for a single text, of which `form` is the normal form."""
    normal = np.empty(len(form) + _SLACK, np.uint8)
    return _with_tokens(normal, write_bytes(form, 0, len(form), normal, 0), kinds, text, ends, result)


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
    ends[text + 1] = write_tokens(normal, length, kinds, result, end)
    return result


@numba.njit(nogil=True, cache=True)
def _grown(result: np.ndarray, end: Integer, more: Integer) -> np.ndarray:
    larger = np.empty(max(2 * len(result), end + more), np.uint8)
    write_bytes(result, 0, end, larger, 0)
    return larger


@numba.njit(nogil=True, cache=True)
def _write_blanks(normal: np.ndarray, length: Integer) -> None:
    """Write 64 spaces from `length` on."""
    for place in range(64):
        normal[_U(length + place)] = 32
