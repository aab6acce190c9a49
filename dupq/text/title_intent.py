"""Compare the titles of questions whose texts are nearly the same: do they ask the same?

Two questions by one author, or two that fill in one template, share nearly all their words and ask different things:
"… closed under reversal?" and "… closed under complementation?", "Election 2014" and "Election 2018". So the titles of
near duplicates must have the same telling words in the same order, the same signs, and make the same choices
(written.py). A telling word is not a stop word, or is one that changes the question ("not", "before", "why"). It counts
by its stem, and typing errors do not count. Other pairs may still be duplicates, but that takes more evidence.
"""

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import regex

from dupq.text.languages import is_date, is_stop_word, normalised_arabic, stems, words_in
from dupq.text.written import Title, choices_of, title_of

_WORD, _DIGIT, _DOUBLED = regex.compile(r"\w"), regex.compile(r"\d"), regex.compile(r"(.)\1+")
_ENDING, _SHORT = 2, 4  # letters in which forms of a word may differ; words that have no such forms: "Iran", "Iraq"
_FEWEST_KEPT = 2  # telling words of a template
_FEWEST_WORDS = 5  # of a title in which another order is another question: "transit visa UK", "UK transit visa"
# Words that differ in a letter from others of their kind, and are never typing errors of these.
_ALIKE = """
january february march april june july august september october november december monday tuesday wednesday thursday
friday saturday sunday first second third fourth fifth sixth seventh eighth ninth tenth three four five seven eight nine
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy
eighty ninety hundred thousand million billion trillion
juin juillet junio julio junho julho giugno luglio июнь июня июль июля يونيو يوليو يونيه يوليه
"""
_NO_ERRORS = frozenset(_ALIKE.split())
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_LONG = 9  # a word of this many letters may have two errors


def tells(word: str, language: str) -> bool:
    """Return whether a word says what a title asks: no stop word, or one that changes the question."""
    return word in words_in("telling", language) or not is_stop_word(word, language)


