"""Encoders that a training begins with or learns from.

The network is fresh over its word vectors, or has the weights of another encoder. That may be the encoder that ships
with dupq, encoders/base/encoder.npz, packed as rows of small integers instead of floats; base/NOTICE.txt says what it
was trained on.
"""

import functools
import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import system
from dupq.encoders.saved import load
from dupq.errors import DupqError, SettingError
from dupq.neighbours.embeddings import COSINE
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings, WordVectorSettings
from dupq.text.questions import FIRST_WORD, Vocabulary

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder

BASE = Path(__file__).parents[1] / "encoders" / "base" / "encoder.npz"
SETTINGS, WORDS, SCALES = "settings", "words", ".scales"  # names in the packed file
_WORD_VECTORS = "words.weight"
_ROWS = 32  # of a batch that a teacher encodes


class Start(NamedTuple):
    """An encoder whose weights a training begins with."""

    settings: Settings
    words: list[str]  # in the order of their ids
    tensors: dict[str, np.ndarray]  # its weights (float32) by name


def unpack(content: bytes) -> Start:
    """Return the encoder that benchmarks/base.py packed, up to the rounding of its weights."""
    with np.load(io.BytesIO(content), allow_pickle=False) as packed:
        arrays = {name: packed[name] for name in packed.files}
    settings = config.known_in(json.loads(arrays.pop(SETTINGS).tobytes()))
    words = arrays.pop(WORDS).tobytes().decode().split("\n")
    scales = {name: arrays.pop(name) for name in list(arrays) if name.endswith(SCALES)}
    one = np.float32(1)
    tensors = {name: array.astype(np.float32) * scales.get(f"{name}{SCALES}", one) for name, array in arrays.items()}
    return Start(settings, words, tensors)


def base_fingerprint() -> str:
    """Return a hash of the encoder that ships with dupq."""
    return hashlib.sha256(BASE.read_bytes()).hexdigest()


@functools.lru_cache(maxsize=1)
def read_start(name: str) -> Start:
    """Return the encoder that `word_vectors.start` names: "base", which ships with dupq, or the URI of a saved one."""
    if name == "base":
        return unpack(BASE.read_bytes())
    saved = load(name)
    tensors = {key: value.numpy() for key, value in saved.network.state_dict().items()}
    return Start(saved.settings, saved.vocabulary.words, tensors)


def check_start(settings: Settings) -> None:
    """Raise SettingError if an encoder with `settings` cannot begin with the weights of `word_vectors.start`."""
    name, text, shape = settings.word_vectors.start, settings.text, _shape(settings)
    start = read_start(name)
    values = [  # the words of both must mean the same, and their weights have the same shapes
        ("text.word_form", text.word_form, start.settings.text.word_form),
        ("text.language", text.language, start.settings.text.language),
        *((f"encoder.{field}", shape.get(field, "not set"), value) for field, value in _shape(start.settings).items()),
        ("word_vectors.dimensions", settings.word_vectors.dimensions, start.tensors[_WORD_VECTORS].shape[1]),
    ]
    # the language is detected later, and the length of vectors is the other encoder's
    undecided = {"text.language": "auto", "word_vectors.dimensions": WordVectorSettings().dimensions}
    for setting, value, start_value in values:
        if value not in (start_value, undecided.get(setting)):
            raise SettingError(
                f"setting '{setting}' is {value!r}, but the encoder word_vectors.start={name} has {start_value!r}; "
                "set the same value, or train from nothing with word_vectors.algorithm=random"
            )


def _shape(settings: Settings) -> dict[str, Any]:
    """Return the network settings that the shapes of its weights depend on."""
    from dupq.encoders.encoding import network_settings

    return network_settings(settings.encoder).model_dump(exclude={"maximum_tokens", "dropout"})


def shared_words(start: Start, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices (int64) of the words that both have, in `words` and in `start.words`."""
    index = {word: row for row, word in enumerate(start.words)}
    shared = [(row, index[word]) for row, word in enumerate(words) if word in index]
    rows, start_rows = np.array(shared, np.int64).reshape(-1, 2).T
    return rows.copy(), start_rows.copy()


def known_vectors(start: Start, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors (float32, one row each) that `start` has of `words`, and which words it has.

    The vector of a word that it lacks is zero.
    """
    rows, start_rows = shared_words(start, words)
    table = start.tensors[_WORD_VECTORS][FIRST_WORD:]
    vectors, is_known = np.zeros((len(words), table.shape[1]), np.float32), np.zeros(len(words), bool)
    vectors[rows], is_known[rows] = table[start_rows], True
    return vectors, is_known


def new_network(
    vocabulary: Vocabulary,
    word_vectors: np.ndarray,
    texts: Iterable[np.ndarray],
    pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    settings: Settings,
) -> "Encoder":
    """Return the network over `word_vectors` (one row per id), initialised from the archive's `texts` and `pairs`.

    See Encoder.prepare for these. With word_vectors.algorithm=start it gets the weights of the encoder that
    `word_vectors.start` names, except those of words that this lacks and those that describe one archive. Raises
    SettingError as `check_start` does.
    """
    from dupq.encoders.encoding import build

    if settings.word_vectors.goes_on:
        check_start(settings)
    network = build(settings.encoder, word_vectors, settings.training.seed)
    network.set_vocabulary(vocabulary.words)
    network.prepare(texts, pairs)
    if settings.word_vectors.goes_on:
        copy_weights(read_start(settings.word_vectors.start), network, vocabulary)
    return network


def copy_weights(start: Start, network: "Encoder", vocabulary: Vocabulary) -> None:
    """Copy the weights of `start` to `network`, except for word vectors and weights that describe one archive."""
    import torch

    ids, start_ids = (torch.from_numpy(rows + FIRST_WORD) for rows in shared_words(start, vocabulary.words))
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name == _WORD_VECTORS or name in network.archive_weights:
                continue
            weights = torch.from_numpy(np.asarray(start.tensors[name])).to(tensor)
            if tensor.ndim and tensor.shape[0] == len(vocabulary):
                tensor[ids] = weights[start_ids]
            else:
                tensor.copy_(weights)


# A teacher: a saved encoder, from whose embeddings of questions and of single words another one learns.

_teacher = functools.lru_cache(maxsize=1)(load)  # once per worker: each opening costs some 40 MB (with MiniLM)


def embeddings_by(uri: str, table: pa.Table, settings: TextSettings | None, device: str = system.CPU) -> np.ndarray:
    """Return a teacher's vectors (float16) of rows of TEXTS.

    Raises DupqError if it reads other texts than `settings` make.
    """
    import torch

    torch.set_num_threads(1)
    saved = _teacher(uri)
    text = saved.settings.text
    if saved.network.is_lexical or saved.network.kind != COSINE:
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
