"""Converts a question's HTML, or a plain text, to tokens, one text at a time. All of dupq uses these tokens.

Text is normalised to NFKC without case, invisible characters or curly apostrophes. A token is a run of letters, digits,
marks and underscores, with an inner apostrophe ("don't") and a closing ++ or # ("c++", "c#"). ICU's dictionaries first
split scripts that put no space between words. Only the tokens LINK and CODE_… have capitals.

This is the plain definition; `token_arrays.py` has a compiled one for whole columns.
"""

import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Literal

import regex
from selectolax.lexbor import LexborHTMLParser

# From a question's HTML to plain text, with code and links treated as in the papers.
#
# Each link becomes one marker (Bogdanova et al. 2015, section 5.1), images are dropped, and code is removed, kept or
# marked word by word (section 6.1). "Possible Duplicate" notes, which moderators put on top of bodies until 2013, give
# away the duplicates that dupq looks for, so they are removed first.

LINK_MARK = "\ue000"
CODE_START = "\ue001"
CODE_END = "\ue002"

_CODE = "pre:not(pre *, code *), code:not(pre *, code *)"  # that is in no other code
_MARKS = regex.compile(
    f"[{LINK_MARK}{CODE_START}{CODE_END}]|&#(?:0*5734[4-6](?![0-9])|[xX]0*[eE]00[0-2](?![0-9A-Fa-f]));?"
)
_NO_MARKS = str.maketrans(dict.fromkeys((LINK_MARK, CODE_START, CODE_END), " "))
_NOTE = regex.compile(
    r"\s*(?:possible\s+duplicates?|duplicates?|posible\s+duplicado|possível\s+duplicat[ao]"
    r"|возможный\s+дубликат|重複の可能性)(?:\s+of)?\s*[:：]",
    regex.IGNORECASE,
)
Markup = Literal["auto", "html", "plain"]

_SAMPLE = 1_000
_CLOSING_TAG = re.compile(r"</[a-zA-Z][a-zA-Z0-9]*\s*>|<br\s*/?>")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
LINK_TOKEN = "LINK"
CODE_PREFIX = "CODE_"

_ADDRESS = regex.compile(r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]+", regex.IGNORECASE)
# scripts without spaces between words; Unicode assigns ー, used in Hiragana and Katakana, to no script
_UNSPACED_RUN = regex.compile(
    r"(?=[\u0e00-\u1fff\u2e80-\U0010ffff])"  # ten times as fast as the class, and rejects most characters
    r"([\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+)"
)
_TOKEN = regex.compile(
    rf"{LINK_MARK}|{CODE_START}|{CODE_END}"
    r"|[\p{L}\p{N}_][\p{L}\p{M}\p{N}_]*(?:'[\p{L}\p{M}]+)*(?:\+\+|\#)?"
)
_UNSEEN = regex.compile(r"\p{Default_Ignorable_Code_Point}")  # soft hyphens, joiners, marks of direction and variation
# The dotted and the dotless i of Turkish become one letter: a capital or unaccented spelling does not tell them apart.
_AS_READ = list(zip("‘’‛ʼ′ıİ", "'''''iI", strict=True))


def without_marks(text: str) -> str:
    """Return the text without the marks that its author wrote, as characters (icon fonts have them) or references."""
    return _MARKS.sub(" ", text) if "&#" in text or not text.isascii() else text


def html_to_text(html: str, code: str) -> str:
    """Return the text of `html`; `code` is "removed", "kept" or "prefixed".

    A link becomes LINK_MARK; prefixed code goes between CODE_START and CODE_END. White space separates the text of
    different elements, so that blocks never run together.
    """
    html = without_marks(html)
    if "<" not in html and "&" not in html:
        return html
    tree = LexborHTMLParser(html)
    if tree.body is None:
        return ""
    if _may_have_notes(html):
        _remove_duplicate_notes(tree)
    if code != "kept":
        for node in tree.css(_CODE):
            node.replace_with(f"{CODE_START}{node.text(separator=' ')}{CODE_END}" if code == "prefixed" else " ")
    for node in tree.css("a"):
        node.replace_with(LINK_MARK)
    for node in tree.css("img, script, style"):
        node.decompose()
    return tree.body.text(separator=" ")


def plain_words(html: str, code: str) -> list[str]:
    """Return the words of `html_to_text` as they are written, without its marks."""
    return html_to_text(html, code).translate(_NO_MARKS).split()


