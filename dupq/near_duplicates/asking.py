"""Whether the titles of two questions whose texts are nearly the same ask the same too.

Two questions by one author, or two that fill in one template, share nearly all their words and ask different things:
"… closed under reversal?" and "… closed under complementation?", "Election 2014" and "Election 2018". So near
duplicates have the same telling words in their titles, in the same order, and the same signs. A telling word is one
that is no stop word, or one of those stop words that change what is asked ("not", "before", "why"); it counts by its
stem, and a typing error does not count. Other pairs may be duplicates all the same, but it takes more to say so.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from dupq.text.languages import is_stop_word, numbers_in, stems
from dupq.text.tokens import as_read

_WORD, _DIGIT, _DOUBLED = regex.compile(r"\w"), regex.compile(r"\d"), regex.compile(r"(.)\1+")
# Web addresses, formulas, TeX's commands, the minus of a number, a factorial; then operators, currencies and arrows.
_SIGN = regex.compile(
    r"(?:https?|ftp)://\S+|www\.\S+|\$\$?[^$]+\$\$?|\\[A-Za-z]+|(?<![\w.])-(?=\d)|(?<=\b[a-z])!"
    r"|(?P<others>[\p{Sm}\p{Sc}*/%&\\@#^!?:.\-]+)"
)
_PUNCTUATION = regex.compile(r"[.?!:\-]+|[/&]")
# Stop words of their languages that change what is asked; in other languages all stop words go.
_TELLING = {
    "arabic": "لا لم لن ليس ليست لست بدون دون غير قبل بعد تحت فوق متى أين لماذا كل كلا كلتا",
    "english": "no nor not before after above below up down out off over under against between few more most all both "
    "each other only same from how who whom when where why",
    "french": "ne n pas sans contre qui entre plus moins tous tout",
    "german": "nicht kein keine keinem keinen keiner keines nichts ohne vor nach gegen zwischen über unter aus alle "
    "nur wo wann warum wer",
    "italian": "non contro tra fra più da dal dalla chi dov dove perché quanto tutti tutto",
    "portuguese": "não sem nem depois antes entre mais só da do das dos quando quem",
    "russian": "не ни без нет нельзя никогда ничего до после под над перед при между из от все всех больше лучше когда "
    "где куда зачем кто два три один",
    "spanish": "no ni sin nada antes desde hasta contra entre más todo todos cuando donde quien quienes uno",
}
# Of these, and beside them, the words that deny.
_DENYING = {
    "arabic": "لا لم لن ليس ليست لست بدون دون غير",
    "english": "no nor not without never none nothing neither non",
    "french": "ne n pas sans",
    "german": "nicht kein keine keinem keinen keiner keines nichts ohne nie",
    "italian": "non senza",
    "portuguese": "não sem nem nunca",
    "russian": "не ни без нет нельзя никогда",
    "spanish": "no ni sin nada nunca",
}
# Words that differ from another of their kind in a letter: never typing errors.
_KINDS = """
january february march april june july august september october november december monday tuesday wednesday thursday
friday saturday sunday first second third fourth fifth sixth seventh eighth ninth tenth three four five seven eight nine
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy
eighty ninety hundred thousand million billion trillion
juin juillet junio julio junho julho giugno luglio июнь июня июль июля يونيو يوليو يونيه يوليه
"""
_NO_ERRORS = frozenset(_KINDS.split())
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_LONG = 9  # letters from which a word may have two errors


class Title(NamedTuple):
    """What a title says."""

    words: str  # tokens joined by single spaces
    signs: str  # what `signs_of` gives


def signs_of(titles: pa.Array) -> pa.Array:
    """Of each title as it is written the signs that its tokens lack (string): formulas, operators, web addresses."""
    found = [_signs(title) if title else "" for title in titles.to_pylist()]
    return pa.array(found, pa.string())


def _signs(title: str) -> str:
    found = _SIGN.finditer(as_read(title))
    signs = ("".join(match[0].split()) for match in found if not _PUNCTUATION.fullmatch(match["others"] or "a"))
    return " ".join(sign.rstrip(".?:") for sign in signs)


class Asking:
    """Compares titles in one language."""

    def __init__(self, language: str, is_rare: Callable[[str], bool]) -> None:
        """`is_rare` says whether at most one text of the archive has a word: only such a word is a typing error."""
        self._language, self._is_rare = language, is_rare
        self._stem = functools.cache(stems(language))
        self._kept = frozenset(_TELLING.get(language, "").split())
        self._denied = frozenset(_DENYING.get(language, "").split())

    def all_same(self, words: pa.Array, signs: pa.Array, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Whether the titles of the rows `left[i]` and `right[i]` ask the same (bool); `words`, `signs` as of Title."""
        found = pc.binary_join_element_wise(words, signs, "\n").dictionary_encode()
        ids, titles = found.indices.to_numpy(), [Title(*title.split("\n")) for title in found.dictionary.to_pylist()]
        pairs = np.stack([ids[left], ids[right]], axis=1)
        result = pairs[:, 0] == pairs[:, 1]
        same = functools.cache(lambda one, other: self.same(titles[one], titles[other]))
        for row in np.flatnonzero(~result).tolist():
            result[row] = same(*pairs[row].tolist())
        return result

    def same(self, left: Title, right: Title) -> bool:
        """Whether two titles ask the same; so they do if one says nothing at all: then their texts decide."""
        left, right = sorted((left, right))  # so that their order makes no difference
        first, second = self._words(left.words), self._words(right.words)
        if not (first or left.signs) or not (second or right.signs):
            return True
        if left.signs != right.signs:
            return False
        if self._agree(first, second) or _are_spaced_otherwise(first, second):
            return True
        first = self._corrected(first, second)
        return self._agree(first, self._corrected(second, first))

    def apart(self, left: Title, right: Title) -> bool:
        """Whether titles say by their words alone that they ask for different things.

        Only one has a number, a sign or a denial, or they have the same words, or the same but for stop words, in
        another order.
        """
        if left.signs != right.signs or numbers_in(left.words) != numbers_in(right.words):
            return True
        first, second = self._words(left.words), self._words(right.words)
        if self._denied.intersection(first) != self._denied.intersection(second):
            return True
        bare = [
            [self._stem(word) for word in words if not is_stop_word(word, self._language)] for words in (first, second)
        ]
        return any(one != other and sorted(one) == sorted(other) for one, other in ((first, second), bare))

    def said(self, title: Title) -> str:
        """What a title asks: its telling words in their order, and its signs; "" for nothing."""
        return " ".join([*self._telling(self._words(title.words)), title.signs]).strip()

    def _agree(self, words: list[str], others: list[str]) -> bool:
        is_swapped = words != others and sorted(words) == sorted(others)
        return not is_swapped and self._telling(words) == self._telling(others)

    def _words(self, words: str) -> list[str]:
        found = [word for word in words.split(" ") if _WORD.search(word)]
        if self._language == "english":
            return ["not" if word.endswith("n't") or word == "cannot" else word for word in found]
        return found

    def _telling(self, words: list[str]) -> list[str]:
        telling = [word for word in words if word in self._kept or not is_stop_word(word, self._language)]
        if not _LETTERS.isdisjoint(telling):  # so "a" is a letter too: "from A to B"
            telling = [word for word in words if word in _LETTERS or word in telling]
        return [self._stem(word) for word in telling]

    def _corrected(self, words: list[str], others: list[str]) -> list[str]:
        """`words` with what is rare and looks like one of `others`, which `words` lack, replaced by it."""
        lacking = [other for other in others if other not in words]
        return [next(filter(functools.partial(self._is_error, word, others), lacking), word) for word in words]

    def _is_error(self, word: str, others: list[str], other: str) -> bool:
        return word not in others and is_typing_error(word, other) and self._is_rare(word)


