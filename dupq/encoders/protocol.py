"""The protocol of encoders: token ids in, one embedding per text out, and how two embeddings are scored.

Networks also share their settings, batches, the table of word vectors, and masks.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import nn

from dupq.encoders import on_device
from dupq.encoders.on_device import Batch, DeviceTexts, moved
from dupq.neighbours.embeddings import COSINE, Measure
from dupq.settings.sections import EncoderSettings
from dupq.text.questions import PADDING, UNKNOWN
from dupq.text.token_arrays import TokenIds

_CPU = torch.device("cpu")


class Embedding(NamedTuple):
    """Embeddings of B texts: a dense vector each, and a bag of words each if the encoder has a lexical part.

    A bag is a row of ascending word ids with their weights. Entries of weight 0 are ignored: they pad, and a word may
    be repeated if all but one of its entries have weight 0.
    """

    dense: torch.Tensor  # (B, D)
    bag: tuple[torch.Tensor, ...] = ()  # words (B, W), int64, and weights (B, W); empty without a lexical part

    def rows(self, start: int, stop: int) -> "Embedding":
        """Return the embeddings of texts `start` to `stop`."""
        return self.take(slice(start, stop))

    def take(self, texts: torch.Tensor | slice) -> "Embedding":
        """Return the embeddings of texts by row number (int64, repeats allowed)."""
        return Embedding(self.dense[texts], tuple(side[texts] for side in self.bag))


class Encoder(nn.Module, abc.ABC):
    """One tower of a Siamese network: both questions of a pair go through it.

    Shapes: B texts, L tokens (padded), D dimensions, W words of a bag.
    """

    words: nn.Embedding  # the word vectors, one row per id of the vocabulary; saved as words.weight
    dimensions: int  # D
    kind: str = COSINE  # similarity of two dense vectors; see Measure
    is_lexical: bool = False  # whether its embeddings have bags of words
    # names of weights that describe one archive: a training that starts from this encoder does not copy them
    archive_weights: frozenset[str] = frozenset()

    @abc.abstractmethod
    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """Return the embeddings of token ids (B, L), whose rows begin with `lengths` (B,) tokens.

        An embedding depends on its own tokens only, neither on the padding nor on other rows. An empty text has a zero
        vector and an empty bag.
        """

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor | None:
        """Return the dense vectors (n, D) of `forward`, up to rounding, computed on the CPU without padding.

        None if `forward` on batches is as fast. The bits of a vector depend on its own text only. There are no
        gradients; call it in torch's inference mode.
        """
        return None

    def forward_unpadded(self, texts: TokenIds | DeviceTexts) -> Embedding | None:
        """Return the embeddings of `forward`, up to rounding, computed without padding; differentiable.

        None if `forward` on batches is as fast. Dropout draws other numbers, and a bag that `score` does not read may
        be missing. Texts of a network on a GPU are there, too.
        """
        return None

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return the weights in a bag of known `words` (int, any shape) that a text has `counts` times.

        Only encoders with a lexical part implement it.
        """
        raise NotImplementedError

    @property
    def measure(self) -> Measure:
        """How two embeddings are scored, with the weights learned so far."""
        return Measure(self.kind)

    def score(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """Return the scores (B,) of pairs of embeddings that training compares; differentiable. By default cosines."""
        return nn.functional.cosine_similarity(left.dense, right.dense, dim=-1, eps=1e-12)

    def score_matrix(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """Return the scores (n, m) of every left with every right embedding; see `score`."""
        normal = nn.functional.normalize
        return normal(left.dense, dim=-1, eps=1e-12) @ normal(right.dense, dim=-1, eps=1e-12).T

    def set_vocabulary(self, words: list[str]) -> None:
        """Set the words of the vocabulary in the order of their ids, before any other call. Ignored by default."""

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Initialise the network from the archive before any gradient; some encoders learn everything here.

        `texts` are the token ids (int32) of all questions of the archive and can be iterated several times. `pairs` are
        those of the known duplicates of the training part. By default nothing is done.
        """

    def begin_step(self) -> None:
        """Prepare for a training step, whose texts may go through the network in several calls.

        A network may draw here what dropout leaves out in all of them. By default nothing is done.
        """

    def tune(self, quality: Callable[[], float] | None) -> None:
        """Choose weights without gradients after training; `quality` measures the network's development MAP.

        It is None if there are too few known duplicates to measure it. By default nothing is done.
        """

    @property
    def trainable(self) -> bool:
        """Whether anything is learned by gradients."""
        return any(parameter.requires_grad for parameter in self.parameters())


# Batching texts of many lengths into few shapes.
#
# Every batch has the same number of rows, and a text is padded to a length that depends on its own length only. So its
# matrices always have the same shape, and it gets the same bits whichever texts share its batch: a run's answer does
# not depend on its shards. On a GPU bits depend on the other texts in any case, so batches may be larger there.


def padded_length(length: int) -> int:
    """Return the length that a text of `length` tokens is padded to: steps of about a third, at least 8."""
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return max(8, -(-length // step) * step)


def batches(texts: TokenIds, rows: int, device: torch.device = _CPU) -> Iterator[Batch]:
    """Yield batches of texts of the same padded length; the last batch of a length is filled with empty rows.

    If `rows` is 0, all texts of a length are one batch, which has no empty rows.
    """
    lengths = texts.lengths
    steps = np.array([padded_length(length) for length in range(int(lengths.max(initial=0)) + 1)], np.int64)
    padded_lengths = steps[lengths]
    for length in np.unique(padded_lengths).tolist():
        members = np.flatnonzero(padded_lengths == length)
        count = rows or len(members)
        for start in range(0, len(members), count):
            indices = members[start : start + count]
            row_lengths = np.zeros(count, np.int64)
            row_lengths[: len(indices)] = lengths[indices]
            yield Batch(moved(padded(texts, indices, count, length), device), moved(row_lengths, device), indices)


def padded(texts: TokenIds, indices: np.ndarray, rows: int, length: int) -> np.ndarray:
    """Return the ids (int64, shape (rows, length)) of the texts at `indices`, padded at the end."""
    own, ids = texts.take(indices), np.full((rows, length), PADDING, np.int64)
    ids[: len(own)][np.arange(length) < own.lengths[:, None]] = own.ids
    return ids


class WordTable(nn.Embedding):
    """A table whose gradient is sparse, so that a step touches the rows of its own words only.

    torch's sparse gradient has a row for each position, and a GPU adds those of one word one after the other. That
    takes long for padding, which is at a third of the positions. So on a GPU each distinct word is looked up once, and
    positions are added by torch's dense gradient, which shares out long sums. The host waits for the number of words.
    """

    def __init__(self, vectors: np.ndarray, is_updated: bool) -> None:
        """Begin with `vectors` (float32, one row per id), learned further or frozen."""
        rows = torch.from_numpy(vectors.copy())
        super().__init__(len(rows), rows.shape[1], sparse=is_updated, _weight=rows, _freeze=not is_updated)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows (…, d) of `ids` (…)."""
        if not (self.weight.requires_grad and torch.is_grad_enabled() and on_device.is_gpu(ids.device)):
            return super().forward(ids)
        distinct, rows = torch.unique(ids, return_inverse=True)
        return nn.functional.embedding(rows, super().forward(distinct))


def token_mask(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return which positions (B, L) hold tokens, not padding."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def known_words(size: int) -> torch.Tensor:
    """Return weights (float32, (size,)): 1 for each word of the vocabulary, 0 for padding and the unknown word."""
    weights = torch.ones(size)
    weights[[PADDING, UNKNOWN]] = 0.0
    return weights


Dropout = Annotated[float, Field(ge=0, lt=1)]


class NetworkSettings(EncoderSettings, abc.ABC):
    """Settings of one kind of network; the literal type of `kind` names it, each field is a setting of `encoder`."""

    model_config = ConfigDict(extra="forbid")
    needs_links: ClassVar[bool] = True  # whether it learns nothing from an archive without known duplicates

    @abc.abstractmethod
    def network(self, word_vectors: np.ndarray) -> Encoder:
        """Return a fresh network over `word_vectors` (float32, one row per id of the vocabulary)."""

    def to_section(self) -> EncoderSettings:
        """Return the section `encoder` of a job's settings."""
        return EncoderSettings.parse(self.model_dump())

    def resolved(self) -> Self:
        """Return the settings with absolute paths. Raises DupqError if a file or package of the network is missing."""
        return self


class LearnedSettings(NetworkSettings):
    """Settings of a network that learns by gradients, its word vectors too unless they are fixed."""

    word_vectors: Literal["learned", "fixed"] = Field("learned", description="What becomes of them in training.")

    def words(self, vectors: np.ndarray) -> nn.Embedding:
        """Return the table of word vectors."""
        return WordTable(vectors, is_updated=self.word_vectors == "learned")
