"""Normalising Arabic spelling (Othman et al. 2021, section 3.1): diacritics, elongation, letter forms."""

import regex

_DIACRITICS = regex.compile(r"[\u0610-\u061A\u064B-\u065F\u0670\u06D6-\u06DC\u06DF-\u06E8\u06EA-\u06ED]")
_STRETCHING = "\u0640"  # tatweel
# The letters that are written for one another, as in Larkey, Ballesteros and Connell (SIGIR 2002): every alef without
# hamza or madda, final yeh with dots, teh marbuta as heh; and the Persian keyboard's kaf and yeh as the Arabic ones.
_LETTERS = str.maketrans("أإآٱىةکی", "اااايهكي")


def without_diacritics(word: str) -> str:
    """`word` without vowel signs, doubling and the other marks over and under letters."""
    return _DIACRITICS.sub("", word)


def without_stretching(word: str) -> str:
    """`word` without the strokes that only make it longer."""
    return word.replace(_STRETCHING, "")


def with_plain_letters(word: str) -> str:
    """`word` with one form for the letters that writers do not tell apart."""
    return word.translate(_LETTERS)


def bare(word: str) -> str:
    """`word` without diacritics and stretching: how dictionaries spell it."""
    return word if word.isascii() else without_stretching(without_diacritics(word))


def normalised(word: str) -> str:
    """All three steps; what is not Arabic stays as it is."""
    return word if word.isascii() else with_plain_letters(bare(word))
