"""The network that training begins with: fresh over its word vectors, or going on from another encoder."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dupq.encoders.saved import BASE, Start, load, unpack
from dupq.errors import SettingError
from dupq.settings.config import Settings
from dupq.settings.sections import WordVectorSettings
from dupq.text.questions import FIRST_WORD, Vocabulary

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder

_WORDS = "words.weight"
_READING = ("word_form", "language")  # what a word is: alike in start and training


@functools.lru_cache(maxsize=1)
def read_start(encoder: str) -> Start:
    """The encoder named by `word_vectors.start`: "base", the one that ships with dupq, or the URI of a saved one."""
    if encoder == "base":
        return unpack(BASE.read_bytes())
    saved = load(encoder)
    tensors = {name: value.numpy() for name, value in saved.network.state_dict().items()}
    return Start(saved.settings, saved.vocabulary.words, tensors)


def check_start(settings: Settings) -> None:
    """Raise SettingError where an encoder with `settings` cannot go on from the one that they name."""
    name = settings.word_vectors.start
    found = read_start(name)
    start = found.settings
    for part in _READING:
        given, there = getattr(settings.text, part), getattr(start.text, part)
        if given != there and given != "auto":  # the language is found later
            raise SettingError(
                f"setting 'text.{part}' is {given!r}, but the encoder word_vectors.start={name} reads {there!r}; set "
                "it alike, or train from nothing with word_vectors.algorithm=random"
            )
    mine, theirs = (_shape(one) for one in (settings, start))
    if mine != theirs:
        described = ", ".join(f"encoder.{part}={value}" for part, value in theirs.items())
        raise SettingError(
            f"setting 'encoder': word_vectors.start={name} has {described}; set it alike, or train "
            " from nothing with word_vectors.algorithm=random"
        )
    length = found.tensors[_WORDS].shape[1]
    if settings.word_vectors.dimensions not in (WordVectorSettings().dimensions, length):
        raise SettingError(
            f"setting 'word_vectors.dimensions' is {settings.word_vectors.dimensions}, but the vectors of "
            f"word_vectors.start={name} have {length}; leave it out, or train from nothing with "
            "word_vectors.algorithm=random"
        )


def _shape(settings: Settings) -> dict[str, Any]:
    """The settings of a network that its weights depend on."""
    from dupq.encoders.encoding import network_settings

    return network_settings(settings.encoder).model_dump(exclude={"maximum_tokens", "dropout"})


def shared_words(start: Start, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices (int64) of the words of both, in `words` and in the encoder that training goes on from."""
    theirs = {word: row for row, word in enumerate(start.words)}
    shared = [(row, theirs[word]) for row, word in enumerate(words) if word in theirs]
    own, other = np.array(shared, np.int64).reshape(-1, 2).T
    return own.copy(), other.copy()


def known_vectors(start: Start, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of `words` (float32, one row each) by the encoder that training goes on from.

    Also which words it has. Those of words that it lacks are zero.
    """
    own, other = shared_words(start, words)
    table = start.tensors[_WORDS][FIRST_WORD:]
    vectors, is_known = np.zeros((len(words), table.shape[1]), np.float32), np.zeros(len(words), bool)
    vectors[own], is_known[own] = table[other], True
    return vectors, is_known


def new_network(
    vocabulary: Vocabulary,
    word_vectors: np.ndarray,
    texts: Iterable[np.ndarray],
    pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    settings: Settings,
) -> "Encoder":
    """The network over `word_vectors` (one row an id), initialised from the archive's `texts` and `pairs`.

    See Encoder.prepare for these. With word_vectors.algorithm=start its weights are those of the encoder that training
    goes on from; those of words that it lacks, and what only holds for one archive, are as in a fresh one. Raises
    SettingError as `check_start` does.
    """
    from dupq.encoders.encoding import build

    if settings.word_vectors.goes_on:
        check_start(settings)
    network = build(settings.encoder, word_vectors, settings.training.seed)
    network.set_vocabulary(vocabulary.words)
    network.prepare(texts, pairs)
    if settings.word_vectors.goes_on:
        go_on_from(read_start(settings.word_vectors.start), network, vocabulary)
    return network


def go_on_from(start: Start, network: "Encoder", vocabulary: Vocabulary) -> None:
    """Take the weights of `start`, but for the word vectors, which are there already."""
    import torch

    own, other = (torch.from_numpy(rows + FIRST_WORD) for rows in shared_words(start, vocabulary.words))
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name == _WORDS or name in network.of_archive:
                continue
            given = torch.from_numpy(np.asarray(start.tensors[name])).to(tensor)
            is_by_word = tensor.ndim and tensor.shape[0] == len(vocabulary)
            if is_by_word:
                tensor[own] = given[other]
            else:
                tensor.copy_(given)
