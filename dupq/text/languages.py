"""Finding out which language titles are in, by the scripts of their words and by stop words.

One language is taken for all: the one that most words are in. Its stems and stop words leave words of other scripts as
they are, and the words of scripts without spaces are cut in any case (tokens.py). "other" has no stems and stop words.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import regex

from dupq.text.stop_words import is_stop_word
from dupq.text.token_columns import token_texts
from dupq.text.words import distinct_words

_SCRIPTS = {  # of a word's first letter
    "kana": r"[\p{Hiragana}\p{Katakana}]",
    "han": r"\p{Han}",
    "korean": r"\p{Hangul}",
    "thai": r"\p{Thai}",
    "arabic": r"\p{Arabic}",
    "cyrillic": r"\p{Cyrillic}",
    "latin": r"\p{Latin}",
    "other": r"\p{L}",
}
_LETTER = regex.compile("|".join(f"(?P<{name}>{letter})" for name, letter in _SCRIPTS.items()))
_TOLD_BY_STOP_WORDS = {
    "arabic": ("arabic",),
    "cyrillic": ("russian",),
    "latin": ("english", "french", "german", "portuguese", "spanish", "italian", "turkish"),
}
_LEAST_KANA = 0.1  # of the words of a Japanese archive; a Chinese one quotes some
_LEAST_SHARE, _FEWEST = 0.1, 5  # of stop words among the words of titles: Ukrainian shares some with Russian


def language_of(titles: pa.StringArray) -> str:
    """The language of most words of `titles`; English where nothing tells."""
    numbers, _, distinct = distinct_words(token_texts(titles))
    words = distinct.to_pylist()
    scripts: dict[str, Counter[str]] = {name: Counter() for name in _SCRIPTS}
    for word, count in zip(words, np.bincount(numbers, minlength=len(words)).tolist(), strict=True):
        if (letter := _LETTER.match(word)) is not None:
            scripts[str(letter.lastgroup)][word] += count
    sums = {name: counts.total() for name, counts in scripts.items()}
    sums["han"] += sums.pop("kana")
    most = max(sums, key=lambda name: sums[name])
    if not sums[most]:
        return "english"
    if most == "han":
        return "japanese" if scripts["kana"].total() > _LEAST_KANA * sums["han"] else "chinese"
    return _by_stop_words(scripts[most], _TOLD_BY_STOP_WORDS[most]) if most in _TOLD_BY_STOP_WORDS else most


def _by_stop_words(words: Counter[str], languages: Sequence[str]) -> str:
    """The language whose stop words are most frequent, if they are frequent enough; of Latin words else English."""
    known = {name: sum(count for word, count in words.items() if is_stop_word(word, name)) for name in languages}
    best = max(languages, key=lambda name: known[name])
    if known[best] < max(_FEWEST, _LEAST_SHARE * words.total()):
        return "english" if "english" in languages else "other"
    return best
