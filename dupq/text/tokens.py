"""The tokeniser, for one text; every part of dupq uses these tokens.

Text is brought to Unicode form NFKC without case, as a reader sees it: characters that nobody sees are left out, and
all apostrophes are straight. A token is a run of letters, digits, marks and underscores, with an inner apostrophe
("don't") and a closing ++ or # ("c++", "c#"). Scripts that put no space between words are cut by ICU's dictionaries
first. The tokens LINK and CODE_… have capitals, which no other token has.

This is the plain definition; `token_columns.py` does the same for whole columns, compiled. Some papers keep
punctuation: `punctuation.py`.
"""

import unicodedata
from collections.abc import Callable

import regex

from dupq.text.html import CODE_END, CODE_START, LINK_MARK

LINK_TOKEN = "LINK"
CODE_PREFIX = "CODE_"
_MARKS = frozenset((LINK_MARK, CODE_START, CODE_END))

IN_ADDRESS = r"[^\s<>\"]"
_ADDRESS = regex.compile(rf"(?:https?|ftp)://{IN_ADDRESS}+|www\.{IN_ADDRESS}+", regex.IGNORECASE)
# scripts without spaces between words; ー belongs to Hiragana and Katakana, and by Unicode to no script
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
# the first test is ten times as fast, and fails for most characters
_UNSPACED_RUN = regex.compile(rf"(?=[\u0e00-\u1fff\u2e80-\U0010ffff])({UNSPACED}+)")
FIRST, FURTHER = r"[\p{L}\p{N}_]", r"[\p{L}\p{M}\p{N}_]"
APOSTROPHE, AFTER_APOSTROPHE = "'", r"[\p{L}\p{M}]"
_TOKEN = regex.compile(
    rf"{LINK_MARK}|{CODE_START}|{CODE_END}"
    rf"|{FIRST}{FURTHER}*(?:{APOSTROPHE}{AFTER_APOSTROPHE}+)*(?:\+\+|\#)?"
)
_UNSEEN = regex.compile(r"\p{Default_Ignorable_Code_Point}")  # soft hyphens, joiners, marks of direction and variation
# Of the letters i of Turkish there is one: which of them a capital or a word without accents means, nobody can tell.
_AS_READ = list(zip("‘’‛ʼ′ıİ", "'''''iI", strict=True))


def tokens(text: str) -> list[str]:
    """The tokens of a text. Web addresses and link marks give LINK; words between code marks get CODE_ in front."""
    found = _TOKEN.findall(normal_form(text))
    if CODE_START in found:
        return with_marks_named(found, str)
    return [LINK_TOKEN if token == LINK_MARK else token for token in found if token != CODE_END]


def normal_form(text: str) -> str:
    """What is cut into tokens: the written form without case (the Greek final sigma is a sigma, ß is ss)."""
    return written_form(text).casefold()


def written_form(text: str) -> str:
    """NFKC as it is read, in the case that is written, with a link mark for each web address."""
    if "://" in text or "www." in text:
        text = _ADDRESS.sub(LINK_MARK, text)
    return _spaced(as_read(text))


def as_read(text: str) -> str:
    """NFKC without what nobody sees, with straight apostrophes."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    for written, read in _AS_READ:  # ten times as fast as str.translate
        text = text.replace(written, read)
    return _UNSEEN.sub("", text)


def _spaced(text: str) -> str:
    """The text with spaces around each word of the scripts that write none."""
    pieces = _UNSPACED_RUN.split(text)  # every second one is a run
    if len(pieces) > 1:
        from icu4py.breakers import WordBreaker  # 40 MB of dictionaries, which few archives need

        # one call a text, as each takes 10 µs; the rules are the same in every locale, and a word ends with its line
        pieces[1::2] = " ".join(WordBreaker("\n".join(pieces[1::2]), "en")).split("\n")
    return " ".join(pieces)


def with_marks_named(found: list[str], plain: Callable[[str], str]) -> list[str]:
    """Marks as their tokens: LINK, and CODE_ in front of code, without case; other tokens as `plain` makes them."""
    result = []
    in_code = False
    for token in found:
        if token in _MARKS:
            if token == LINK_MARK:
                result.append(LINK_TOKEN)
            else:
                in_code = token == CODE_START
        else:
            result.append(CODE_PREFIX + token.casefold() if in_code else plain(token))
    return result
