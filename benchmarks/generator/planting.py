"""Duplicates of known truth: which questions are planted on which originals, and what is done to the text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.generator.vocabulary import PHRASES, WORDINGS, Vocabulary

ORIGINAL, COPY, NEAR_COPY, REPHRASING = range(4)
KIND_NAMES = ("original", "copy", "near_copy", "rephrasing")
LINKED_SHARES = np.array([0.0, 0.3, 0.4, 0.6])  # of each kind, those that people found

_KEPT_ORIGINALS = 20_000
_KEPT_OF_CHUNK = 10  # one original in so many may be met again in later chunks
_FROM_EARLIER = 0.5  # share of the duplicates whose original is of an earlier chunk
_JACCARD_RANGE = (0.83, 0.97)  # aimed at by near copies
_SHINGLE = 3
_SAME_WORDING = 0.15  # share of phrases that a rephrasing leaves in their words
_DROPPED = 0.12  # share of phrases that a rephrasing leaves out
_CLAUSE_WINDOW = 8  # how far a rephrasing moves a phrase


@dataclass(frozen=True)
class Shares:
    """How many of all questions are planted."""

    copies: float = 0.02
    near_copies: float = 0.03
    rephrasings: float = 0.05


class Source(NamedTuple):
    """An original, as far as its duplicates need it."""

    question_id: int
    about: int  # its topic and subject (subjects.py)
    title: np.ndarray
    body: np.ndarray


@dataclass
class Reservoir:
    """Originals of earlier chunks: bounded, and every chunk takes the places of some that were there."""

    sources: list[Source] = field(default_factory=list)

    def keep(self, sources: list[Source], rng: np.random.Generator) -> None:
        """Take in one in ten of `sources`."""
        chosen = rng.permutation(len(sources))[: max(1, len(sources) // _KEPT_OF_CHUNK)].tolist()
        for index, place in zip(chosen, rng.integers(0, _KEPT_ORIGINALS, len(chosen)).tolist(), strict=True):
            source = sources[index]
            own = Source(source.question_id, source.about, source.title.copy(), source.body.copy())
            if len(self.sources) < _KEPT_ORIGINALS:
                self.sources.append(own)
            else:
                self.sources[place] = own


@dataclass(frozen=True)
class Plan:
    """What each question of a chunk is; `original` is its place in the chunk, or in the reservoir."""

    kinds: np.ndarray
    original: np.ndarray
    from_reservoir: np.ndarray
    linked: np.ndarray


def plan_chunk(rng: np.random.Generator, start: int, size: int, shares: Shares, reservoir: Reservoir) -> Plan:
    """The plan for questions `start` to `start + size`; the first of a chunk is always an original."""
    kinds = np.zeros(size, np.int64)
    places = 1 + rng.permutation(max(size - 1, 0))
    taken = 0
    for kind, share in ((COPY, shares.copies), (NEAR_COPY, shares.near_copies), (REPHRASING, shares.rephrasings)):
        count = round((start + size) * share) - round(start * share)
        kinds[places[taken : taken + count]] = kind
        taken += count
    nearest_original = np.maximum.accumulate(np.where(kinds == ORIGINAL, np.arange(size), 0))
    original = nearest_original[(rng.random(size) * np.arange(size)).astype(np.int64)]
    kept = len(reservoir.sources)
    from_reservoir = (rng.random(size) < _FROM_EARLIER) & (kept > 0)
    original = np.where(from_reservoir, rng.integers(0, max(kept, 1), size), original)
    linked = rng.random(size) < LINKED_SHARES[kinds]
    return Plan(kinds, original, from_reservoir, linked)


def duplicate_of(
    vocabulary: Vocabulary, source: Source, kind: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Title and body of a duplicate, as pieces. Copies have the very same; how they are spelt is for later."""
    if kind == COPY:
        return source.title, source.body
    if kind == NEAR_COPY:
        return source.title, _edited(vocabulary, source, rng)
    return _rephrased(vocabulary, source.title, rng), _rephrased(vocabulary, source.body, rng)


