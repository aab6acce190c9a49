"""The training loop, without Ray: one process, or one of several that share each batch; the hard negatives that are
found between two epochs; and an encoder learned from texts alone.
"""

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn

from dupq.encoders.encoding import encode
from dupq.encoders.protocol import Embedding, Encoder, batches
from dupq.encoders.saved import Reader
from dupq.links import Split
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.neighbours.embeddings import Embeddings, Neighbours
from dupq.neighbours.tiles import top_k
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.text.questions import token_ids
from dupq.text.token_arrays import TokenIds
from dupq.training import optimisation
from dupq.training.optimisation import (
    TEMPERATURE,
    as_training,
    distillation,
    falling,
    optimizer_for,
    papers_training,
    score_matrix,
    seed_dropout,
)
from dupq.training.pairs import (
    DistillationTargets,
    Rankings,
    Sequences,
    TitlesAndBodies,
    draw_negatives,
    title_body_examples,
    titles_and_bodies,
    with_negatives,
)
from dupq.training.start import new_network
from dupq.training.word_vectors import words_of

_ALL_IDS = 1 << 62  # of a batch: one of each padded length
_NO_PAIRS = np.zeros((0, 2), np.int64)
_ORDER = 2  # the end of an epoch's seed of its order; mining's is 1, and a seed without one is that with 0


class Losses(NamedTuple):
    """The losses of the steps of an epoch, of all workers together: summed over a step's examples, and their number."""

    sums: np.ndarray  # float64
    examples: np.ndarray  # int64

    @property
    def mean(self) -> float:
        """The mean loss of the epoch's examples; 0 if it had none."""
        return float(self.sums.sum() / max(1, self.examples.sum()))


class Share(NamedTuple):
    """What one worker does of one batch."""

    start: int  # of the batch, among the examples
    size: int  # of the batch
    places: np.ndarray  # of its own examples in the batch

    @property
    def rows(self) -> np.ndarray:
        """Return its examples; one that is not its own if it has none, as all workers join in each exchange."""
        return self.start + (self.places if len(self.places) else np.zeros(1, np.int64))


class OwnExamples(Protocol):
    """What is trained on with a loss of its own: that of the papers."""

    left: np.ndarray  # a question of each example
    is_mean: bool  # whether a step follows the mean loss of its examples, not their sum

    def loss(self, network: Encoder, sequences: Sequences, rows: np.ndarray) -> torch.Tensor:
        """The sum of the losses of some examples."""


Examples = Rankings | DistillationTargets | OwnExamples


def epoch_examples(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: TrainingSettings,
    epoch: int,
    mined: np.ndarray | None = None,
    wrong: np.ndarray = _NO_PAIRS,
) -> Rankings | OwnExamples:
    """What one epoch is trained on: `links` (int64, shape (m, 2)) and questions of `pool`.

    `mined` (int64, shape (m, any)) are hard negatives of each link; `wrong` are pairs that are labelled as no
    duplicates. The order is another one in each epoch.
    """
    for_papers = papers_training(settings)
    if for_papers is not None:
        found: Rankings | OwnExamples = for_papers.epoch_examples(links, pool, split, settings, epoch, mined, wrong)
        return found
    generator = np.random.default_rng([settings.seed, epoch])
    rankings = with_negatives(links, pool, split, settings.negatives, generator, mined, wrong)
    order = epoch_order(len(links), settings.seed, epoch)
    return Rankings(*(column[order] for column in rankings))


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch's examples."""
    return np.random.default_rng([seed, epoch, _ORDER]).permutation(count)


def train_epoch(
    network: Encoder,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    examples: Examples,
    settings: TrainingSettings,
    worker: tuple[int, int] = (0, 1),
    rates: tuple[float, float] = (1.0, 1.0),
) -> Losses:
    """One pass over `examples` in their order.

    `worker` is (rank, number of workers): a worker takes every n-th example of each batch, and gradients are summed
    over the workers. So n of them take the same steps as one, but for dropout, which each draws for itself. `rates` are
    the shares of the optimizer's learning rate at the epoch's first step and after its last one; between them it
    changes evenly. Losses stay on the device until the end, as a GPU would be waited for.
    """
    network.train()
    is_mean = isinstance(examples, Rankings | DistillationTargets) or examples.is_mean
    starts = range(0, len(examples.left), settings.batch_size)
    device = network.words.weight.device
    sums, examples_of = torch.zeros(len(starts), dtype=torch.float64, device=device), np.zeros(len(starts), np.int64)
    learning_rates = [group["lr"] for group in optimizer.param_groups]
    for step, start in enumerate(starts):
        network.begin_step()
        size = min(settings.batch_size, len(examples.left) - start)
        share = Share(start, size, np.arange(size)[worker[0] :: worker[1]])
        loss = _loss(network, sequences, examples, share, settings.temperature) * float(len(share.places) > 0)
        optimizer.zero_grad(set_to_none=True)
        (loss / share.size if is_mean else loss).backward()
        optimisation.sum_gradients(network)
        for group, rate in zip(optimizer.param_groups, learning_rates, strict=True):
            group["lr"] = rate * float(np.interp(step / len(starts), (0, 1), rates))
        optimizer.step()
        sums[step], examples_of[step] = loss.detach(), len(share.places)
    for group, rate in zip(optimizer.param_groups, learning_rates, strict=True):
        group["lr"] = rate
    together = optimisation.sum_of_all(np.stack([sums.cpu().numpy(), examples_of.astype(np.float64)]), device)
    return Losses(together[0], together[1].astype(np.int64))


