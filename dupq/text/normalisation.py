"""The papers' preprocessing of stored texts, as TextSettings say, before an encoder reads them.

The stored texts stay as the tokeniser made them, because the lexical filter and the baselines read them too. This step
comes between them and the vocabulary wherever an encoder reads a text; its settings are saved with it.

In this order: dates and numbers are masked, parts of speech and stop words are filtered, words go to lower case and get
their form, Arabic letters theirs. Word vectors learn from texts that are not filtered (Hazem et al. 2017, section 3,
step 2), so that a word keeps its neighbours. Tokens of code and links are never changed, only kept or left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.settings.sections import TextSettings
from dupq.system import require
from dupq.text import languages
from dupq.text.languages import is_stop_word
from dupq.text.token_arrays import distinct_words
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN, SENTENCE_ENDS

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


class Normaliser:
    """From a stored text to the words that an encoder knows. Same text and settings, same words."""

    def __init__(self, settings: TextSettings) -> None:
        """`settings.code` and `settings.fields` are ignored: the stored text follows them already.

        It follows `settings.tokens` too, which says here whether the text has its case and its sentences' ends.
        """
        self._settings = settings
        self._form = _form(settings)
        self._is_written = settings.tokens == "written"
        self._is_masked = settings.dates == "date" or settings.digits == "num"
        self._is_filtered = (settings.links, settings.stop_words, settings.parts_of_speech) != ("token", "kept", "all")

    @property
    def is_identity(self) -> bool:
        """Whether a text is read as it is stored."""
        return self._form is None and not self._is_masked and not self._is_filtered

    @property
    def is_by_word(self) -> bool:
        """Whether each word is treated without a look at its neighbours, save that dates are masked first."""
        return self._settings.parts_of_speech == "all"

    def with_dates_masked(self, texts: pa.Array) -> pa.Array:
        """Stored texts with each date as one word where dates are masked, else as they are."""
        if self._settings.dates != "date":
            return texts
        words = ((text or "").split(" ") for text in texts.to_pylist())
        return pa.array([" ".join(mask_numbers(some, dates=True, digits=False)) for some in words], pa.large_string())

    def each_word(self, words: list[str]) -> tuple[list[str | None], list[bool]]:
        """For words one by one, where `is_by_word` and none is part of a date: their forms, and which are not filtered.

        The form of a word that its form leaves nothing of is None.
        """
        tokens = self._with_digits_masked(words)
        return self._left(tokens), self._kept(tokens)

    def each_form(self, words: list[str]) -> list[str | None]:
        """The forms of `each_word` alone, which hold for words beside others too, whatever is filtered."""
        return self._left(self._with_digits_masked(words))

    def all_words(self, text: str) -> list[str]:
        """Every word of a text, in its form: what word vectors are learnt from."""
        return self._in_form(self._tokens(text))

    def words(self, text: str) -> list[str]:
        """The words that an encoder reads, in their forms.

        A text of which the filters leave nothing ("how do I do this?") keeps all its words: it would have no embedding.
        """
        tokens = self._tokens(text)
        if self._is_filtered:
            tokens = self._filtered(tokens) or tokens
        return self._in_form(tokens)

    def _with_digits_masked(self, words: list[str]) -> list[str]:
        return mask_numbers(words, dates=False, digits=self._settings.digits == "num")

    def _left(self, tokens: list[str]) -> list[str | None]:
        return [form if form or self._form is None else None for form in self._forms(tokens)]

    def _tokens(self, text: str) -> list[str]:
        tokens = text.split(" ") if text else []
        if self._is_masked:
            return mask_numbers(tokens, self._settings.dates == "date", self._settings.digits == "num")
        return tokens

    def _filtered(self, tokens: list[str]) -> list[str]:
        return [token for token, keep in zip(tokens, self._kept(tokens), strict=True) if keep]

    def _kept(self, tokens: list[str]) -> list[bool]:
        settings = self._settings
        kept = [True] * len(tokens)
        if settings.parts_of_speech == "content":
            kept = [
                is_content and token not in (LINK_TOKEN, NUMBER_TOKEN)
                for token, is_content in zip(tokens, self._content(tokens), strict=True)
            ]
        if settings.links == "removed":
            kept = [keep and token != LINK_TOKEN for token, keep in zip(tokens, kept, strict=True)]
        if settings.stop_words == "removed":
            language = settings.language
            kept = [
                keep and not is_stop_word(token.lower() if self._is_written else token, language)
                for token, keep in zip(tokens, kept, strict=True)
            ]
        return kept

    def _content(self, tokens: list[str]) -> list[bool]:
        has_sentences = self._settings.tokens != "words"
        return content_words_of_sentences(tokens) if has_sentences else content_words(tokens)

    def _in_form(self, tokens: list[str]) -> list[str]:
        return [token for token in self._forms(tokens) if token] if self._form else tokens

    def _forms(self, tokens: list[str]) -> list[str]:
        form = self._form
        if form is None:
            return tokens
        return [token if token == LINK_TOKEN or token.startswith(CODE_PREFIX) else form(token) for token in tokens]


def _form(settings: TextSettings) -> Callable[[str], str] | None:
    """What is done to each word; None for nothing. Stems and lemmas come before letters: they know correct spelling."""
    steps: list[Callable[[str], str]] = [str.lower] if settings.tokens == "written" else []
    if settings.arabic == "normalised":
        steps.append(languages.bare_arabic)
    if settings.word_form != "written":
        from dupq.text.languages import lemmas, stems

        steps.append((stems if settings.word_form == "stems" else lemmas)(settings.language))
    if settings.arabic == "normalised":
        steps.append(languages.normalised_arabic)
    if not steps:
        return None

    def form(word: str) -> str:
        for step in steps:
            word = step(word) if word else word
        return word

    return form


WORD_COUNTS = pa.schema([pa.field("word", pa.large_string(), False), pa.field("count", pa.int64(), False)])


class Forms(NamedTuple):
    """n texts as `Normaliser.all_words` reads them: those of text i are `numbers[begins[i]:begins[i + 1]]`."""

    forms: pa.LargeStringArray  # a word of each number; null for one that its form leaves nothing of
    numbers: np.ndarray  # int32
    begins: np.ndarray  # int64, (n + 1,)

    @property
    def lengths(self) -> np.ndarray:
        """How many words each text has (int64)."""
        is_there = self.forms.is_valid().to_numpy(zero_copy_only=False)
        before = np.concatenate([[0], np.cumsum(is_there[self.numbers])])
        return np.diff(before[self.begins])


def forms_of(texts: pa.StringArray | pa.ChunkedArray, normaliser: Normaliser) -> Forms:
    """Every word of stored texts, in its form. An absent text is an empty one."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    numbers, begins, words = distinct_words(normaliser.with_dates_masked(texts))
    return Forms(pa.array(normaliser.each_form(words.to_pylist()), pa.large_string()), numbers, begins)


