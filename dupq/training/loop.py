"""The training loop, without Ray, for one process or several that share each batch.

Also the search for hard negatives between two epochs, and an encoder trained on texts alone.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn

from dupq.encoders import on_device
from dupq.encoders.encoding import encode
from dupq.encoders.on_device import DeviceTexts, moved
from dupq.encoders.protocol import Embedding, Encoder, batches
from dupq.encoders.saved import Reader
from dupq.links import Split
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.tiles import top_k
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.text.questions import TitlesAndBodies, titles_and_bodies, token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training import optimisation
from dupq.training.pairs import (
    NO_PAIRS,
    DistillationTargets,
    Rankings,
    Sequences,
    draw_negatives,
    title_body_examples,
    with_negatives,
)
from dupq.training.start import new_network
from dupq.training.word_vectors import vocabulary_and_vectors

_MINING, _ORDER = 1, 2  # last numbers of an epoch's seeds; the seed of negatives has none, which counts as 0
_SPARE = 10  # more neighbours than needed are searched for hard negatives, because some are duplicates
_TARGETS = 16_384  # questions that are encoded and searched at a time for hard negatives
LEARNING_RATE = 0.002  # of the first step on titles and bodies; it falls to 0
Texts = Callable[[np.ndarray], TokenIds | DeviceTexts]  # the texts of keys (int64), which must be there


class Losses(NamedTuple):
    """The losses of an epoch's steps, of all workers together."""

    sums: np.ndarray  # float64, over a step's examples
    examples: np.ndarray  # int64, their number

    @property
    def mean(self) -> float:
        """The mean loss of the epoch's examples; 0 if it had none."""
        return float(self.sums.sum() / max(1, self.examples.sum()))


class Share(NamedTuple):
    """A worker's share of one batch."""

    start: int  # of the batch, among the examples
    size: int  # of the batch
    indices: np.ndarray  # of the worker's own examples in the batch

    @property
    def rows(self) -> np.ndarray:
        """The worker's examples, or the batch's first if it has none: all workers must take part in each exchange."""
        return self.start + (self.indices if len(self.indices) else np.zeros(1, np.int64))


def texts_by_key(sequences: Sequences, device: torch.device) -> Texts:
    """Return the texts of an epoch. A GPU gets all of them (see DeviceTexts); the host needs 8 bytes per id."""
    if not on_device.is_gpu(device):
        return lambda chosen: TokenIds.of([sequences[int(key)] for key in chosen])
    keys = np.array(sorted(sequences), np.int64)
    texts = DeviceTexts.of(TokenIds.of(map(sequences.__getitem__, keys.tolist())), device)
    return lambda chosen: texts.take(np.searchsorted(keys, chosen))


class PaperExamples(Protocol):
    """Training examples with a loss of their own, as the papers have."""

    left: np.ndarray  # a question of each example
    is_mean: bool  # whether a step follows the mean loss of its examples, not their sum

    def loss(self, network: Encoder, texts_of: Texts, rows: np.ndarray) -> torch.Tensor:
        """Return the sum of the losses of the examples at `rows`."""


Examples = Rankings | DistillationTargets | PaperExamples


def epoch_examples(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: TrainingSettings,
    epoch: int,
    mined: np.ndarray | None = None,
    wrong: np.ndarray = NO_PAIRS,
) -> Rankings | PaperExamples:
    """Return the examples of one epoch: `links` (int64, shape (m, 2)) with negatives from `pool`, in a new order.

    `mined` (int64, shape (m, any)) are hard negatives of each link; `wrong` are pairs labelled as no duplicates.
    """
    paper = optimisation.papers_training(settings)
    if paper is not None:
        examples: Rankings | PaperExamples = paper.epoch_examples(links, pool, split, settings, epoch, mined, wrong)
        return examples
    generator = np.random.default_rng([settings.seed, epoch])
    rankings = with_negatives(links, pool, split, settings.negatives, generator, mined, wrong)
    order = epoch_order(len(links), settings.seed, epoch)
    return Rankings(*(column[order] for column in rankings))


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of an epoch's examples."""
    return np.random.default_rng([seed, epoch, _ORDER]).permutation(count)


