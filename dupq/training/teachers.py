"""Teachers: saved encoders, whose embeddings of questions and of single words another encoder learns from."""

import functools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dupq import system
from dupq.encoders.saved import load
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.training.word_vectors import mean_vectors, spellings

_ROWS = 32  # of a batch
_teacher = functools.lru_cache(maxsize=1)(load)  # once per worker: each opening costs some 40 MB (with MiniLM)


def teacher_word_vectors(words: list[str], encoder: str, written: Mapping[str, int], settings: Settings) -> np.ndarray:
    """Return the teacher's embeddings of single words (float32, one row each); zero for a word that it does not know.

    A teacher knows written words, whose counts in the texts are `written`. A stem gets the mean of the embeddings of
    its frequent spellings, weighted by count, or else its own.
    """
    spelt = spellings(words, written, settings)
    texts = pa.array([spelling.word for spelling in spelt], pa.string())
    table = pa.table({"title": pa.array([""] * len(spelt), pa.string()), "text": texts})
    return mean_vectors(spelt, embeddings_by(encoder, table, None), len(words))


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
