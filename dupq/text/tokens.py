"""The tokeniser, for one text; every part of dupq uses these tokens.

Text is brought to Unicode form NFKC and lower case. A token is a run of letters, digits, marks and
underscores, with an inner apostrophe ("don't") and a closing ++ or # ("c++", "c#"). Scripts that put no space between
words are cut by ICU's dictionaries first. The tokens LINK and CODE_… have capitals, which no other token has.

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
_UNSPACED_RUN = regex.compile(f"({UNSPACED}+)")
FIRST, FURTHER = r"[\p{L}\p{N}_]", r"[\p{L}\p{M}\p{N}_]"
APOSTROPHE, AFTER_APOSTROPHE = "['’]", r"[\p{L}\p{M}]"
_TOKEN = regex.compile(
    rf"{LINK_MARK}|{CODE_START}|{CODE_END}"
    rf"|{FIRST}{FURTHER}*(?:{APOSTROPHE}{AFTER_APOSTROPHE}+)*(?:\+\+|\#)?"
)


def tokens(text: str) -> list[str]:
    """The tokens of a text. Web addresses and link marks give LINK; words between code marks get CODE_ in front."""
    found = _TOKEN.findall(normal_form(text))
    if CODE_START in found:
        return with_marks_named(found, str)
    return [LINK_TOKEN if token == LINK_MARK else token for token in found if token != CODE_END]


def normal_form(text: str) -> str:
    """What is cut into tokens: NFKC in lower case, a link mark for each web address, spaces between all words."""
    return written_form(text).lower()


def written_form(text: str) -> str:
    """The normal form in the case that is written."""
    if "://" in text or "www." in text:
        text = _ADDRESS.sub(LINK_MARK, text)
    return _spaced(unicodedata.normalize("NFKC", text))


def _spaced(text: str) -> str:
    """The text with spaces around each word of the scripts that write none."""
    pieces = _UNSPACED_RUN.split(text)  # every second one is a run
    if len(pieces) > 1:
        from icu4py.breakers import WordBreaker  # 40 MB of dictionaries, which few archives need

        # one call a text, as each takes 10 µs; the rules are the same in every locale, and a word ends with its line
        pieces[1::2] = " ".join(WordBreaker("\n".join(pieces[1::2]), "en")).split("\n")
    return " ".join(pieces)


def with_marks_named(found: list[str], plain: Callable[[str], str]) -> list[str]:
    """Marks as their tokens: LINK, and CODE_ in front of code, in lower case; other tokens as `plain` makes them."""
    result = []
    in_code = False
    for token in found:
        if token in _MARKS:
            if token == LINK_MARK:
                result.append(LINK_TOKEN)
            else:
                in_code = token == CODE_START
        else:
            result.append(CODE_PREFIX + token.lower() if in_code else plain(token))
    return result
