"""The idea of M-NET (Zhou, He, Zhao, Hu, ACL 2015): word vectors that know the categories, here tags, of questions.

The paper adds to skip-gram a term that draws the vectors of two words together by how much their categories are alike,
and makes a question of its words' vectors by a Fisher kernel (of a mixture of Gaussians). Here both are simpler:

- The tags of a question appear among its words, one before every `settings.window` words, in turn. So words that occur
  under one tag share a context, and skip-gram itself draws them together. Tags are words of their own: the tag "visas"
  is not the word "visas".
- A question is the mean of its words' vectors. Tags are read in training only: neither the archive's questions nor
  queries are represented by theirs, as in the paper.

The paper's data has one category a question, a tree's leaf; a Stack Exchange question has up to five tags, or none.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dupq.settings.sections import TextSettings
from dupq_papers.settings import PaperWordVectors
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.cosine import CosineRanker
from dupq_papers.systems.vectors import AS_STORED, Sentences, WordVectors, bags, trained_on

_TAG = "tag "  # with a space, which no word of a text has


def tagged_vectors(
    collection: Collection, settings: PaperWordVectors, seed: int, reading: TextSettings = AS_STORED
) -> WordVectors:
    """Word vectors of the collection's texts and tags; those of tags are left out."""
    found = trained_on(_TaggedSentences(collection, settings.window, reading), settings, seed)
    rows = [row for row, word in enumerate(found.words) if not word.startswith(_TAG)]
    return WordVectors(tuple(found.words[row] for row in rows), found.table[rows])


def with_tags(words: Sequence[str], tags: Sequence[str], window: int) -> list[str]:
    """`words` with a tag before each `window` of them, the tags in turn; no text shows fewer than all its tags."""
    if not tags:
        return list(words)
    found: list[str] = []
    for place in range(max(len(tags), -(-len(words) // window))):
        found += [_TAG + tags[place % len(tags)], *words[place * window : (place + 1) * window]]
    return found


class _TaggedSentences:
    """The words of each text among its tags, again and again."""

    def __init__(self, collection: Collection, window: int, reading: TextSettings) -> None:
        self._sentences = Sentences(collection.texts, reading)
        self._tags = collection.tags
        self._window = window

    def __iter__(self) -> Iterator[list[str]]:
        pairs = zip(self._sentences, self._tags, strict=True)
        return (with_tags(words, tags, self._window) for words, tags in pairs)


class MNet(CosineRanker):
    """Questions as means of word vectors, which are those of `tagged_vectors`."""

    def __init__(self, collection: Collection, vectors: WordVectors, *, reading: TextSettings = AS_STORED) -> None:
        """Unknown words are left out; a question without a known word is not ranked."""
        _, counts = bags(collection.texts, reading, vectors.words)
        sums = counts @ vectors.table.astype(np.float64)
        super().__init__(collection.keys, sums / np.maximum(counts.sum(axis=1), 1.0)[:, None])
