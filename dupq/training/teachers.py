"""Teachers: saved encoders, whose embeddings of questions and of single words another encoder learns from.

A teacher knows written words. A `Spelling` is a written word of a form in the vocabulary.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq import system
from dupq.encoders.saved import load
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.text.languages import normaliser_of

_ROWS = 32  # of a batch
_teacher = functools.lru_cache(maxsize=1)(load)  # once per worker: each opening costs some 40 MB (with MiniLM)


class Spelling(NamedTuple):
    """A written word of a form in the vocabulary."""

    row: int  # index of the form in the vocabulary's words
    word: str
    times: int  # in the texts


def spellings(words: list[str], written: Mapping[str, int], settings: Settings) -> list[Spelling]:
    """Return the spellings of `words`; `written` are the counts of written words in the texts.

    Spellings occur at least `word_vectors.minimum_count` times; a form without any is its own spelling.
    """
    counts = {word: count for word, count in written.items() if count >= settings.word_vectors.minimum_count}
    forms = normaliser_of(settings.text).each_form(list(counts))
    rows = {word: row for row, word in enumerate(words)}
    spelt = [Spelling(rows[form], *item) for form, item in zip(forms, counts.items(), strict=True) if form in rows]
    has_spelling = {spelling.row for spelling in spelt}
    return spelt + [Spelling(row, word, 1) for word, row in rows.items() if row not in has_spelling]


def mean_vectors(spelt: list[Spelling], vectors: np.ndarray, size: int) -> np.ndarray:
    """Return the means (float32, shape (size, D)) by row of `vectors`, one per spelling, weighted by count.

    Zero vectors belong to unknown words and do not count.
    """
    row, times = (np.array([getattr(spelling, name) for spelling in spelt], np.int64) for name in ("row", "times"))
    weights = sparse.csr_array((times * vectors.any(axis=1), (row, np.arange(len(row)))), (size, len(row)))
    totals = np.maximum(1, weights.sum(axis=1))
    return ((weights @ vectors.astype(np.float64)) / totals[:, None]).astype(np.float32)


def teacher_word_vectors(encoder: str, spelt: list[Spelling], size: int) -> np.ndarray:
    """Return the teacher's embeddings of `size` words (float32, one row each); zero for a word that it does not know.

    They are the means of the embeddings of their spellings, weighted by count.
    """
    texts = pa.array([spelling.word for spelling in spelt], pa.string())
    table = pa.table({"title": pa.array([""] * len(spelt), pa.string()), "text": texts})
    return mean_vectors(spelt, embeddings_by(encoder, table, None), size)


def embeddings_by(uri: str, table: pa.Table, settings: TextSettings | None, device: str = system.CPU) -> np.ndarray:
    """Return a teacher's vectors (float16) of rows of TEXTS.

    Raises DupqError if it reads other texts than `settings` make.
    """
    import torch

    torch.set_num_threads(1)
    saved = _teacher(uri)
    text = saved.settings.text
    if saved.network.is_lexical or saved.network.kind != "cosine":
        raise DupqError(f"{uri}: a teacher's embeddings are dense vectors that are compared by cosine; choose another")
    expected = _text_settings(text)
    if settings is not None and _text_settings(settings) != expected:
        shown = ", ".join(f"text.{name}={value}" for name, value in expected.items())
        actual = ", ".join(_text_settings(settings).values())
        raise DupqError(f"{uri}: the teacher reads {shown}, and these texts are {actual}; set them alike")
    saved.network.to(system.usable(device))
    return saved.encode(table, _ROWS).vectors


def _text_settings(settings: TextSettings) -> dict[str, str]:
    """Return the settings that stored texts depend on; only the papers set `tokens`."""
    return {"code": settings.code, "tokens": str(getattr(settings, "tokens", "words")), "fields": settings.fields}
