"""The protocol of encoders: token ids in, one embedding for each text out, and how two embeddings are scored. Beside
it what networks share: their settings, batches, the table of word vectors, convolutions over windows of words, and
masks.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from torch import nn

from dupq.encoders.unpadded import WordProducts, word_products
from dupq.neighbours.embeddings import Kind, Measure
from dupq.settings.sections import EncoderSettings
from dupq.text.questions import PADDING, UNKNOWN
from dupq.text.token_arrays import TokenIds


class Embedding(NamedTuple):
    """Embeddings of B texts: a dense vector each, and for an encoder with a lexical part a bag of words each.

    A bag is the ids of its words in ascending order, each with its weight. Entries of weight 0 are ignored: they pad,
    and a word may be repeated if all but one of its entries have weight 0.
    """

    dense: torch.Tensor  # (B, D)
    words: torch.Tensor | None = None  # (B, W), int64
    weights: torch.Tensor | None = None  # (B, W)

    @property
    def bag(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The words and weights of an encoder that has them."""
        assert self.words is not None
        assert self.weights is not None
        return self.words, self.weights

    def rows(self, start: int, stop: int) -> "Embedding":
        """The embeddings of texts `start` to `stop`."""
        return self.take(slice(start, stop))

    def take(self, texts: torch.Tensor | slice) -> "Embedding":
        """The embeddings of some texts, by row number (int64, any number, repeats allowed)."""
        if self.words is None or self.weights is None:
            return Embedding(self.dense[texts])
        return Embedding(self.dense[texts], self.words[texts], self.weights[texts])