def _loss(network: Encoder, sequences: Sequences, examples: Examples, share: Share, temperature: float) -> torch.Tensor:
    """The loss of some examples, all of whose questions go through the network together."""
    if isinstance(examples, DistillationTargets):
        return _distillation_loss(network, sequences, examples, share)
    if not isinstance(examples, Rankings):
        return examples.loss(network, sequences, share.rows)
    return _softmax_loss(network, sequences, examples, share, temperature)


def _distillation_loss(
    network: Encoder, sequences: Sequences, examples: DistillationTargets, share: Share
) -> torch.Tensor:
    """Each own text against the whole batch, as the teachers compare them."""
    found = embed(network, sequences, examples.left[share.rows])
    taught = torch.from_numpy(examples.vectors[share.start : share.start + share.size]).to(found.dense)
    own = torch.from_numpy(share.rows - share.start).to(taught.device)
    scores = score_matrix(network, found, optimisation.whole_batch(found, share.places, share.size))
    return distillation(scores, taught[own] @ taught.T, own, TEMPERATURE)


def _softmax_loss(
    network: Encoder, sequences: Sequences, examples: Rankings, share: Share, temperature: float
) -> torch.Tensor:
    """Each left question against the right ones of the whole batch, and against its own negatives.

    The sum of -log(exp(s_r / t) / sum over c of exp(s_c / t)), c all candidates (Henderson et al. 2017, section 4).
    The right sides of a pair's own set are its duplicates, and do not count.
    """
    batch = Rankings(*(column[share.rows] for column in examples))
    sets = examples.sets[share.start : share.start + share.size]
    count, each = batch.negatives.shape
    found = embed(network, sequences, np.concatenate([batch.left, batch.right, batch.negatives.ravel()]))
    left, own_right = found.rows(0, count), found.rows(count, 2 * count)
    scores = score_matrix(network, left, optimisation.whole_batch(own_right, share.places, share.size))
    places = share.rows - share.start
    is_duplicate = batch.sets[:, None] == sets[None, :]
    is_duplicate[np.arange(count), places] = False
    scores = scores.masked_fill(torch.from_numpy(is_duplicate).to(scores.device), -torch.inf)
    anchors = torch.arange(count, device=scores.device).repeat_interleave(each)
    negatives = network.score(left.take(anchors), found.rows(2 * count, (2 + each) * count))
    candidates = torch.cat([scores, negatives.reshape(count, each)], dim=1)
    right = torch.from_numpy(places).to(scores.device)
    return nn.functional.cross_entropy(candidates / temperature, right, reduction="sum")


def embed(network: Encoder, sequences: Sequences, keys: np.ndarray) -> Embedding:
    """The embeddings of questions, by key; differentiable. On a GPU products are of bfloat16, and scores of float32.

    Some networks read texts without padding. Else texts of like length go through the network together: in one batch
    all would be padded to the longest, which is most of the work where one of 20 is long (measured: 22 texts of the CNN
    in 39 ms for 140).
    """
    device = network.words.weight.device
    texts = TokenIds.of([sequences[int(key)] for key in keys])
    flat = network.forward_unpadded(texts)
    if flat is not None:
        return flat
    parts, rows = [], []
    for batch in batches(texts, len(texts), ids=_ALL_IDS):
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            parts.append(network(torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.lengths).to(device)))
        rows.append(batch.texts)
    dense, words, weights = torch.cat([part.dense for part in parts]).float(), None, None
    if parts[0].words is not None:
        width = max(part.bag[0].shape[1] for part in parts)  # padding comes first; its id is 0, as its weight is
        bags = [[nn.functional.pad(side, (width - side.shape[1], 0)) for side in part.bag] for part in parts]
        words, weights = (torch.cat(side) for side in zip(*bags, strict=True))
        weights = weights.float()
    order = torch.from_numpy(np.argsort(np.concatenate(rows))).to(device)
    return Embedding(dense, words, weights).take(order)