def _edited(vocabulary: Vocabulary, source: Source, rng: np.random.Generator) -> np.ndarray:
    """A few words put in and a few phrases reworded, as many as leave the Jaccard that was drawn.

    A word put in breaks two shingles and makes three, a reworded phrase of w words breaks and makes w + 2. The
    first edit is always a word put in, which even the shortest question can bear.
    """
    pieces = source.body
    tokens = int(vocabulary.tokens[source.title].sum() + vocabulary.tokens[pieces].sum())
    shingles = max(tokens - _SHINGLE + 1, 1)
    aim = rng.uniform(*_JACCARD_RANGE)
    places = np.flatnonzero((pieces[1::2] == vocabulary.space) & (pieces[::2] < 2 * vocabulary.capitals))
    if not len(places):
        places = np.zeros(1, np.int64)
    places = rng.permutation(places)
    broken, made = _SHINGLE - 1, _SHINGLE
    inserted = [int(places[0])]
    result = pieces.copy()
    for place in places[1:].tolist():
        width = int(vocabulary.tokens[result[2 * place]]) + _SHINGLE - 1
        rewords = bool(place & 1)
        broken, made = broken + (width if rewords else 2), made + (width if rewords else 3)
        if (shingles - broken) / (shingles + made) < aim:
            break
        if rewords:
            result[2 * place] = _other_wording(result[2 * place : 2 * place + 1], rng)[0]
        else:
            inserted.append(place)
    words = vocabulary.single_words[rng.integers(0, len(vocabulary.single_words), len(inserted))] * WORDINGS
    additions = np.column_stack([words, np.full(len(words), vocabulary.space)]).ravel()
    return np.insert(result, np.repeat(2 * np.array(inserted) + 2, 2), additions).astype(np.int32)


def _rephrased(vocabulary: Vocabulary, pieces: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same phrases in other wordings, moved about, some left out; separators and code lines keep their places."""
    phrases, separators = pieces[::2].astype(np.int64), pieces[1::2]
    is_text = phrases < 2 * vocabulary.capitals
    droppable = is_text & (separators == vocabulary.space) & (phrases < vocabulary.capitals)
    kept = ~(droppable & (rng.random(len(phrases)) < _DROPPED))
    phrases, separators, is_text = phrases[kept], separators[kept], is_text[kept]
    texts = phrases[is_text]
    capital = texts // vocabulary.capitals * vocabulary.capitals
    spoken = texts % vocabulary.capitals
    order = np.argsort(np.arange(len(spoken)) + rng.random(len(spoken)) * _CLAUSE_WINDOW, kind="stable")
    spoken = spoken[order]
    same = rng.random(len(spoken)) < _SAME_WORDING
    phrases[is_text] = np.where(same, spoken, _other_wording(spoken, rng)) + capital
    result = np.empty(2 * len(phrases), np.int32)
    result[::2], result[1::2] = phrases, separators
    return result


def _other_wording(phrases: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each phrase in another wording; capitals stay."""
    wording = phrases % WORDINGS
    return phrases - wording + (wording + rng.integers(1, WORDINGS, len(phrases))) % WORDINGS


def _spaced(text: bytes) -> bytes:
    return text.replace(b". ", b".&#xA;&#xA;   ").replace(b", ", b",  ")


def _marked(text: bytes) -> bytes:
    """Other elements, the same text."""
    opened = text.replace(b"&lt;p&gt;", b"&lt;div&gt;&lt;strong&gt;")
    return opened.replace(b"&lt;/p&gt;", b"&lt;/strong&gt;&lt;br /&gt;&lt;/div&gt;")


def _lowered(text: bytes) -> bytes:
    return text.lower().replace(b"&#xa;", b"&#xA;")


def _unchanged(text: bytes) -> bytes:
    return text


SPELLINGS: tuple[Callable[[bytes], bytes], ...] = (_unchanged, _spaced, _marked, _lowered)  # of a copy's body

assert PHRASES * WORDINGS * 2 < 1 << 31  # pieces are int32
