"""Word vectors as the systems of the papers take them, and questions as bags of words.

How a question is read into words is a `TextSettings` (dupq/text/normalisation.py), the same for the vectors and for
the system: a system that reads lemmas needs the vectors of lemmas.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from dupq.errors import DupqError
from dupq.evaluation.systems.collection import Collection
from dupq.settings.text import TextSettings
from dupq.settings.training import WordVectorSettings
from dupq.text.normalisation import Normaliser
from dupq.text.vocabulary import FIRST_WORD
from dupq.training.vector_files import read_vectors
from dupq.training.word_vectors import make_word_vectors

AS_STORED = TextSettings()


@dataclass(frozen=True)
class WordVectors:
    """Distinct words, and a row of `table` for each. A word without a row is unknown: the systems say what it does."""

    words: tuple[str, ...]
    table: np.ndarray  # float32, (V, d)


def trained(
    collection: Collection, settings: WordVectorSettings, seed: int, reading: TextSettings = AS_STORED
) -> WordVectors:
    """word2vec by gensim on all texts of the collection, unfiltered, as the settings say (one worker by default)."""
    return trained_on(Sentences(collection.texts, reading), settings, seed)


def trained_on(sentences: Iterable[list[str]], settings: WordVectorSettings, seed: int) -> WordVectors:
    """word2vec by gensim on lists of words, which are read several times.

    With one worker the same sentences and seed give the same vectors. Raises DupqError if no word is frequent enough.
    """
    made = make_word_vectors(sentences, settings, seed)
    return WordVectors(tuple(made.words), made.table[FIRST_WORD : FIRST_WORD + len(made.words)])


def read(uri: str, collection: Collection, dimensions: int, reading: TextSettings = AS_STORED) -> WordVectors:
    """The vectors that a file (word2vec, or GloVe as text) has of the collection's words, in alphabetical order.

    Raises DupqError for a damaged file, or if it has none of the words.
    """
    words = sorted({word for sentence in Sentences(collection.texts, reading) for word in sentence})
    found = read_vectors(uri, words, dimensions)
    if not found.is_found.any():
        raise DupqError(f"{uri}: none of the {len(words):,} words of the collection is in it")
    known = np.flatnonzero(found.is_found)
    return WordVectors(tuple(words[row] for row in known.tolist()), found.table[known])


class Sentences:
    """All the words of each text, in their form and before filters; can be iterated again and again."""

    def __init__(self, texts: pa.StringArray, reading: TextSettings) -> None:
        """`texts` are tokens joined by single spaces."""
        self._texts = texts
        self._normaliser = Normaliser(reading)

    def __iter__(self) -> Iterator[list[str]]:
        """One list a text."""
        return (self._normaliser.all_words(text) for text in self._texts.to_pylist())


def bags(
    texts: pa.StringArray, reading: TextSettings, words: Sequence[str] | None = None
) -> tuple[tuple[str, ...], sparse.csr_array]:
    """How often each text has each of `words`, or of all its words in alphabetical order: those words, and (n, V).

    float64. Filters of `reading` that leave nothing of a text leave it whole.
    """
    read_words = Normaliser(reading).words
    counter = CountVectorizer(analyzer=read_words, vocabulary=words, lowercase=False, dtype=np.float64)
    stored = texts.to_pylist()
    if words is None and not any(stored):  # which scikit-learn refuses
        return (), sparse.csr_array((len(stored), 0))
    counts = sparse.csr_array(counter.fit_transform(stored))
    counts.sort_indices()
    return tuple(counter.get_feature_names_out().tolist()), counts


def tf_idf(counts: sparse.csr_array) -> sparse.csr_array:
    """tf ln(N / df) of bags (N, V); a word that all texts have weighs nothing."""
    texts, words = counts.shape
    having = np.bincount(counts.indices, minlength=words)
    rarity = np.log(np.divide(texts, having, out=np.ones(words), where=having > 0))
    weighted = sparse.csr_array((counts.data * rarity[counts.indices], counts.indices, counts.indptr), counts.shape)
    weighted.eliminate_zeros()
    return weighted
