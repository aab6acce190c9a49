"""Replacing dates by the token `date` and numbers by the token `num` (Othman et al. 2021, section 3.1).

The tokeniser has already dropped punctuation, so "12/05/2014" is three tokens. A date is a year, a month and a day
in any of the usual orders, the month as a number or by its English or Arabic name, or a named month with a day or a
year. A year has four digits, 1900 to 2099. A date with two digits for the year is not distinguished from other
numbers.
"""

from collections.abc import Sequence

DATE_TOKEN = "date"
NUMBER_TOKEN = "num"

_ENGLISH = (
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
_ARABIC = (
    "يناير فبراير مارس أبريل ابريل إبريل مايو يونيو يونيه يوليو يوليه أغسطس اغسطس سبتمبر أكتوبر اكتوبر نوفمبر ديسمبر "
    "شباط آذار نيسان أيار حزيران تموز آب أيلول"
)
_MONTHS = frozenset(f"{_ENGLISH} {_ARABIC}".split())
VERBS_TOO = frozenset({"may", "march", "mar"})  # a month only beside a year, or beside both day and year
_ORDINALS = ("st", "nd", "rd", "th")
# d: day, m: month as a number, n: month by name, y: year, o: "of"; the longest first
PATTERNS = ("dony", "dny", "ndy", "ynd", "ymd", "dmy", "mdy", "don", "ny", "yn", "dn", "nd")


def mask_numbers(tokens: Sequence[str], dates: bool, digits: bool) -> list[str]:
    """`tokens` with each date as one `date` and each token of digits as one `num`, if these are wanted."""
    result, place = [], 0
    while place < len(tokens):
        length = _date_length(tokens, place) if dates else 0
        if length:
            result.append(DATE_TOKEN)
            place += length
            continue
        token = tokens[place]
        result.append(NUMBER_TOKEN if digits and token.isdecimal() else token)
        place += 1
    return result


def _date_length(tokens: Sequence[str], place: int) -> int:
    """How many tokens from `place` on are one date; 0 if none begins there."""
    first = tokens[place]
    if first not in _MONTHS and not first[:1].isdecimal():
        return 0
    found = [roles(token) for token in tokens[place : place + 4]]
    for pattern in PATTERNS:
        if len(pattern) <= len(found) and all(role in found[at] for at, role in enumerate(pattern)):
            named = [tokens[place + at] for at, role in enumerate(pattern) if role == "n"]
            if "y" in pattern or not VERBS_TOO.intersection(named):
                return len(pattern)
    return 0


def roles(token: str) -> str:
    """What a token can be in a date, as the letters of the patterns."""
    if token in _MONTHS:
        return "n"
    if token == "of":
        return "o"
    digits = token[:-2] if token.endswith(_ORDINALS) else token
    if not digits.isdecimal() or len(digits) not in (1, 2, 4):
        return ""
    number = int(digits)
    if len(token) == 4 and 1900 <= number <= 2099:
        return "y"
    if len(digits) > 2 or not 1 <= number <= 31:
        return ""
    return "dm" if number <= 12 and digits == token else "d"