class TitleComparer:
    """Compares titles in one language."""

    def __init__(self, language: str, is_rare: Callable[[str], bool] = lambda word: False) -> None:
        """Only a word for which `is_rare` is true (at most one text of the archive has it) can be a typing error."""
        self._language, self._is_rare = language, is_rare
        self._negations = words_in("negations", language)
        self._stem = functools.cache(_arabic_form if language == "arabic" else stems(language))
        self._form = functools.cache(functools.partial(_form, is_english=language == "english"))
        self._is_date = functools.cache(is_date)
        self.choices = choices_of(language)
        self._tells = functools.cache(functools.partial(tells, language=language))

    def same_pairs(self, words: pa.Array, written: pa.Array, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return whether the titles in rows `left[i]` and `right[i]` ask the same (bool).

        `words` are their tokens, `written` the `written_titles`.
        """
        titles, same = list(map(title_of, written.to_pylist(), words.to_pylist())), functools.cache(self.same)
        pairs = ((titles[i], titles[j]) for i, j in zip(left.tolist(), right.tolist(), strict=True))
        return np.array([one == other or same(one, other) for one, other in pairs], bool)

    def same(self, left: Title, right: Title) -> bool:
        """Return whether two titles ask the same, also if one is empty: then their texts decide."""
        left, right = sorted((left, right))  # so that the answer does not depend on their order
        first, second = self._words(left.words), self._words(right.words)
        if not (first or left.signs) or not (second or right.signs):
            return True
        mine, theirs = self.choices(left), self.choices(right)
        if left.signs != right.signs or any(mine[choice] != theirs[choice] for choice in mine.keys() & theirs.keys()):
            return False
        if self._agree(first, second) or _are_spaced_otherwise(first, second):
            return True
        first = self._corrected(first, second)
        return self._agree(first, self._corrected(second, first))

    def question_of(self, title: Title) -> str:
        """Return what a title asks: its telling words in order, and its signs; "" if it has neither."""
        return " ".join([*self._telling(self._words(title.words)), title.signs]).strip()

    def negates(self, title: Title) -> bool:
        """Return whether a title has a word that denies something: "with a visa", "without a visa"."""
        return not self._negations.isdisjoint(self._words(title.words))

    def bag(self, title: Title) -> str:
        """Return all words of a title in alphabetical order; "" if they are few."""
        words = self._words(title.words)
        return " ".join(sorted(words)) if len(words) >= _FEWEST_WORDS else ""

    def templates(self, title: Title) -> Iterator[str]:
        """Yield what is left of a title without one or two telling words in a row, if that is two words and more.

        Titles that share one of them, and ask something else, fill in one template: "… in Egypt", "… in Hong Kong".
        """
        telling = self._telling(self._words(title.words))
        for begin in range(len(telling)):
            for end in (begin + 1, begin + 2):
                if end <= len(telling) and begin + len(telling) - end >= _FEWEST_KEPT:
                    yield " ".join([*telling[:begin], "_", *telling[end:]])

    def spellings(self, title: Title) -> Iterator[str]:
        """Yield forms of a title that it shares with one that is only spelt otherwise: "knives" and "knife", "WiFi" and
        "Wi-Fi", "missing points" and "points missing".
        """
        words = self._words(title.words)
        telling = self._telling(words)
        yield " ".join(word[:-_ENDING] if len(word) > _SHORT else word for word in telling)
        yield "".join(telling)
        for begin in range(len(words) - 1):
            yield " ".join([*words[:begin], *sorted(words[begin : begin + 2]), *words[begin + 2 :]])

    def unsigned(self, title: Title) -> str:
        """Return the telling words of a title, without its signs: "a < b", "a > b"."""
        return " ".join(self._telling(self._words(title.words)))

    def undated(self, title: Title) -> str:
        """Return what a title with a year or a month asks about any other time; "" for a title without one."""
        words = self._words(title.words)
        rest = [word for word in words if not self._is_date(word)]
        return " ".join([*self._telling(rest), title.signs]).strip() if len(rest) < len(words) else ""

    def _agree(self, words: list[str], others: list[str]) -> bool:
        is_swapped = words != others and sorted(words) == sorted(others)
        return not is_swapped and self._telling(words) == self._telling(others)

    def _words(self, words: str) -> list[str]:
        return [form for form in map(self._form, words.split(" ")) if form]

    def _telling(self, words: list[str]) -> list[str]:
        telling = list(filter(self._tells, words))
        if not _LETTERS.isdisjoint(telling):  # then "a" is a letter too: "from A to B"
            telling = [word for word in words if word in _LETTERS or word in telling]
        return [self._stem(word) for word in telling]

    def _corrected(self, words: list[str], others: list[str]) -> list[str]:
        """Return `words`, each rare one that looks like one of `others` that they lack replaced by that."""
        lacking = [other for other in others if other not in words]

        def is_meant(word: str, other: str) -> bool:
            return word not in others and is_typing_error(word, other) and self._is_rare(word)

        return [next((other for other in lacking if is_meant(word, other)), word) for word in words]


def _arabic_form(word: str) -> str:
    """Return an Arabic word in its normalised spelling, without the article.

    Stems would make one word of university and mosque, of school and teacher, of currency and work.
    """
    form = normalised_arabic(word)
    return form[2:] if form.startswith("ال") and len(form) > 4 else form


def _form(word: str, is_english: bool) -> str:
    """Return the word in which all that deny a verb are "not"; "" for a token without letters and digits."""
    if not _WORD.search(word):
        return ""
    return "not" if is_english and (word.endswith("n't") or word == "cannot") else word


def _are_spaced_otherwise(left: list[str], right: list[str]) -> bool:
    """Return whether two titles differ in spaces and hyphens between letters only: "e-mail", "email"."""
    numbers, others = ([word for word in words if _DIGIT.search(word)] for words in (left, right))
    return numbers == others and "".join(left) == "".join(right)


def is_typing_error(word: str, other: str) -> bool:
    """Return whether one of two words is the other with a letter changed, left out, doubled, or swapped with the next.

    The first letter must be right, since another one makes another word ("undirected", "import"). So do letters at the
    end ("Korean"), and most letters of short words. A long word may have two errors.
    """
    shorter, longer = sorted((word, other), key=len)
    if word[:1] != other[:1] or len(shorter) < 4 or not (word + other).isalpha() or {word, other} & _NO_ERRORS:
        return False
    if _DOUBLED.sub(r"\1", word) == _DOUBLED.sub(r"\1", other):
        return True
    if longer.startswith(shorter) or (len(longer) == 4 and sorted(word) != sorted(other)):
        return False
    return _errors(word, other) <= (2 if len(shorter) >= _LONG else 1)


def _errors(word: str, other: str) -> int:
    """Return the least number of letters to be changed, left out, put in, or swapped that make one word of the other.

    The optimal string alignment distance: Damerau (1964), no letter touched twice.
    """
    before, last, row = [0] * (len(other) + 1), [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        before, last, row = last, row, [i]
        for j, b in enumerate(other, 1):
            least = min(last[j] + 1, row[-1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == word[i - 2]:
                least = min(least, before[j - 2] + 1)
            row.append(least)
    return row[-1]
