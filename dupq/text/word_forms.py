"""Stems (the Snowball stemmers) or lemmas (simplemma's word lists) of words. Nothing is downloaded.

Neither looks at the words around: "left" has one lemma. A lemma that is not in the list is found by simplemma's rules
for endings, or is the word itself.
"""

import functools
from collections.abc import Callable

import Stemmer

from dupq.extras import require
from dupq.text import korean

LEMMA_CODES = {
    "auto": "en",
    "arabic": "ar",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
    "turkish": "tr",
}
_CACHED_WORDS = 1 << 18
_WITHOUT_STEMS = ("chinese", "japanese", "thai", "other")


def stems(language: str) -> Callable[[str], str]:
    """The function from a word to its stem; to the word itself in a language that has none here."""
    if language in _WITHOUT_STEMS:
        return str
    if language == "korean":
        return korean.bare
    name = "english" if language == "auto" else language
    stemmer = Stemmer.Stemmer(name, 0)  # words come once each: its cache takes five times as long as stemming
    return lambda word: stemmer.stemWord(word) or word


def lemmas(language: str) -> Callable[[str], str]:
    """The function from a word to its lemma, in lower case as all tokens are."""
    require("simplemma", "text.word_form=lemma")
    import simplemma

    code = LEMMA_CODES[language]

    @functools.lru_cache(_CACHED_WORDS)
    def lemma(word: str) -> str:
        return simplemma.lemmatize(word, code).lower() or word

    return lemma
