"""Titles and bodies as rows of pieces, for thousands of posts at once.

A draft is phrase, separator, phrase, separator … by number. All that has structure is in the separators: where a
sentence, a paragraph, a list item or a block of code ends is decided for each place alone, so that nothing here
loops over posts.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.generator.subjects import of_subjects, topic_of
from benchmarks.generator.vocabulary import (
    CODE,
    CODE_LAW_BITS,
    LAW_BITS,
    LIST,
    NOTHING,
    PHRASES,
    SEPARATOR_LAW_BITS,
    TEXT,
    TOPIC_LAW_BITS,
    WORDINGS,
    Vocabulary,
)

_SPREAD = 0.75  # sigma of the log-normal lengths, as in real dumps
_FEWEST_PHRASES, _MOST_PHRASES = 9, 900
_SENTENCE_ENDS, _PARAGRAPH_ENDS = 56, 72  # of 256: after a phrase; after a sentence
_KINDS = np.array([TEXT] * 54 + [CODE] * 7 + [LIST] * 3)  # of 64
_WORDING_OF = np.array([0] * 10 + [1] * 4 + [2] * 2)  # of 16
_TITLE_PHRASES = np.array([2, 3, 3, 4, 4, 4])
_ONE_OF_BODY = 2  # one in so many phrases of a title stands at the start of the body, too


@dataclass(frozen=True)
class Drafts:
    """The drafts of n posts: that of post i is `pieces[offsets[i]:offsets[i + 1]]` (int32)."""

    pieces: np.ndarray
    offsets: np.ndarray

    def of(self, post: int) -> np.ndarray:
        """One post's draft."""
        return self.pieces[self.offsets[post] : self.offsets[post + 1]]


def draft_bodies(vocabulary: Vocabulary, rng: np.random.Generator, about: np.ndarray, mean_phrases: float) -> Drafts:
    """A body for each of `about` (subjects.py), of log-normal length."""
    scale = np.log(mean_phrases) - _SPREAD**2 / 2
    lengths = rng.lognormal(scale, _SPREAD, len(about)).astype(np.int64)
    lengths = np.clip(lengths, _FEWEST_PHRASES, _MOST_PHRASES)
    ends = np.cumsum(lengths)
    size = int(ends[-1]) if len(ends) else 0
    chance = rng.integers(0, 1 << 32, size, np.uint32)
    phrases = _draw_phrases(vocabulary, rng, np.repeat(about, lengths), size)
    after_sentence = (chance & 255) < _SENTENCE_ENDS
    after_block = after_sentence & ((chance >> 8 & 255) < _PARAGRAPH_ENDS)
    after_block[ends - 1] = True
    separators = vocabulary.separator_law[chance >> (32 - SEPARATOR_LAW_BITS)]
    kinds = _block_kinds(rng, after_block, ends)
    separators = _with_ends(vocabulary, separators, chance, kinds, after_sentence, after_block, ends)
    phrases = _with_capitals(vocabulary, phrases, kinds, separators, after_sentence | after_block)
    return Drafts(_interleaved(phrases, separators), np.concatenate([[0], 2 * ends]))


def draft_titles(vocabulary: Vocabulary, rng: np.random.Generator, about: np.ndarray, bodies: Drafts) -> Drafts:
    """A title for each body; some of its phrases stand at the start of the body as well."""
    lengths = _TITLE_PHRASES[rng.integers(0, len(_TITLE_PHRASES), len(about))]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    size = int(ends[-1]) if len(ends) else 0
    phrases = _draw_phrases(vocabulary, rng, np.repeat(about, lengths), size)
    places = np.repeat(bodies.offsets[:-1], lengths) + 2 * rng.integers(0, _FEWEST_PHRASES, size)
    of_body = bodies.pieces[places]
    taken = (of_body < 2 * vocabulary.capitals) & (rng.integers(0, _ONE_OF_BODY, size) == 0)
    phrases = np.where(taken, of_body % vocabulary.capitals, phrases)
    phrases[starts] += vocabulary.capitals
    separators = vocabulary.title_separator_law[rng.integers(0, len(vocabulary.title_separator_law), size)]
    separators[ends - 1] = vocabulary.title_ends[rng.integers(0, len(vocabulary.title_ends), len(ends))]
    return Drafts(_interleaved(phrases, separators), np.concatenate([[0], 2 * ends]))


def _draw_phrases(vocabulary: Vocabulary, rng: np.random.Generator, about: np.ndarray, size: int) -> np.ndarray:
    """Half by the law of all phrases, half by that of the topic, but for those of the subject; one random number for
    each phrase."""
    chance = rng.integers(0, 1 << 32, size, np.uint32)
    quantile, wording, of_topic = chance & ((1 << LAW_BITS) - 1), chance >> 20 & 15, chance >> 31 == 1
    topic_place = vocabulary.topic_law[quantile & ((1 << TOPIC_LAW_BITS) - 1)]
    own = (vocabulary.topic_starts[topic_of(about)] + topic_place) % PHRASES
    phrases = np.where(of_topic, own, vocabulary.phrase_law[quantile])
    has_subject, subjects = of_subjects(vocabulary, about, chance >> 24 & 127, quantile)
    phrases = np.where(has_subject, subjects, phrases)
    return phrases * WORDINGS + _WORDING_OF[wording]


def _block_kinds(rng: np.random.Generator, after_block: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The kind of the block that each phrase stands in; the first of a post is always text."""
    blocks = np.cumsum(after_block) - after_block
    kinds = _KINDS[rng.integers(0, len(_KINDS), int(after_block.sum()))]
    if len(ends):
        kinds[blocks[np.concatenate([[0], ends[:-1]])]] = TEXT
    return kinds[blocks]


def _with_ends(
    vocabulary: Vocabulary,
    separators: np.ndarray,
    chance: np.ndarray,
    kinds: np.ndarray,
    after_sentence: np.ndarray,
    after_block: np.ndarray,
    ends: np.ndarray,
) -> np.ndarray:
    sentences = np.flatnonzero(after_sentence)
    separators[sentences] = vocabulary.sentence_ends[chance[sentences] >> 16 & 15]
    items = sentences[kinds[sentences] == LIST]
    separators[items] = vocabulary.list_break
    code = np.flatnonzero(kinds == CODE)
    separators[code] = vocabulary.code_tail_law[chance[code] >> (32 - CODE_LAW_BITS)]
    blocks = np.flatnonzero(after_block)
    following = np.append(kinds, NOTHING)[blocks + 1]
    following[np.isin(blocks, ends - 1, assume_unique=True)] = NOTHING
    separators[blocks] = vocabulary.breaks[kinds[blocks], following]
    return separators


def _with_capitals(
    vocabulary: Vocabulary, phrases: np.ndarray, kinds: np.ndarray, separators: np.ndarray, is_end: np.ndarray
) -> np.ndarray:
    """Sentences start with a capital; where a block is code, halves of its lines take the phrases' places."""
    phrases[np.flatnonzero(np.append(True, is_end[:-1])[: len(phrases)])] += vocabulary.capitals
    code = np.flatnonzero(kinds == CODE)
    mask = (1 << CODE_LAW_BITS) - 1
    phrases[code] = vocabulary.code_head_law[(phrases[code] * 2654435761 + separators[code]) >> 7 & mask]
    return phrases


def _interleaved(phrases: np.ndarray, separators: np.ndarray) -> np.ndarray:
    pieces = np.empty(2 * len(phrases), np.int32)
    pieces[::2] = phrases
    pieces[1::2] = separators
    return pieces
