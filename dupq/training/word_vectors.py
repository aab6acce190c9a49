"""Word vectors of the archive's own text: word2vec skip-gram (Mikolov et al. 2013), by gensim."""

from collections.abc import Iterable

import numpy as np
from gensim.models import Word2Vec

from dupq.config import WordVectorSettings
from dupq.errors import DupqError
from dupq.text.vocabulary import Vocabulary


def train_word_vectors(
    sentences: Iterable[list[str]], settings: WordVectorSettings, seed: int
) -> tuple[Vocabulary, np.ndarray]:
    """The words met often enough, and the table of their vectors (float32), one row an id.

    `sentences` can be iterated several times. The vector of padding is zero, that of unknown words the mean of
    all. With one worker the same sentences and seed give the same vectors. Raises DupqError if no word is
    frequent enough.
    """
    try:
        model = Word2Vec(
            sentences=sentences,
            vector_size=settings.dimensions,
            window=settings.window,
            min_count=settings.minimum_count,
            negative=settings.negative,
            epochs=settings.epochs,
            workers=settings.workers,
            seed=seed,
            sg=1,
        )
    except RuntimeError as error:
        raise DupqError(
            f"word vectors: no word stands {settings.minimum_count} times in the questions; give more of them, "
            "or lower word_vectors.minimum_count"
        ) from error
    order = sorted(
        range(len(model.wv)),
        key=lambda index: (-model.wv.expandos["count"][index], model.wv.index_to_key[index]),
    )
    vectors = model.wv.vectors[order].astype(np.float32)
    table = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors.mean(axis=0, keepdims=True), vectors])
    return Vocabulary([model.wv.index_to_key[index] for index in order]), table
