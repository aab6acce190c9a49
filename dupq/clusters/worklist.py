"""The likeliest pairs that are not joined, and the evidence for them in words."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_WORD = re.compile(r"\w[\w+#]*")
_WORDS_SHOWN = 4
_TAGS_SHOWN = 3
_ALIKE = 0.5  # of text_overlap: the texts share much


class Titled(NamedTuple):
    """What a reader is told of a question. It is its author's: hostile text."""

    title: str
    tags: Sequence[str]


def likeliest(pairs: np.ndarray, probabilities: np.ndarray, clusters: np.ndarray, most: int) -> np.ndarray:
    """The rows (int64) of the `most` likeliest pairs, the likeliest first, ties by key; one between two clusters.

    `pairs` are int64 keys of shape (m, 2), `clusters` (likewise) those of the questions.
    """
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -probabilities))
    _, first = np.unique(np.sort(clusters[order], axis=1), axis=0, return_index=True)
    return order[np.sort(first)[:most]]


def unlinked(probabilities: np.ndarray, linked_share: float) -> np.ndarray:
    """The probabilities (float64) of pairs, given that nobody linked them.

    People link a share of the duplicates; so of pairs without a link fewer are duplicates (Bayes' rule).
    """
    p = probabilities.astype(np.float64)
    return np.asarray(p * (1 - linked_share) / (1 - linked_share * p))


def in_words(pair: Mapping[str, Any], left: Titled, right: Titled, questions: int, k: int, rarity: "Rarity") -> str:
    """The evidence of a row of `pairs` for a reader: what titles, texts and tags share, and how near the two are.

    `questions` are those of the archive, of which each lists its `k` nearest.
    """
    parts = [_titles(left.title, right.title, rarity)]
    if pair["jaccard"] is not None:
        parts.append(f"{pair['jaccard']:.0%} of the shingles of both texts are the same")
    if (pair["text_overlap"] or 0) >= _ALIKE:
        parts.append("texts much alike")
    if pair["teacher"] is not None:
        parts.append(f"the teacher's cosine is {pair['teacher']:.2f}")
    if pair["rank"] is not None:
        parts.append(f"{_ordinal(pair['rank'])}nearest of {questions:,}")
    elif pair["source"] == "encoder":
        parts.append(f"beyond the {k} nearest of each")
    return "; ".join([*parts, *_tags(left.tags, right.tags)])


class Rarity:
    """How much a word says in this archive."""

    def __init__(self, stem: Callable[[str], str], is_stop_word: Callable[[str], bool], of: Callable[[str], float]):
        """`of` is the rarity of a stem."""
        self.stem, self._is_stop_word, self._of = stem, is_stop_word, of

    def telling(self, title: str) -> dict[str, str]:
        """By their stems the words of a title that are no stop words, the rarest first."""
        words = [word for word in _WORD.findall(title.lower()) if not self._is_stop_word(word)]
        return {self.stem(word): word for word in sorted(words, key=lambda word: -self._of(self.stem(word)))}


def _titles(left: str, right: str, rarity: Rarity) -> str:
    if " ".join(left.split()).lower() == " ".join(right.split()).lower() != "":
        return "same title"
    words, others = rarity.telling(left), rarity.telling(right)
    shared = [word for stem, word in words.items() if stem in others]
    return f"titles share {_quoted(shared[:_WORDS_SHOWN])}" if shared else "titles share no telling word"


def _tags(left: Sequence[str], right: Sequence[str]) -> list[str]:
    shared = [tag for tag in left if tag in right]
    if not (left or right):
        return []
    if len(shared) == len(left) == len(right):
        return ["same tags"]
    return [f"tags share {_quoted(shared[:_TAGS_SHOWN])}" if shared else "no tag in common"]


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _ordinal(number: int) -> str:
    if number == 1:
        return ""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending} "