def _are_spaced_otherwise(left: list[str], right: list[str]) -> bool:
    """Whether two titles are the same but for the spaces and hyphens between their letters: "e-mail", "email"."""
    numbers, others = ([word for word in words if _DIGIT.search(word)] for words in (left, right))
    return numbers == others and "".join(left) == "".join(right)


def is_typing_error(word: str, other: str) -> bool:
    """Whether one of two words is the other with a letter changed, left out, doubled, or swapped with the next.

    The first letter is right: a wrong one makes other words ("undirected", "import"), as letters at the end do
    ("Korean"), and most other letters of short words. A long word may have two errors.
    """
    shorter, longer = sorted((word, other), key=len)
    if (
        word[:1] != other[:1]
        or len(shorter) < 4
        or not (word + other).isalpha()
        or not _NO_ERRORS.isdisjoint((word, other))
    ):
        return False
    if _DOUBLED.sub(r"\1", word) == _DOUBLED.sub(r"\1", other):
        return True
    if longer.startswith(shorter):
        return False
    if len(longer) == 4 and sorted(word) != sorted(other):
        return False
    return _errors(word, other) <= (2 if len(shorter) >= _LONG else 1)


def _errors(word: str, other: str) -> int:
    """The fewest letters to be changed, left out, put in, or swapped with the next that make one word of the other.

    The optimal string alignment distance: Damerau (1964), no letter touched twice.
    """
    before, last, row = [0] * (len(other) + 1), [0] * (len(other) + 1), list(range(len(other) + 1))
    for place, letter in enumerate(word, 1):
        before, last, row = last, row, [place]
        for index, wanted in enumerate(other, 1):
            least = min(last[index] + 1, row[-1] + 1, last[index - 1] + (letter != wanted))
            if place > 1 and index > 1 and letter == other[index - 2] and wanted == word[place - 2]:
                least = min(least, before[index - 2] + 1)
            row.append(least)
    return row[-1]
