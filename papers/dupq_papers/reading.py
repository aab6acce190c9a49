"""What the papers do to texts before an encoder reads them, as PaperText says.

In this order: texts are cut into tokens with or without punctuation, which are stored; dates and numbers are masked,
parts of speech and stop words are filtered, words go to lower case and get their form, Arabic letters theirs. Word
vectors learn from texts that are not filtered (Hazem et al. 2017, section 3, step 2), so that a word keeps its
neighbours. Tokens of code and links are never changed, only kept or left out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa
import regex

from dupq.system import require
from dupq.text import languages
from dupq.text.languages import Normaliser, is_stop_word
from dupq.text.tokens import (
    CODE_END,
    CODE_PREFIX,
    CODE_START,
    LINK_MARK,
    LINK_TOKEN,
    with_marks_named,
    written_form,
)
from dupq_papers.settings import PaperText

# Tokens with punctuation and symbols, as in Bogdanova et al. 2015 (section 5.1: NLTK) and dos Santos et al. 2015.
#
# NLTK's Treebank tokeniser cuts each sentence: "don't" is do and n't, a quotation mark `` or '', "x[0]" four tokens. A
# sentence ends where white space follows a full stop, a question or an exclamation mark: Punkt, which NLTK has before
# it, would need a model from the network. So "e.g." loses its last full stop where Punkt would keep it.
#
# Text by text, in Python: 1.2 ms for each of 2,500 bodies of Travel's, where dupq's own tokens take 3 µs.

_MARK = regex.compile(f"[{LINK_MARK}{CODE_START}{CODE_END}]")
_SENTENCE_END = regex.compile(r"(?<=[.?!]) ")
SENTENCE_ENDS = frozenset(".?!")  # as tokens


def punctuated(text: str, case: Literal["punctuation", "written"]) -> list[str]:
    """The tokens of a text, in lower case unless `case` is "written"; of code always, as no tagger reads it.

    LINK and CODE_ mean what they do in dupq's own tokens.
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


# Replacing dates by the token `date` and numbers by the token `num` (Othman et al. 2021, section 3.1).
#
# The tokeniser has already dropped punctuation, so "12/05/2014" is three tokens. A date is a year, a month and a day in
# any of the usual orders, the month as a number or by its English or Arabic name, or a named month with a day or a
# year. A year has four digits, 1900 to 2099. A date with two digits for the year is not distinguished from other
# numbers.

DATE_TOKEN = "date"
NUMBER_TOKEN = "num"

