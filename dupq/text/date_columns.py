"""Compiled masking of dates in whole columns: exactly those of `numbers.mask_numbers`.

A text is represented by the numbers of its words in a table of distinct words (`word_table.py`), so that each distinct
word is classified once.
"""

from collections.abc import Sequence

import numpy as np

from dupq.kernel_cache import numba
from dupq.text.numbers import PATTERNS, VERBS_TOO, roles

_LETTERS = "onymd"  # the roles that the patterns are made of
_YEAR = np.uint8(1 << _LETTERS.index("y"))
_NAME = np.uint8(1 << _LETTERS.index("n"))
_VERB_TOO = np.uint8(1 << len(_LETTERS))
_PATTERNS = np.zeros((len(PATTERNS), max(map(len, PATTERNS))), np.uint8)  # the bit of each role, then zeros
for _row, _pattern in zip(_PATTERNS, PATTERNS, strict=True):
    _row[: len(_pattern)] = [1 << _LETTERS.index(letter) for letter in _pattern]


def role_bits(words: Sequence[str]) -> np.ndarray:
    """What each word can be in a date (uint8): a bit for each role of `numbers.roles`, one more for a verb too."""
    bits = [sum(1 << _LETTERS.index(letter) for letter in roles(word)) for word in words]
    return np.array(bits, np.uint8) | np.array([word in VERBS_TOO for word in words], np.uint8) * _VERB_TOO


@numba.njit(nogil=True, cache=True)
def mask_dates(
    numbers: np.ndarray, begins: np.ndarray, bits: np.ndarray, date: np.int32
) -> tuple[np.ndarray, np.ndarray]:
    """The words with each date as the one word `date`, and where each text's begin.

    The words of text i are `numbers[begins[i]:begins[i + 1]]`; `bits` are the `role_bits` of words by their numbers.
    """
    masked, ends, end = np.empty_like(numbers), np.zeros_like(begins), np.int64(0)
    for text in range(len(begins) - 1):
        place = begins[text]
        while place < begins[text + 1]:
            length = _date_length(numbers, place, begins[text + 1], bits)
            masked[end] = date if length else numbers[place]
            place += max(length, 1)
            end += 1
        ends[text + 1] = end
    return masked[:end], ends


@numba.njit(nogil=True, cache=True)
def _date_length(numbers: np.ndarray, place: int, stop: int, bits: np.ndarray) -> int:
    """How many words from `place` on are one date; 0 if none begins there."""
    if bits[numbers[place]] == 0:
        return 0
    for pattern in range(len(_PATTERNS)):
        length, has_year, has_verb = 0, False, False
        while length < _PATTERNS.shape[1] and _PATTERNS[pattern, length]:
            role = _PATTERNS[pattern, length]
            if place + length >= stop or not bits[numbers[place + length]] & role:
                length = -1
                break
            has_year |= role == _YEAR
            has_verb |= role == _NAME and bits[numbers[place + length]] & _VERB_TOO != 0
            length += 1
        if length > 0 and (has_year or not has_verb):
            return length
    return 0
