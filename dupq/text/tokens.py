"""The one tokeniser of the project.

Text is brought to Unicode form NFKC and lower case. A token is a run of letters, digits, marks and
underscores, with an inner apostrophe ("don't") and a closing ++ or # ("c++", "c#"); each Han, Hiragana or
Katakana character is a token of its own. The tokens LINK and CODE_… have capitals, which no other token has.
"""

import unicodedata

import regex

from dupq.text.html import CODE_END, CODE_START, LINK_MARK

LINK_TOKEN = "LINK"
CODE_PREFIX = "CODE_"

_URL = regex.compile(r"(?:https?|ftp)://[^\s<>\"]+|www\.[^\s<>\"]+", regex.IGNORECASE)
_TOKEN = regex.compile(
    rf"{LINK_MARK}|{CODE_START}|{CODE_END}"
    r"|[\p{Han}\p{Hiragana}\p{Katakana}]"
    r"|(?:(?![\p{Han}\p{Hiragana}\p{Katakana}])[\p{L}\p{N}_])"
    r"(?:(?![\p{Han}\p{Hiragana}\p{Katakana}])[\p{L}\p{M}\p{N}_])*"
    r"(?:['’][\p{L}\p{M}]+)*(?:\+\+|\#)?"
)


def tokens(text: str) -> list[str]:
    """The tokens of a text. Web addresses and link marks give LINK; words between code marks get CODE_ in front."""
    if "://" in text or "www." in text:
        text = _URL.sub(LINK_MARK, text)
    found = _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())
    if CODE_START in found:
        return _prefix_code(found)
    return [LINK_TOKEN if token == LINK_MARK else token for token in found if token != CODE_END]


def _prefix_code(found: list[str]) -> list[str]:
    result = []
    in_code = False
    for token in found:
        if token in (CODE_START, CODE_END):
            in_code = token == CODE_START
        elif token == LINK_MARK:
            result.append(LINK_TOKEN)
        else:
            result.append(CODE_PREFIX + token if in_code else token)
    return result