def without_notes(html: str) -> str:
    """Return a body's HTML without the notes that name a duplicate; the same string if it has none."""
    if not _may_have_notes(html):
        return html
    tree = LexborHTMLParser(html)
    return tree.html or "" if _remove_duplicate_notes(tree) else html


def _may_have_notes(html: str) -> bool:
    return not html.isascii() or "&#" in html or "duplic" in html.lower()  # "&#" may spell letters as numbers


def _remove_duplicate_notes(tree: LexborHTMLParser) -> bool:
    """Remove the notes of `tree`, and tell whether it had any."""
    has_notes = False
    for node in chain.from_iterable(map(tree.css, ("blockquote", "p"))):
        text = node.text(separator=" ")
        match = _NOTE.match(text)
        if match and node.css_first("a") is not None:
            node.decompose()
            has_notes = True
        elif match and match.end() >= len(text.rstrip()):  # a heading, whose links are in the next block
            following = node.next
            while following is not None and following.tag == "-text":
                following = following.next
            if following is not None and following.tag in ("p", "ul", "ol") and following.css_first("a") is not None:
                following.decompose()
                node.decompose()
                has_notes = True
    return has_notes


def is_html(name: str, texts: Iterable[str | None], markup: Markup = "auto") -> bool:
    """Tell whether the column `name` holds HTML rather than plain text, unless `markup` says it.

    It does if its name ends in `html`, or if over half of its first 1,000 texts have a closing tag such as `</p>`.
    """
    if markup != "auto":
        return markup == "html"
    if name.lower().endswith("html"):
        return True
    sample = list(islice(filter(None, texts), _SAMPLE))
    return 2 * sum(_CLOSING_TAG.search(text) is not None for text in sample) > len(sample)


def as_html(text: str) -> str:
    """Return plain text as HTML; blank lines separate paragraphs."""
    lines = html.escape(text.replace("\r\n", "\n"), quote=False)
    paragraphs = (paragraph.strip("\n") for paragraph in _BLANK_LINES.split(lines))
    return "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs if paragraph.strip())


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: LINK for web addresses and link marks, CODE_word for words between code marks."""
    raw_tokens = _TOKEN.findall(normal_form(text))
    if CODE_START in raw_tokens:
        return with_marks_named(raw_tokens, str)
    return [LINK_TOKEN if token == LINK_MARK else token for token in raw_tokens if token != CODE_END]


def normal_form(text: str) -> str:
    """Return the written form without case, which is split into tokens (a final sigma is a sigma, ß is ss)."""
    return written_form(text).casefold()


def written_form(text: str) -> str:
    """Return `as_read(text)` with spaces between all words and a link mark for each web address."""
    if "://" in text or "www." in text:
        text = _ADDRESS.sub(LINK_MARK, text)
    runs = _UNSPACED_RUN.split(as_read(text))  # every second one is in a script without spaces between words
    if len(runs) > 1:
        # One call per text, as a call takes 10 µs. A word ends with its line; the rules are the same in every locale.
        runs[1::2] = " ".join(_words_breaker()("\n".join(runs[1::2]), "en")).split("\n")
    return " ".join(runs)


@functools.cache
def _words_breaker() -> Callable[[str, str], Iterable[str]]:
    """Return ICU's, with its dictionaries read: until then a leading ー is split otherwise than ever after."""
    from icu4py.breakers import WordBreaker  # 40 MB of dictionaries, which few archives need

    list(WordBreaker("ーあ漢カกກកက", "en"))
    return WordBreaker


def as_read(text: str) -> str:
    """Return NFKC without invisible characters, with straight apostrophes."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))  # which composes what an invisible one kept apart
    for character, replacement in _AS_READ:  # ten times as fast as str.translate
        text = text.replace(character, replacement)
    return text


def with_marks_named(raw_tokens: list[str], plain: Callable[[str], str]) -> list[str]:
    """Replace marks by LINK, and by CODE_ before caseless tokens of code; pass other tokens through `plain`."""
    result, in_code = [], False
    for token in raw_tokens:
        if token == LINK_MARK:
            result.append(LINK_TOKEN)
        elif token in (CODE_START, CODE_END):
            in_code = token == CODE_START
        else:
            result.append(CODE_PREFIX + token.casefold() if in_code else plain(token))
    return result
