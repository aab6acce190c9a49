"""Unicode properties of each character, as arrays for compiled code. Made from Python's own tables and the tokeniser's
own expressions, so that the compiled tokeniser follows when they change.

A text's normal form is the sequence of its characters' forms, each taken alone, if that sequence passes
the quick check of Unicode Standard Annex 15, section 9: no character in it may compose with one before it, and
combining marks are in the order of their classes. Characters of scripts without spaces are taken for such too, since a
dictionary cuts those.
"""

import functools
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import regex

from dupq.text import tokens
from dupq.text.html import CODE_END, CODE_START, LINK_MARK

# What a character may be to a token; bits of Characters.kinds.
FIRST, FURTHER, AFTER_APOSTROPHE, APOSTROPHE = 1, 2, 4, 8
MARK, IN_ADDRESS = 16, 32

UNSURE = 255  # as a combining class: the quick check fails, or the neighbours matter

_COUNT = 0x110000
_BLOCK = 0x800
_EXPRESSIONS = {
    FIRST: tokens.FIRST,
    FURTHER: tokens.FURTHER,
    AFTER_APOSTROPHE: tokens.AFTER_APOSTROPHE,
    APOSTROPHE: tokens.APOSTROPHE,
    MARK: f"[{LINK_MARK}{CODE_START}{CODE_END}]",
    IN_ADDRESS: tokens.IN_ADDRESS,
}


class Characters(NamedTuple):
    """Arrays over all code points, and over the forms of those that have one (form 0 is none: the character itself).

    Form i in UTF-8 is `text[starts[i]:starts[i + 1]]`.
    """

    kinds: np.ndarray  # (code points,) uint8
    forms: np.ndarray  # (code points,) uint16
    starts: np.ndarray  # int32
    text: np.ndarray  # uint8
    first_class: np.ndarray  # uint8: the combining class of the form's first character, or UNSURE
    last_class: np.ndarray  # uint8: that of its last
    growth: int  # how many times as many bytes a form may have as its character


@functools.cache
def characters() -> Characters:
    """The arrays; the first call takes a quarter of a second, and they hold 3.4 MB."""
    every = np.arange(_COUNT, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.zeros(_COUNT, np.uint8)
    for bit, expression in _EXPRESSIONS.items():
        for match in regex.finditer(f"(?:{expression})+", every):
            kinds[match.start() : match.end()] |= np.uint8(bit)
    return _with_forms(kinds, every)


def _with_forms(kinds: np.ndarray, every: str) -> Characters:
    composing = _composing(every)
    changed = sorted({*_changing(every), *composing, *_combining(every)})
    normal = [unicodedata.normalize("NFKC", character) for character in changed]
    content = [tokens.as_read(character).casefold().encode() for character in changed]
    forms = np.zeros(_COUNT, np.uint16)
    for match in regex.finditer(f"{tokens.UNSPACED}+", every):
        forms[match.start() : match.end()] = len(changed) + 1  # a form that is never read
    forms[[ord(character) for character in changed]] = np.arange(1, len(changed) + 1)
    return Characters(
        kinds,
        forms,
        np.cumsum([0, 0, *map(len, content)], dtype=np.int32),
        np.frombuffer(b"".join(content), np.uint8),
        np.array([0, *(_first_class(form, composing) for form in normal), UNSURE], np.uint8),
        np.array([0, *(unicodedata.combining(form[-1]) for form in normal)], np.uint8),
        max(-(-len(form) // len(character.encode())) for form, character in zip(content, changed, strict=True)),
    )


def _first_class(form: str, composing: set[str]) -> int:
    """A first character of class 0 that composes with nothing before it ends what has been composed."""
    first = unicodedata.combining(form[0])
    reaching = form if first else form[0]
    is_cut = regex.search(tokens.UNSPACED, form) is not None
    return first if not is_cut and composing.isdisjoint(reaching) else UNSURE


def _blocks(every: str) -> Iterator[str]:
    """All characters but surrogates and the zero character, which separates them below."""
    for start in range(0, _COUNT, _BLOCK):
        if start != 0xD800:
            yield every[start : start + _BLOCK].lstrip("\0")


def _changing(every: str) -> Iterator[str]:
    """The characters that are not their own normal form."""
    for block in _blocks(every):
        apart = "\0".join(block)
        if (form := tokens.as_read(apart).casefold()) != apart:
            yield from (old for old, new in zip(block, form.split("\0"), strict=True) if old != new)


def _composing(every: str) -> set[str]:
    """The characters that may compose with one before them: NFKC_Quick_Check is Maybe."""
    found = {chr(code) for code in [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]}  # of Hangul syllables
    for block in _blocks(every):
        apart = "\0".join(block)
        if unicodedata.normalize("NFD", apart) != apart:
            found.update(_second_parts(block))
    return found


def _second_parts(block: Iterable[str]) -> Iterator[str]:
    for character in block:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (chr(int(part, 16)) for part in parts)
            if unicodedata.normalize("NFC", first + second) == character:
                yield second


def _combining(every: str) -> Iterator[str]:
    """The characters with a combining class, all of which are marks."""
    marks = (match.group() for match in regex.finditer(r"\p{M}", every))
    return (mark for mark in marks if unicodedata.combining(mark))
