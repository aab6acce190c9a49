"""Word vectors as the systems of the papers take them, and questions as bags of words.

How a question is read into words is a `TextSettings` (dupq/text/languages.py), the same for the vectors and for
the system: a system that reads lemmas needs the vectors of lemmas.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from dupq.settings.sections import TextSettings, WordVectorSettings
from dupq.text.languages import normaliser_of
from dupq.text.questions import FIRST_WORD
from dupq.training import word_vectors

AS_STORED = TextSettings()


@dataclass(frozen=True)
class WordVectors:
    """Distinct words, and a row of `table` for each. A word without a row is unknown: the systems say what it does."""

    words: tuple[str, ...]
    table: np.ndarray  # float32, (V, d)


def trained_on(sentences: Iterable[list[str]], settings: WordVectorSettings, seed: int) -> WordVectors:
    """word2vec by gensim on lists of words, which are read several times.

    With one worker the same sentences and seed give the same vectors. Raises DupqError if no word is frequent enough.
    """
    return of_words(word_vectors.make_word_vectors(sentences, settings, seed))


def of_words(made: word_vectors.WordVectors) -> WordVectors:
    """Without the rows of padding and of unknown words."""
    return WordVectors(tuple(made.words), made.table[FIRST_WORD : FIRST_WORD + len(made.words)])


class Sentences:
    """All the words of each text, in their form and before filters; can be iterated again and again."""

    def __init__(self, texts: pa.StringArray, reading: TextSettings) -> None:
        """`texts` are tokens joined by single spaces."""
        self._texts = texts
        self._normaliser = normaliser_of(reading)

    def __iter__(self) -> Iterator[list[str]]:
        """One list a text."""
        return (self._normaliser.all_words(text) for text in self._texts.to_pylist())


def bags(
    texts: pa.StringArray, reading: TextSettings, words: Sequence[str] | None = None
) -> tuple[tuple[str, ...], sparse.csr_array]:
    """How often each text has each of `words`, or of all its words in alphabetical order: those words, and (n, V).

    float64. Filters of `reading` that leave nothing of a text leave it whole.
    """
    normaliser = normaliser_of(reading)
    numbers, offsets, forms = normaliser.in_forms(normaliser.read(texts))
    read = pa.LargeListArray.from_arrays(pa.array(offsets), forms.take(pa.array(numbers))).to_pylist()
    if words is None and not any(read):  # which scikit-learn refuses
        return (), sparse.csr_array((len(read), 0))
    counter = CountVectorizer(analyzer=list, vocabulary=words, lowercase=False, dtype=np.float64)
    counts = sparse.csr_array(counter.fit_transform(read))
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