def word_counts(found: Forms) -> pa.Table:
    """How often each word occurs: rows of WORD_COUNTS, sorted by word."""
    counts = np.bincount(found.numbers, minlength=len(found.forms))
    table = pa.table([found.forms, pa.array(counts)], names=["word", "count"])
    return summed([table.filter(pc.and_(pc.is_valid(table["word"]), pc.greater(table["count"], 0)))])


def summed(tables: list[pa.Table]) -> pa.Table:
    """The counts of all tables together, sorted by word. Memory: some 50 bytes a row of all, and their words."""
    together = pa.concat_tables([WORD_COUNTS.empty_table(), *(table.cast(WORD_COUNTS) for table in tables)])
    by_word = together.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return by_word.rename_columns({"count_sum": "count"}).select(WORD_COUNTS.names).sort_by("word").cast(WORD_COUNTS)


def most_frequent(table: pa.Table, most: int) -> pa.Table:
    """At most `most` rows of WORD_COUNTS, the most frequent words first, of equally frequent ones by the word."""
    return table.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, most)


def joined(found: Forms, is_wanted: np.ndarray) -> pa.LargeStringArray:
    """The words of the texts that are wanted (bool, (n,)), joined by single spaces; no text without words."""
    sizes = found.lengths[is_wanted]
    numbers = found.numbers[is_wanted.repeat(np.diff(found.begins))]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
    lists = pa.LargeListArray.from_arrays(offsets, found.forms.take(pa.array(numbers)).drop_null())
    return pc.binary_join(lists.filter(pa.array(sizes > 0)), pa.scalar(" ", pa.large_string()))