class Encoder(nn.Module, abc.ABC):
    """One tower of a Siamese network: both questions of a pair go through the same one.

    Shapes: B texts, L tokens (padded), D dimensions, W words of a bag.
    """

    words: nn.Embedding  # the word vectors, one row an id of the vocabulary; saved as words.weight
    dimensions: int  # D
    kind: Kind = "cosine"  # of similarity of two dense vectors
    is_lexical: bool = False  # whether its embeddings have bags of words
    of_archive: frozenset[str] = frozenset()  # names of weights that hold for one archive: another one's training
    #   that starts from this encoder does not take them

    @abc.abstractmethod
    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """Embeddings of token ids (B, L), of which the first `lengths` (B,) of a row are tokens.

        An embedding depends on its own row only, not on the padding or on its neighbours; that of an empty
        text is zero, and its bag empty.
        """

    def dense_of(self, texts: TokenIds) -> torch.Tensor | None:
        """The dense vectors (n, D) of texts on the CPU without padding, those of `forward` up to rounding.

        None where nothing is faster than `forward` on batches. An embedding's bits depend on its own text
        only. It has no gradients, and must be called in torch's inference mode.
        """
        return None

    def flat(self, texts: TokenIds) -> Embedding | None:
        """The embeddings of `forward` of texts without padding, up to rounding, on its device; differentiable.

        Its dropout draws other numbers. A bag that no score reads may be left out. None where nothing is faster than
        `forward` on batches.
        """
        return None

    def bag_weights(self, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """The weights in a bag of known `words` (int, any shape), each of which the text has `counts` times.

        Only of an encoder with a lexical part.
        """
        raise NotImplementedError

    def mix(self) -> tuple[torch.Tensor | float, torch.Tensor | float]:
        """The weights of the dense and of the lexical score; parameters of the network where they are learned."""
        return 1.0, 0.0

    @property
    def measure(self) -> Measure:
        """How two embeddings are scored, with what was learned about it so far."""
        dense, lexical = (weight.item() if isinstance(weight, torch.Tensor) else weight for weight in self.mix())
        return Measure(self.kind, dense, lexical)

    def score(self, left: Embedding, right: Embedding) -> torch.Tensor:
        """The scores (B,) of pairs of embeddings by `measure`; differentiable, also by the mix."""
        dense, lexical = self.mix()
        scores = dense * similarity(self.kind, left.dense, right.dense)
        if is_nothing(lexical):
            return scores
        return scores + lexical * bag_cosine(left, right)

    def set_vocabulary(self, words: list[str]) -> None:
        """Set the words of the vocabulary, in the order of their ids; before any other call. Ignored by default."""

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Initialise the network from the archive, before any gradient; some encoders learn everything here.

        `texts` are the token ids (int32) of all questions of the archive, and can be iterated several times;
        `pairs` those of the known duplicates of the training part. By default nothing is done.
        """

    def begin_step(self) -> None:
        """Called before each step of training, whose texts may go through the network in several calls.

        What the step leaves out of the network for all of them may be drawn here. By default nothing is.
        """

    def tune(self, quality: Callable[[], float] | None) -> None:
        """Choose, after training, what has no gradient; `quality` measures the development MAP of the network as it is.

        It is None where there are too few known duplicates to measure it. By default there is nothing to choose.
        """

    @property
    def trainable(self) -> bool:
        """Whether anything is learned by gradients."""
        return any(parameter.requires_grad for parameter in self.parameters())


def is_nothing(weight: torch.Tensor | float) -> bool:
    """Whether a weight of a mix is a constant 0, so that its part of the score need not be computed."""
    return not isinstance(weight, torch.Tensor) and weight == 0.0


def similarity(kind: Kind, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """s_kind (B,) of the rows of two matrices (B, D); a cosine is 0 where a row is zero. See Measure."""
    if kind == "cosine":
        return nn.functional.cosine_similarity(left, right, dim=-1, eps=1e-12)
    order = 1 if kind == "manhattan" else 2
    return torch.exp(-torch.linalg.vector_norm(left - right, ord=order, dim=-1))


def bag_cosine(left: Embedding, right: Embedding) -> torch.Tensor:
    """The cosine (B,) of the bags of words of two embeddings; 0 where a bag is empty."""
    (words, weights), (other_words, other_weights) = left.bag, right.bag
    indices = torch.searchsorted(other_words, words).clamp_max(other_words.shape[1] - 1)
    shared = other_words.gather(1, indices) == words
    product = (weights * other_weights.gather(1, indices) * shared).sum(dim=1)
    squares = weights.square().sum(dim=1) * other_weights.square().sum(dim=1)
    return product / torch.where(squares > 0, squares, 1.0).sqrt()


# Batching texts of many lengths into few shapes.
#
# Every batch has the same number of rows, and a text is padded to a length that depends on its own length only. So it
# is in matrices of the same shape, and gets the same bits, whichever texts it shares a batch with: that is why a run's
# answer does not depend on its shards. On a GPU bits depend on the other texts in any case, so batches may be larger
# there.


class Batch(NamedTuple):
    """Token ids (int64, shape (rows, length)), their lengths, and which texts the first rows are."""

    ids: np.ndarray
    lengths: np.ndarray
    texts: np.ndarray


def padded_length(length: int) -> int:
    """The length that a text of `length` tokens is padded to: steps of about a third, at least 8."""
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return max(8, -(-length // step) * step)


def batches(texts: TokenIds, rows: int, ids: int = 0) -> Iterator[Batch]:
    """All `texts`, grouped by padded length; the last batch of a length has empty rows.

    With `ids` a batch has at most so many, unless a single text has more, and no empty rows.
    """
    lengths = texts.lengths
    steps = np.array([padded_length(length) for length in range(int(lengths.max(initial=0)) + 1)], np.int64)
    found = steps[lengths]
    for length in np.unique(found).tolist():
        members = np.flatnonzero(found == length)
        most = min(rows, max(1, ids // length)) if ids else rows
        for start in range(0, len(members), most):
            some = members[start : start + most]
            count = len(some) if ids else rows
            row_lengths = np.zeros(count, np.int64)
            row_lengths[: len(some)] = lengths[some]
            yield Batch(padded(texts, some, count, length), row_lengths, some)


def padded(texts: TokenIds, some: np.ndarray, rows: int, length: int) -> np.ndarray:
    """The ids (int64, shape (rows, length)) of some texts, padded at the end."""
    ids = np.full((rows, length), PADDING, np.int64)
    is_token = np.arange(length) < texts.lengths[some][:, None]
    places = (texts.offsets[some][:, None] + np.arange(length))[is_token]
    ids[: len(some)][is_token] = texts.ids[places]
    return ids


def word_table(vectors: np.ndarray, is_updated: bool) -> nn.Embedding:
    """The table of word vectors (float32, one row an id), learned further or left as it is.

    Its gradient is sparse: a step touches the rows of its own words only.
    """
    return nn.Embedding.from_pretrained(torch.from_numpy(vectors.copy()), freeze=not is_updated, sparse=is_updated)


def inside(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Which positions of (B, L) hold tokens, not padding."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def windows(words: nn.Embedding, ids: torch.Tensor, window: int) -> torch.Tensor:
    """z_n (B, L, k * d): the `window` = k word vectors around each word of `ids` (B, L), k odd.

    Bogdanova et al. 2015, section 4.3, and dos Santos et al. 2015, section 2.3. Beyond the ends of a text
    comes the vector of padding.
    """
    reach = (window - 1) // 2
    vectors = words(nn.functional.pad(ids, (reach, reach), value=PADDING))
    return vectors.unfold(1, window, 1).transpose(2, 3).flatten(2)


def convolve(words: nn.Embedding, convolution: nn.Linear, window: int, ids: torch.Tensor) -> torch.Tensor:
    """W1 z_n + b1 (B, L, U) around each word of `ids` (B, L), with the z_n of `windows`; differentiable.

    On a CPU each distinct word is multiplied once and a window is a sum of k rows, as in unpadded.py: a step with 300
    texts of 128 words takes a quarter of the time.
    """
    if ids.is_cuda:
        return convolution(windows(words, ids, window))
    reach = (window - 1) // 2
    distinct, places = torch.unique(nn.functional.pad(ids, (reach, reach), value=PADDING), return_inverse=True)
    units = convolution.out_features
    table = (words(distinct) @ by_place(words, convolution, window).flatten(1)).view(-1, units)
    rows = places.unfold(1, window, 1) * window + torch.arange(window)
    sums = nn.functional.embedding_bag(rows.reshape(-1, window), table, mode="sum")
    return sums.view(*ids.shape, units) + convolution.bias


def window_products(words: nn.Embedding, convolution: nn.Linear, window: int, texts: TokenIds) -> WordProducts:
    """The products that the W1 z_n of `texts` are sums of, with the z_n of `windows`; without the bias."""
    matrix = by_place(words, convolution, window).transpose(0, 1)
    return word_products(words, matrix, -((window - 1) // 2), PADDING, texts)


def by_place(words: nn.Embedding, convolution: nn.Linear, window: int) -> torch.Tensor:
    """W1 of `windows` as (d, k, U)."""
    return convolution.weight.view(-1, window, words.embedding_dim).permute(2, 1, 0)


def known(size: int) -> torch.Tensor:
    """Weight 1 (float32) for each word of a vocabulary of `size`, 0 for padding and the unknown word."""
    weights = torch.ones(size)
    weights[[PADDING, UNKNOWN]] = 0.0
    return weights


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise PydanticCustomError("odd", "an odd number expected")
    return value


Window = Annotated[int, Field(ge=1, le=999), AfterValidator(_odd)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class NetworkSettings(EncoderSettings, abc.ABC):
    """One kind of network: its name is the literal type of `kind`, and each field is a setting of `encoder`."""

    model_config = ConfigDict(extra="forbid")
    needs_links: ClassVar[bool] = True  # whether it takes nothing from an archive without known duplicates

    @abc.abstractmethod
    def network(self, word_vectors: np.ndarray) -> Encoder:
        """A fresh network over `word_vectors` (float32, one row an id of the vocabulary)."""

    def given(self) -> EncoderSettings:
        """All of them, as the section `encoder` of a job's settings."""
        return EncoderSettings.read(self.model_dump())

    def found(self) -> Self:
        """With absolute paths. Raises DupqError if a file or package that the network needs is missing."""
        return self


class LearnedSettings(NetworkSettings):
    """A network that is learned by gradients, word vectors too if they are not fixed."""

    word_vectors: Literal["learned", "fixed"] = Field("learned", description="What becomes of them in training.")

    def words(self, vectors: np.ndarray) -> nn.Embedding:
        """The table of word vectors."""
        return word_table(vectors, is_updated=self.word_vectors == "learned")
