"""The protocol of encoders: token ids in, one embedding for each text out, and how two embeddings are scored."""

import abc
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from dupq.neighbours.measure import Kind, Measure
from dupq.text.token_ids import TokenIds


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
    """s_kind (B,) of the rows of two matrices (B, D); see Measure."""
    if kind == "cosine":
        return cosine(left, right)
    order = 1 if kind == "manhattan" else 2
    return torch.exp(-torch.linalg.vector_norm(left - right, ord=order, dim=-1))


def cosine(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The cosine (B,) of rows of two matrices (B, D); 0 where a row is zero."""
    return nn.functional.cosine_similarity(left, right, dim=-1, eps=1e-12)


def bag_cosine(left: Embedding, right: Embedding) -> torch.Tensor:
    """The cosine (B,) of the bags of words of two embeddings; 0 where a bag is empty."""
    (words, weights), (other_words, other_weights) = left.bag, right.bag
    indices = torch.searchsorted(other_words, words).clamp_max(other_words.shape[1] - 1)
    shared = other_words.gather(1, indices) == words
    product = (weights * other_weights.gather(1, indices) * shared).sum(dim=1)
    squares = weights.square().sum(dim=1) * other_weights.square().sum(dim=1)
    return product / torch.where(squares > 0, squares, 1.0).sqrt()