def train_epoch(
    network: Encoder,
    optimizer: optimisation.Optimizer,
    sequences: Sequences,
    examples: Examples,
    settings: TrainingSettings,
    worker: tuple[int, int] = (0, 1),
    rates: tuple[float, float] = (1.0, 1.0),
) -> Losses:
    """Make one pass over `examples` in their order and return the losses.

    `worker` is (rank, number of workers): each of n workers takes every n-th example of each batch, and gradients are
    summed over them. So n workers take the same steps as one, except for dropout. `rates` are the shares of the
    settings' learning rate at the first step and after the last; between them it changes linearly. A GPU has all texts
    of the epoch: 4 bytes per id. Losses stay there until the end, because reading them would wait for it.
    """
    network.train()
    is_mean = isinstance(examples, Rankings | DistillationTargets) or examples.is_mean
    starts = range(0, len(examples.left), settings.batch_size)
    device = network.words.weight.device
    texts_of = texts_by_key(sequences, device)
    sums, counts = torch.zeros(len(starts), dtype=torch.float64, device=device), np.zeros(len(starts), np.int64)
    for step, start in enumerate(starts):
        network.begin_step()
        size = min(settings.batch_size, len(examples.left) - start)
        share = Share(start, size, np.arange(size)[worker[0] :: worker[1]])
        if isinstance(examples, DistillationTargets):
            loss = _distillation_loss(network, texts_of, examples, share)
        elif isinstance(examples, Rankings):
            loss = _softmax_loss(network, texts_of, examples, share)
        else:
            loss = examples.loss(network, texts_of, share.rows)
        loss = loss * float(len(share.indices) > 0)
        network.zero_grad()
        (loss / share.size if is_mean else loss).backward()
        optimisation.sum_gradients(network)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * float(np.interp(step / len(starts), (0, 1), rates))
        optimizer.step()
        sums[step], counts[step] = loss.detach(), len(share.indices)
    totals = optimisation.sum_over_workers(np.stack([sums.cpu().numpy(), counts.astype(np.float64)]), device)
    return Losses(totals[0], totals[1].astype(np.int64))


def _distillation_loss(network: Encoder, texts_of: Texts, examples: DistillationTargets, share: Share) -> torch.Tensor:
    """Return the sum of the losses of a worker's texts: each is compared with the whole batch, as the teacher does."""
    own = embed(network, texts_of, examples.left[share.rows])
    device = own.dense.device
    vectors = moved(examples.vectors[share.start : share.start + share.size], device).to(own.dense)
    columns = moved(share.rows - share.start, device)
    scores = network.score_matrix(own, optimisation.whole_batch(own, share.indices, share.size))
    return optimisation.distillation(scores, vectors[columns] @ vectors.T, columns)


def _softmax_loss(network: Encoder, texts_of: Texts, examples: Rankings, share: Share) -> torch.Tensor:
    """Compare each left question with the right ones of the whole batch and with its own negatives.

    The sum of -log(exp(s_r / t) / sum over c of exp(s_c / t)), c all candidates (Henderson et al. 2017, section 4).
    Right questions of the pair's own set are duplicates too, so they do not count as candidates.
    """
    batch = Rankings(*(column[share.rows] for column in examples))
    sets = examples.sets[share.start : share.start + share.size]
    count, each = batch.negatives.shape
    embeddings = embed(network, texts_of, np.concatenate([batch.left, batch.right, batch.negatives.ravel()]))
    left, own_right = embeddings.rows(0, count), embeddings.rows(count, 2 * count)
    scores = network.score_matrix(left, optimisation.whole_batch(own_right, share.indices, share.size))
    columns = batch.sets, sets, share.rows - share.start
    own_sets, all_sets, right = (moved(column, scores.device) for column in columns)
    is_duplicate = (own_sets[:, None] == all_sets).scatter(1, right[:, None], False)
    scores = scores.masked_fill(is_duplicate, -torch.inf)
    anchors = torch.arange(count, device=scores.device).repeat_interleave(each)
    negatives = network.score(left.take(anchors), embeddings.rows(2 * count, (2 + each) * count))
    candidates = torch.cat([scores, negatives.reshape(count, each)], dim=1)
    return nn.functional.cross_entropy(candidates / optimisation.TEMPERATURE, right, reduction="sum")


def embed(network: Encoder, texts_of: Texts, keys: np.ndarray) -> Embedding:
    """Return the embeddings of questions by key; differentiable. A GPU multiplies in bfloat16 and scores in float32.

    Texts go through the network without padding if it can do that, else in groups of similar length. A single batch
    would pad all to the longest, which is most of the work if one of 20 is long (measured: 22 texts of the CNN in 39 ms
    instead of 140). On a GPU the groups are few (see DeviceTexts).
    """
    texts, device = texts_of(keys), network.words.weight.device
    unpadded = network.forward_unpadded(texts)
    if unpadded is not None:
        return unpadded
    groups, rows = [], []
    made = texts.batches() if isinstance(texts, DeviceTexts) else batches(texts, 0, device)
    for ids, lengths, own in made:
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            groups.append(network(ids, lengths))
        rows.append(own)
    dense, bag = torch.cat([group.dense for group in groups]).float(), []
    for sides in zip(*(group.bag for group in groups), strict=True):
        width = max(side.shape[1] for side in sides)  # padding comes first, with id 0 and weight 0
        bag.append(torch.cat([nn.functional.pad(side, (width - side.shape[1], 0)) for side in sides]))
    order = moved(np.argsort(np.concatenate(rows)), device)
    return Embedding(dense, tuple(bag)).take(order)


