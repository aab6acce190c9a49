"""Everything that depends on a text's language: stems, stop words, spellings of Arabic, endings of Korean words, names
of numbers and months, the words that an encoder reads, and the detection of the language of titles.
"""

import functools
import operator
import re
import tomllib
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import regex
import Stemmer

from dupq.settings.sections import Language, TextSettings
from dupq.system import papers
from dupq.text.token_arrays import distinct_words, token_texts
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN, normal_form

_DIACRITICS = regex.compile(r"[\u0610-\u061A\u064B-\u065F\u0670\u06D6-\u06DC\u06DF-\u06E8\u06EA-\u06ED]")
_STRETCHING = "\u0640"  # tatweel
# Interchangeable letters as in Larkey, Ballesteros and Connell (SIGIR 2002): alef loses hamza and madda, final yeh gets
# dots, teh marbuta becomes heh; and the Persian keyboard's kaf and yeh become the Arabic ones.
_LETTERS = str.maketrans("أإآٱىةکی", "اااايهكي")
_DIGIT = re.compile(r"\d")  # of any script
_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
# number words in titles, without "one", "second", "may" and "march", which more often mean something else
_NUMBERS = {
    **{month: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    **{month[:3]: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    "sept": "month 9",
    **{word: str(number) for number, word in enumerate(_WORDS) if number != 1},
    **{word: str(number) for number, word in enumerate(_ORDINALS, 1) if number != 2},
    **{name: str(number) for number, name in ((2, "ii"), (3, "iii"), (4, "iv"))},
}


def bare_arabic(word: str) -> str:
    """Return `word` as dictionaries spell it: without vowel signs, other diacritics and tatweel."""
    return word if word.isascii() else _DIACRITICS.sub("", word).replace(_STRETCHING, "")


def normalised_arabic(word: str) -> str:
    """Return `bare_arabic(word)` with one form of the interchangeable letters. Other scripts stay as they are."""
    return word if word.isascii() else bare_arabic(word).translate(_LETTERS)


_OTHERWISE = regex.compile(r"(?V1)[ёЁ\p{Arabic}\p{Hebrew}]|[\p{Nd}--[0-9]]")
_HEBREW_POINT = regex.compile(r"(?V1)[\p{Mn}&&\p{Hebrew}]")
_DIGIT_OF_OTHER_SCRIPT = regex.compile(r"(?V1)[\p{Nd}--[0-9]]")


def one_spelling(text: str) -> str:
    """Return `text` with one form of letters and digits that keyboards and authors write otherwise.

    These are ё, Arabic and Persian letters, vowel signs of Arabic and Hebrew, and the digits of all scripts.
    """
    if text.isascii() or not _OTHERWISE.search(text):
        return text
    text = _HEBREW_POINT.sub("", normalised_arabic(text)).replace("ё", "е").replace("Ё", "Е")
    return _DIGIT_OF_OTHER_SCRIPT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


# Korean words without particles after nouns and the endings of 하다 and 되다.
#
# Spaces separate phrases ("자전거를", the bicycle as an object), so that a noun has a dozen forms. No dictionary tells
# which syllables are the noun's own, but all forms of a word lose the same syllables, so they stay one word.

_ENDS = re.compile(
    "(?<=..)(?:"
    "에서는|에서도|에서|에게서|에게|한테|께서|까지|부터|마다|처럼|보다|밖에|조차|이나|이란|이라는|라는|으로는|으로|로|"
    "하고|들|의|에|도|만|과|와|이|가|이다|입니다|인가요|이에요|예요|나요|까요|려면|는데|지만|면서|세요|습니다"
    ")$|(?<=[^ ])[을를은는]$|"
    "(?<=..)(?:하[가-힣]*|할|한(?:다|데|지)?|함|합[가-힣]+|해[가-힣]*|했[가-힣]*|되[가-힣]*|된|될|됩[가-힣]+|돼[가-힣]*|됐[가-힣]*)$"
)
_AFTER_CONSONANT, _AFTER_VOWEL = "을은과이", "를는와가"


def bare_korean(word: str) -> str:
    """Return the word without its particles and endings. Other scripts stay as they are."""
    while match := _ENDS.search(word):
        if not _may_follow(match[0], word[match.start() - 1]):
            return word
        word = word[: match.start()]
    return word


def _may_follow(end: str, letter: str) -> bool:
    """Tell whether a particle fits the letter before it: some have one form after consonants, another after vowels."""
    if len(end) > 1 or end not in _AFTER_CONSONANT + _AFTER_VOWEL or not "가" <= letter <= "힣":
        return "가" <= letter <= "힣" or letter.isalnum()
    has_consonant = (ord(letter) - ord("가")) % 28 > 0
    return end in (_AFTER_CONSONANT if has_consonant else _AFTER_VOWEL)


# Stop words by language: of words.toml, else of bm25s: for English the 179 words of NLTK, which the papers use; for
# French to Spanish the lists of Snowball; also Chinese, Korean and Turkish.


@functools.cache
def words_by_language() -> dict[str, dict[str, str]]:
    """Return the lists in words.toml, by language and name."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


@functools.cache
def words_in(name: str, language: str) -> frozenset[str]:
    """Return a list of words.toml; it is empty for a language that has none."""
    return frozenset(words_by_language().get(language, {}).get(name, "").split())


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language as tokens; the Arabic ones in normalised spelling."""
    if "stop_words" in words_by_language().get(language, {}):
        return frozenset(map(normalised_arabic, words_in("stop_words", language)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bm25s imports tqdm, which warns in a notebook without widgets
        from bm25s import stopwords

    name = "EN_PLUS" if language in ("auto", "english") else language.upper()
    return frozenset(map(normal_form, getattr(stopwords, f"STOPWORDS_{name}")))


def is_stop_word(token: str, language: str) -> bool:
    """Tell whether a token is a stop word, in Arabic in any spelling."""
    return (normalised_arabic(token) if language == "arabic" else token) in stop_words(language)


# Stems by the Snowball stemmers.

_WITHOUT_STEMS = ("chinese", "japanese", "thai", "other")


def stems(language: str) -> Callable[[str], str]:
    """Return the function from a word to its stem; the identity for a language without a stemmer."""
    if language in _WITHOUT_STEMS:
        return str
    if language == "korean":
        return bare_korean
    name = "english" if language == "auto" else language
    stemmer = Stemmer.Stemmer(name, 0)  # no cache: it takes five times as long as stemming distinct words
    return lambda word: stemmer.stemWord(word) or word


# The words of stored texts in the form that an encoder reads, as TextSettings say.
#
# Stored texts keep their tokens, because the lexical filter and the baselines read them too. Wherever an encoder reads
# a text, the normaliser comes between it and the vocabulary; its settings are saved with the encoder. Tokens of code
# and links never change.


class Normaliser:
    """Converts plain texts to stored ones, and stored ones to the words that an encoder reads.

    The papers' normaliser overrides `stored`, `learned` and `read`.
    """

    def __init__(self, settings: TextSettings) -> None:
        """Normalise as `settings` say."""
        self._form = stems(settings.language) if settings.word_form == "stems" else str

    def stored(self, texts: pa.Array) -> pa.Array:
        """Return the tokens of plain texts, joined by single spaces (large_string)."""
        return token_texts(texts)

    def learned(self, texts: pa.Array) -> pa.Array:
        """Return the words of stored texts that word vectors learn from, not yet in their forms: all of them."""
        return texts

    def read(self, texts: pa.Array) -> pa.Array:
        """Return the words of stored texts that an encoder reads, not yet in their forms: all of them."""
        return texts

    def each_form(self, words: list[str]) -> list[str | None]:
        """Return the form of each word; None if nothing is left of a word."""
        are_marks = (word == LINK_TOKEN or word.startswith(CODE_PREFIX) for word in words)
        forms = (word if is_mark else word and self._form(word) for word, is_mark in zip(words, are_marks, strict=True))
        return [form or None for form in forms]

    def in_forms(self, texts: pa.Array) -> tuple[np.ndarray, np.ndarray, pa.LargeStringArray]:
        """Return what `distinct_words` does, with forms in place of words, and without words of which nothing is left.

        Several words may have one form; a null is the form of words that are left out.
        """
        numbers, begins, words = distinct_words(texts)
        forms = pa.array(self.each_form(words.to_pylist()), pa.large_string())
        if not forms.null_count:
            return numbers, begins, forms
        is_left = forms.is_valid().to_numpy(zero_copy_only=False)[numbers]
        return numbers[is_left], np.concatenate([[0], np.cumsum(is_left)])[begins], forms

    def all_words(self, text: str) -> list[str]:
        """Return the words that word vectors learn from a stored text, in their forms."""
        learned = self.learned(pa.array([text], pa.large_string()))[0].as_py()
        return [form for form in self.each_form(learned.split(" ")) if form] if learned else []


def normaliser_of(settings: TextSettings) -> Normaliser:
    """Return the normaliser for these settings: the papers' own for their subclass of TextSettings."""
    if type(settings) is TextSettings:
        return Normaliser(settings)
    [reading] = papers("reading")
    normaliser: Normaliser = reading.PaperNormaliser(settings)
    return normaliser


def numbers_in(words: str) -> set[str]:
    """Return the numbers among a title's tokens: words with a digit, number words, months."""
    tokens = words.split(" ")
    digits = {word for word in tokens if _DIGIT.search(word)} if _DIGIT.search(words) else set()
    return digits | {_NUMBERS[word] for word in _NUMBERS.keys() & tokens}


def is_date(word: str) -> bool:
    """Tell whether a token of a title is a year, in digits of any script, or a month."""
    is_year = len(word) == 4 and word.isdecimal() and 1900 <= int(word) < 2100
    return is_year or _NUMBERS.get(word, "").startswith("month")


# Detecting the language of titles by the scripts of their words and by stop words.
#
# An archive has one language: the one of most words. Its stems and stop words leave words of other scripts as they are,
# and tokens.py splits scripts without spaces in any case. "other" has no stems or stop words.

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
_LANGUAGES_OF = {  # a script of several languages; their stop words decide
    "arabic": ("arabic",),
    "cyrillic": ("russian",),
    "latin": ("english", "french", "german", "portuguese", "spanish", "italian", "turkish"),
}
_WITH_STOP_WORDS = tuple(name for name in get_args(Language) if name not in ("auto", "other"))
_LEAST_KANA = 0.1  # of the words of a Japanese archive; a Chinese one quotes some
_LEAST_SHARE, _FEWEST = 0.1, 5  # of stop words among all words: Ukrainian shares some with Russian


def language_of(titles: pa.StringArray) -> str:
    """Return the language of most words of `titles`; English if nothing tells."""
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
    return _by_stop_words(scripts[most], _LANGUAGES_OF[most]) if most in _LANGUAGES_OF else most


def share_in(titles: pa.StringArray, language: str) -> float:
    """Return the share of the titles with words in which no other language has more stop words; 1 if none has words."""
    read = [words.split(" ") for words in token_texts(titles).to_pylist() if words]
    hits = {name: [sum(is_stop_word(word, name) for word in words) for words in read] for name in _WITH_STOP_WORDS}
    most = map(max, zip(*hits.values(), strict=True))
    own = hits.get(language) or [0] * len(read)
    return sum(map(operator.eq, own, most)) / len(read) if read else 1.0


def _by_stop_words(words: Counter[str], languages: Sequence[str]) -> str:
    """Return the language with the most stop words, if there are enough; else English for Latin script, or other."""
    hits = {name: sum(count for word, count in words.items() if is_stop_word(word, name)) for name in languages}
    best = max(languages, key=lambda name: hits[name])
    if hits[best] < max(_FEWEST, _LEAST_SHARE * words.total()):
        return "english" if "english" in languages else "other"
    return best
