"""Tokens with punctuation and symbols, as in Bogdanova et al. 2015 (section 5.1: NLTK) and dos Santos et al. 2015.

NLTK's Treebank tokeniser cuts each sentence: "don't" is do and n't, a quotation mark `` or '', "x[0]" four tokens. A
sentence ends where white space follows a full stop, a question or an exclamation mark: Punkt, which NLTK has before
it, would need a model from the network. So "e.g." loses its last full stop where Punkt would keep it.

Text by text, in Python: 1.2 ms for each of 2,500 bodies of Travel's, where `token_columns.py` takes 3 µs.
"""

import functools
from collections.abc import Callable
from typing import Literal

import regex

from dupq.extras import require
from dupq.text.html import CODE_END, CODE_START, LINK_MARK
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN, with_marks_named, written_form

_MARK = regex.compile(f"[{LINK_MARK}{CODE_START}{CODE_END}]")
_SENTENCE_END = regex.compile(r"(?<=[.?!]) ")
SENTENCE_ENDS = frozenset(".?!")  # as tokens


def punctuated(text: str, case: Literal["punctuation", "written"]) -> list[str]:
    """The tokens of a text, in lower case unless `case` is "written". LINK and CODE_ mean what they do in `tokens`.

    Code is in lower case always: no tagger reads it.
    """
    text = _MARK.sub(lambda mark: f" {mark[0]} ", written_form(text))
    text = " ".join(text.split())
    cut = _cut()
    found = [token for sentence in _SENTENCE_END.split(text) for token in cut(sentence)]
    return with_marks_named(found, _written if case == "written" else str.lower)


def _written(token: str) -> str:
    """A token in its case, unless it would be taken for a mark's."""
    return token.lower() if token == LINK_TOKEN or token.startswith(CODE_PREFIX) else token


@functools.cache
def _cut() -> Callable[[str], list[str]]:
    """From a sentence to its tokens. NLTK is loaded when it is first needed: that takes a second."""
    require("nltk", "keeping punctuation (text.tokens)")
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer().tokenize