# Hard negatives: the encoder's own nearest neighbours that are not known duplicates (Xiong et al. 2021, ANCE).


def mine_negatives(
    network: Encoder,
    sequences: Sequences,
    pairs: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: Settings,
    epoch: int,
) -> np.ndarray:
    """Return the nearest questions of `pool` to the left side of each pair: int64 keys, shape (pairs, mined_negatives).

    Known duplicates are left out, and near duplicates by the lexical filter's measure, linked or not. Random questions
    fill up rows with too few.
    """
    count = settings.training.mined_negatives
    anchors, rows = np.unique(pairs[:, 0], return_inverse=True)

    def encoded(keys: np.ndarray) -> Embeddings:
        return Embeddings(keys, *encode(network, [sequences[key] for key in keys.tolist()], settings.encode.batch_size))

    targets = (encoded(pool[first : first + _TARGETS]) for first in range(0, len(pool), _TARGETS))
    device = str(network.words.weight.device)
    nearest = top_k(encoded(anchors), targets, 2 * count + _SPARE, network.measure, device)
    is_duplicate = split.in_one_set(nearest.queries, nearest.neighbours)
    nearest = Neighbours(*(column[~is_duplicate] for column in nearest))
    is_near = _near_duplicates(sequences, nearest, settings)
    queries, neighbours = nearest.queries[~is_near], nearest.neighbours[~is_near]  # by query and rank
    generator = np.random.default_rng([settings.training.seed, epoch, _MINING])
    negatives = draw_negatives(np.repeat(anchors, count), pool, split, generator).reshape(-1, count)
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
    is_used = ranks < count
    negatives[np.searchsorted(anchors, queries[is_used]), ranks[is_used]] = neighbours[is_used]
    return negatives[rows]


def _near_duplicates(sequences: Sequences, nearest: Neighbours, settings: Settings) -> np.ndarray:
    """Return which rows are near duplicates: bool, one per neighbour."""
    keys = np.union1d(nearest.queries, nearest.neighbours)
    ids = TokenIds.of([sequences[int(key)] for key in keys])
    words = pa.LargeListArray.from_arrays(ids.offsets, pa.array(ids.ids).cast(pa.string()))
    texts = pc.binary_join(words, " ").cast(pa.string())
    left, right = (np.searchsorted(keys, side) for side in (nearest.queries, nearest.neighbours))
    near = settings.near_duplicates
    return jaccard(shingle_sets(texts, near.shingle_size), left, right) >= near.threshold


# An encoder trained on texts alone, in one process: the first phase of preset dupq (docs/encoders.md).
#
# From titles and bodies it learns which belong together; from titles alone only how rare each word is. Skip-gram
# vectors of 6,118 titles of cs.stackexchange.com found no more of its known duplicates than random ones (73 and 76 of
# 212 among the ten nearest, 21 and 21 among the 300 likeliest pairs).


def train_on_texts(texts: pa.Table, settings: Settings) -> Reader:
    """Return an encoder trained on rows of TEXTS; the same for the same rows, seed and machine.

    Raises DupqError if no text has a word. Memory: four tables of word vectors during training.
    """
    vocabulary, table = vocabulary_and_vectors(texts, settings)
    network = new_network(vocabulary, table, token_ids(texts, vocabulary, settings)[0], [], settings)
    titles = titles_and_bodies(texts, vocabulary, settings)
    if len(titles.titles) > 1:
        with torch.random.fork_rng(devices=[]):
            train_title_body(network, titles, settings)
    network.tune(None)
    return Reader(network.eval(), vocabulary, settings)


def train_title_body(network: Encoder, titles: TitlesAndBodies, settings: Settings) -> None:
    """Train all epochs of the phase of titles and bodies, as if all questions were of one site."""
    titles, phase = titles._replace(keys=np.arange(len(titles.titles))), settings.title_body
    training = optimisation.phase_settings(settings.training, phase.batch_size, LEARNING_RATE)
    optimizer = optimisation.optimizer_for(network, training)
    for epoch in range(1, phase.epochs + 1):
        sequences, examples = title_body_examples(titles, phase, training.seed, epoch)
        optimisation.seed_dropout(training.seed, epoch)
        rates = optimisation.linear_decay(epoch, phase.epochs)
        train_epoch(network, optimizer, sequences, examples, training, rates=rates)