# Hard negatives: the encoder's own nearest neighbours that are not known duplicates (Xiong et al. 2021, ANCE).

_SPARE = 10  # neighbours searched beyond those wanted, as some are duplicates
_TARGETS = 16_384  # encoded and searched at a time


def mine(
    network: Encoder,
    sequences: Sequences,
    pairs: np.ndarray,
    pool: np.ndarray,
    split: Split,
    settings: Settings,
    epoch: int,
) -> np.ndarray:
    """Return the nearest questions of `pool` to the left side of each pair: int64 keys, shape (pairs, mined_negatives).

    Known duplicates are left out, and near duplicates by the lexical filter's measure, linked or not. Where too few are
    left, random questions take their index.
    """
    wanted = settings.training.mined_negatives
    anchors, rows = np.unique(pairs[:, 0], return_inverse=True)
    found = _neighbours(network, sequences, anchors, pool, 2 * wanted + _SPARE, settings)
    is_own = split.set_of(found.queries) == split.set_of(found.neighbours)
    found = Neighbours(*(column[~is_own] for column in found))
    is_near = _near_duplicates(sequences, found, settings)
    queries, neighbours = found.queries[~is_near], found.neighbours[~is_near]  # by query and rank
    generator = np.random.default_rng([settings.training.seed, epoch, 1])
    negatives = draw_negatives(np.repeat(anchors, wanted), pool, split, generator).reshape(-1, wanted)
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
    is_in = ranks < wanted
    negatives[np.searchsorted(anchors, queries[is_in]), ranks[is_in]] = neighbours[is_in]
    return negatives[rows]


def _neighbours(
    network: Encoder, sequences: Sequences, anchors: np.ndarray, pool: np.ndarray, k: int, settings: Settings
) -> Neighbours:
    def encoded(keys: np.ndarray) -> Embeddings:
        return Embeddings(keys, *encode(network, [sequences[key] for key in keys.tolist()], settings.encode.batch_size))

    targets = (encoded(pool[first : first + _TARGETS]) for first in range(0, len(pool), _TARGETS))
    return top_k(encoded(anchors), targets, k, network.measure, str(network.words.weight.device))


def _near_duplicates(sequences: Sequences, found: Neighbours, settings: Settings) -> np.ndarray:
    keys = np.union1d(found.queries, found.neighbours)
    ids = TokenIds.of([sequences[int(key)] for key in keys])
    words = pa.LargeListArray.from_arrays(ids.offsets, pa.array(ids.ids).cast(pa.string()))
    texts = pc.binary_join(words, " ").cast(pa.string())
    left, right = (np.searchsorted(keys, side) for side in (found.queries, found.neighbours))
    near = settings.near_duplicates
    return jaccard(shingle_sets(texts, near.shingle_size), left, right) >= near.threshold


# An encoder learned from texts alone, in one process: the first phase of preset dupq (docs/encoders.md).
#
# Where there are titles and bodies it learns which belong together. Titles alone give it only what can be counted: how
# rare each word is. Skip-gram vectors of 6,118 titles of cs.stackexchange.com found no more of its known duplicates
# than random ones (73 and 76 of 212 among the ten nearest, 21 and 21 among the 300 likeliest pairs).

LEARNING_RATE = 0.002  # of the first step; it falls to 0


def learn(texts: pa.Table, settings: Settings) -> Reader:
    """An encoder with `settings` for rows of TEXTS, learned on them; the same for the same rows, seed and machine.

    Raises DupqError if no text has a word. Memory: a table of the word vectors, four times while they are learned.
    """
    vocabulary, table = words_of(texts, settings)
    network = new_network(vocabulary, table, token_ids(texts, vocabulary, settings)[0], [], settings)
    titles = titles_and_bodies(texts, vocabulary, settings)
    if len(titles.titles) > 1:
        with torch.random.fork_rng(devices=[]):
            train_title_body(network, titles, settings)
    network.tune(None)
    return Reader(network.eval(), vocabulary, settings)


def train_title_body(network: Encoder, titles: TitlesAndBodies, settings: Settings) -> None:
    """Train the phase of titles and bodies, all of its epochs, as if all questions were of one site."""
    titles, phase = titles._replace(keys=np.arange(len(titles.titles))), settings.title_body
    training = as_training(settings.training, phase.batch_size, LEARNING_RATE)
    optimizer = optimizer_for(network, training)
    for epoch in range(1, phase.epochs + 1):
        sequences, examples = title_body_examples(titles, phase, training.seed, epoch)
        seed_dropout(training.seed, epoch)
        train_epoch(network, optimizer, sequences, examples, training, rates=falling(epoch, phase.epochs))
