"""Compiled reading of integers and dates in plain rows, of those that are written in the usual way."""

import numpy as np

from dupq.kernel_cache import Integer, numba

_U = np.uint64  # an unsigned index spares the kernels the check for a negative one


@numba.njit(nogil=True, cache=True)
def integer(data: np.ndarray, start: Integer, end: Integer) -> tuple[Integer, bool]:
    """The number between `start` and `end`, written in the one usual way."""
    is_negative = data[_U(start)] == 45
    first = start + is_negative
    if end == first or end - first > 18 or (data[_U(first)] == 48 and end - start > 1):
        return 0, False
    number = np.int64(0)
    for at in range(first, end):
        if not 48 <= data[_U(at)] <= 57:
            return 0, False
        number = number * 10 + np.int64(data[_U(at)]) - 48
    return -number if is_negative else number, True


@numba.njit(nogil=True, cache=True)
def _digits(data: np.ndarray, start: Integer, count: int) -> Integer:
    """The number in `count` digits; -1 if one of them is no digit."""
    number = np.int64(0)
    for at in range(start, start + count):
        if not 48 <= data[_U(at)] <= 57:
            return -1
        number = number * 10 + np.int64(data[_U(at)]) - 48
    return number


@numba.njit(nogil=True, cache=True)
def date(data: np.ndarray, start: Integer, end: Integer) -> tuple[Integer, bool]:
    """The milliseconds since 1970 of `2012-03-06T19:06:05` or `2012-03-06T19:06:05.667`, in UTC."""
    if end - start != 19 and end - start != 23:
        return 0, False
    has_marks = (
        data[_U(start + 4)] == 45
        and data[_U(start + 7)] == 45
        and data[_U(start + 10)] == 84
        and data[_U(start + 13)] == 58
        and data[_U(start + 16)] == 58
    )
    year, month, day = _digits(data, start, 4), _digits(data, start + 5, 2), _digits(data, start + 8, 2)
    hour, minute, second = _digits(data, start + 11, 2), _digits(data, start + 14, 2), _digits(data, start + 17, 2)
    fraction: Integer = 0
    if end - start == 23:
        has_marks = has_marks and data[_U(start + 19)] == 46
        fraction = _digits(data, start + 20, 3)
    if not has_marks or year < 1 or not 1 <= month <= 12 or fraction < 0:
        return 0, False
    if not 1 <= day <= _month_length(year, month) or not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60:
        return 0, False
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 1000 + fraction, True


@numba.njit(nogil=True, cache=True)
def _month_length(year: Integer, month: Integer) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@numba.njit(nogil=True, cache=True)
def _days(year: Integer, month: Integer, day: Integer) -> Integer:
    """Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March."""
    shifted = year - (month <= 2)
    since_march = (month + 9) % 12
    return 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + (153 * since_march + 2) // 5 + day - 719469
