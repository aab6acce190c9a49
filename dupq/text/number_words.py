"""The numbers of a title: those in digits, those in words, and months."""

import re

_DIGIT = re.compile(r"[0-9]")
_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
# what else is a number in a title: "one" and "second" are more often no numbers, "may" and "march" are verbs too
_NUMBERS = {
    **{month: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    **{month[:3]: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    "sept": "month 9",
    **{word: str(number) for number, word in enumerate(_WORDS) if number != 1},
    **{word: str(number) for number, word in enumerate(_ORDINALS, 1) if number != 2},
    **{name: str(number) for number, name in ((2, "ii"), (3, "iii"), (4, "iv"))},
}


def numbers_in(words: str) -> set[str]:
    """The numbers of a title's tokens: words with a digit, number words, months."""
    found = words.split(" ")
    return {word for word in found if _DIGIT.search(word)} | {_NUMBERS[word] for word in found if word in _NUMBERS}