_ENGLISH = (
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
_ARABIC = (
    "يناير فبراير مارس أبريل ابريل إبريل مايو يونيو يونيه يوليو يوليه أغسطس اغسطس سبتمبر أكتوبر اكتوبر نوفمبر ديسمبر "
    "شباط آذار نيسان أيار حزيران تموز آب أيلول"
)
_MONTHS = frozenset(f"{_ENGLISH} {_ARABIC}".split())
VERBS_TOO = frozenset({"may", "march", "mar"})  # a month only beside a year, or beside both day and year
_ORDINALS = ("st", "nd", "rd", "th")
# d: day, m: month as a number, n: month by name, y: year, o: "of"; the longest first
PATTERNS = ("dony", "dny", "ndy", "ynd", "ymd", "dmy", "mdy", "don", "ny", "yn", "dn", "nd")


def mask_numbers(tokens: Sequence[str], dates: bool, digits: bool) -> list[str]:
    """`tokens` with each date as one `date` and each token of digits as one `num`, if these are wanted."""
    result, place = [], 0
    while place < len(tokens):
        length = _date_length(tokens, place) if dates else 0
        if length:
            result.append(DATE_TOKEN)
            place += length
            continue
        token = tokens[place]
        result.append(NUMBER_TOKEN if digits and token.isdecimal() else token)
        place += 1
    return result


def _date_length(tokens: Sequence[str], place: int) -> int:
    """How many tokens from `place` on are one date; 0 if none begins there."""
    first = tokens[place]
    if first not in _MONTHS and not first[:1].isdecimal():
        return 0
    found = [roles(token) for token in tokens[place : place + 4]]
    for pattern in PATTERNS:
        if len(pattern) <= len(found) and all(role in found[at] for at, role in enumerate(pattern)):
            named = [tokens[place + at] for at, role in enumerate(pattern) if role == "n"]
            if "y" in pattern or not VERBS_TOO.intersection(named):
                return len(pattern)
    return 0


def roles(token: str) -> str:
    """What a token can be in a date, as the letters of the patterns."""
    if token in _MONTHS:
        return "n"
    if token == "of":
        return "o"
    digits = token[:-2] if token.endswith(_ORDINALS) else token
    if not digits.isdecimal() or len(digits) not in (1, 2, 4):
        return ""
    number = int(digits)
    if len(token) == 4 and 1900 <= number <= 2099:
        return "y"
    if len(digits) > 2 or not 1 <= number <= 31:
        return ""
    return "dm" if number <= 12 and digits == token else "d"


# Keeping the nouns, verbs and adjectives of an English text (Hazem et al. 2017, section 3, step 2).
#
# The tagger is Brill's (1992), rules and lexicon as TextBlob ships them inside its package: nothing is fetched. The
# paper does not name its own. Stored tokens are lower case and without punctuation unless `text.tokens` keeps these, so
# names and ends of sentences are not seen; an unknown word that has no telling ending counts as a noun.

_CONTENT = ("NN", "VB", "JJ")  # the Penn Treebank's nouns, names among them, verbs without modals, and adjectives


def content_words(tokens: Sequence[str]) -> list[bool]:
    """For each token of an English text whether it is a noun, a verb or an adjective."""
    require("textblob", "reading parts of speech")
    from textblob.en import parser

    return [tag.startswith(_CONTENT) for _, tag in parser.find_tags(list(tokens))]


def content_words_of_sentences(tokens: Sequence[str]) -> list[bool]:
    """As `content_words`, of tokens with punctuation: the tagger meets one sentence at a time.

    It looks at where a sentence begins, as a capital there says nothing. Nothing but letters makes a word.
    """
    found: list[bool] = []
    start = 0
    for place, token in enumerate(tokens):
        if token in SENTENCE_ENDS or place == len(tokens) - 1:
            found += content_words(tokens[start : place + 1])
            start = place + 1
    return [
        is_content and any(letter.isalpha() for letter in token)
        for token, is_content in zip(tokens, found, strict=True)
    ]


class PaperNormaliser(Normaliser):
    """The normaliser of texts that are read by settings of the papers."""

    def __init__(self, settings: PaperText) -> None:
        """Follow `settings`; of these `code` and `fields` say what is stored, and are ignored here."""
        super().__init__(settings)
        self._settings = settings
        self._form = _form(settings, lemmas(settings.language) if settings.word_form == "lemmas" else self._form)

    def stored(self, texts: pa.Array) -> pa.Array:
        """As of any normaliser, with punctuation where `tokens` wants it."""
        case = self._settings.tokens
        if case == "words":
            return super().stored(texts)
        return pa.array([" ".join(punctuated(text or "", case)) for text in texts.to_pylist()], pa.large_string())

    def learned(self, texts: pa.Array) -> pa.Array:
        """Return stored texts with dates and digits masked."""
        return texts if (self._settings.dates, self._settings.digits) == ("kept", "kept") else self._each(texts, list)

    def read(self, texts: pa.Array) -> pa.Array:
        """Return what is left of stored texts, dates and digits masked, after filters.

        A text of which the filters leave nothing ("how do I do this?") keeps all its words: it would have no embedding.
        """
        settings = self._settings
        if (settings.links, settings.stop_words, settings.parts_of_speech) == ("token", "kept", "all"):
            return self.learned(texts)
        return self._each(texts, self._filtered)

    def _each(self, texts: pa.Array, change: Callable[[list[str]], list[str]]) -> pa.Array:
        dates, digits = self._settings.dates == "date", self._settings.digits == "num"
        tokens = (mask_numbers(text.split(" ") if text else [], dates, digits) for text in texts.to_pylist())
        return pa.array([" ".join(change(some)) for some in tokens], pa.large_string())

    def each_form(self, words: list[str]) -> list[str | None]:
        """As of any normaliser; words of digits are masked, as those that are met alone are too."""
        return super().each_form(mask_numbers(words, dates=False, digits=self._settings.digits == "num"))

    def _filtered(self, tokens: list[str]) -> list[str]:
        kept = self._kept(tokens)
        return [token for token, keep in zip(tokens, kept, strict=True) if keep] or tokens

    def _kept(self, tokens: list[str]) -> list[bool]:
        settings = self._settings
        kept = [True] * len(tokens)
        if settings.parts_of_speech == "content":
            found = content_words_of_sentences if settings.tokens != "words" else content_words
            kept = [
                is_content and token not in (LINK_TOKEN, NUMBER_TOKEN)
                for token, is_content in zip(tokens, found(tokens), strict=True)
            ]
        if settings.links == "removed":
            kept = [keep and token != LINK_TOKEN for token, keep in zip(tokens, kept, strict=True)]
        if settings.stop_words == "removed":
            read = str.lower if settings.tokens == "written" else str
            kept = [
                keep and not is_stop_word(read(token), settings.language)
                for token, keep in zip(tokens, kept, strict=True)
            ]
        return kept


def _form(settings: PaperText, word_form: Callable[[str], str]) -> Callable[[str], str]:
    """What is done to each word. Stems and lemmas come before letters: they know correct spelling."""
    steps: list[Callable[[str], str]] = [str.lower] if settings.tokens == "written" else []
    is_arabic = settings.arabic == "normalised"
    steps += [languages.bare_arabic, word_form, languages.normalised_arabic] if is_arabic else [word_form]
    return lambda word: functools.reduce(lambda form, step: step(form) if form else form, steps, word)


# Lemmas (simplemma's word lists). Nothing is downloaded.
#
# The words around are not looked at: "left" has one lemma. A lemma that is not in the list is found by simplemma's
# rules for endings, or is the word itself.

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


def lemmas(language: str) -> Callable[[str], str]:
    """The function from a word to its lemma, in lower case as all tokens are."""
    require("simplemma", "text.word_form=lemma")
    import simplemma

    code = LEMMA_CODES[language]

    @functools.lru_cache(_CACHED_WORDS)
    def lemma(word: str) -> str:
        return simplemma.lemmatize(word, code).lower() or word

    return lemma
