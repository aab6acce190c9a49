"""Training examples and their order in an epoch.

Known duplicates are positives; negatives are random, mined, or labelled as no duplicates. Phases before them train on
a teacher's embeddings and on titles with their bodies.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xxhash

from dupq.errors import DupqError
from dupq.links import Split
from dupq.settings.sections import TitleBodySettings, TrainingSettings
from dupq.text.keys import ID_BITS, are_pairs_among
from dupq.text.questions import TitlesAndBodies

NEGATIVE_POOL = 100_000  # questions to draw negatives from: of the training part, or without known duplicates
SET_PAIRS = 1_000  # most pairs of one set; a larger set is sampled, and the other pairs are counted
NO_PAIRS = np.zeros((0, 2), np.int64)
Sequences = Mapping[int, np.ndarray]  # the token ids of each question, by key
_LEAST_BATCH = 64  # rows: a smaller last batch would be too easy, so its questions wait for the next epoch
_SPAN = 12  # words of a span; the spans of a body are divided between its halves
BATCH_SIZE = 768  # questions of a batch of distillation, in which each is compared with all others


class Pairs(NamedTuple):
    """Question pairs (int64 keys) and their labels (float32): 1 duplicate, 0 not."""

    left: np.ndarray
    right: np.ndarray
    labels: np.ndarray


class Rankings(NamedTuple):
    """Known duplicates with negatives for each pair: questions that duplicate neither side (int64 keys)."""

    left: np.ndarray  # (n,)
    right: np.ndarray  # (n,)
    negatives: np.ndarray  # (n, m)
    sets: np.ndarray  # (n,), the set of duplicates that a pair belongs to


class Positives(NamedTuple):
    """The positive pairs (int64, shape (m, 2), left < right, sorted), and the number of pairs over SET_PAIRS."""

    pairs: np.ndarray
    over_set_pairs: int


def positives(links: np.ndarray, split: Split, settings: TrainingSettings) -> Positives:
    """Return the known duplicates of the training part: its links, or every pair of every set, as settings say.

    A set with more than SET_PAIRS pairs is sampled, because a set of 10,000 questions has 50 million pairs.
    """
    links, questions = split.links_of("train", links), split.questions_of("train")
    if settings.positives == "links":
        return Positives(links, 0)
    sets = split.set_of(questions)
    order = np.argsort(sets, kind="stable")
    all_pairs, left_out = [NO_PAIRS], 0
    for members in np.split(questions[order], np.flatnonzero(np.diff(sets[order])) + 1):
        total = len(members) * (len(members) - 1) // 2
        if total <= SET_PAIRS:
            pairs = np.stack([members[side] for side in np.triu_indices(len(members), 1)], axis=1)
        else:
            pairs = _sampled_pairs(members, links, settings)
        all_pairs.append(pairs)
        left_out += total - len(pairs)
    return Positives(np.unique(np.concatenate(all_pairs), axis=0), left_out)


def _sampled_pairs(members: np.ndarray, links: np.ndarray, settings: TrainingSettings) -> np.ndarray:
    """Return SET_PAIRS pairs of a set: links first, then random pairs."""
    linked = chosen_pairs(links[np.isin(links[:, 0], members)], SET_PAIRS, settings.seed)
    generator = np.random.default_rng([settings.seed, int(members[0])])
    drawn = np.sort(generator.choice(members, (SET_PAIRS, 2)), axis=1)
    drawn = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    drawn = drawn[~are_pairs_among(linked, drawn)]
    return np.concatenate([linked, chosen_pairs(drawn, SET_PAIRS - len(linked), settings.seed)])


def chosen_pairs(pairs: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return at most `most` of the pairs (int64, shape (m, 2)), chosen by a hash of their keys, in their order."""
    if len(pairs) <= most:
        return pairs
    hashes = [xxhash.xxh3_64_intdigest(pair.tobytes(), seed=seed) for pair in pairs.astype("<i8")]
    return pairs[np.sort(np.argsort(np.array(hashes, np.uint64), kind="stable")[:most])]


def with_random_negatives(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    negatives: int,
    generator: np.random.Generator,
    left: np.ndarray | None = None,
) -> Pairs:
    """Return every link as a positive pair, and `negatives` times as many pairs of a linked and a random question.

    `left` (keys, `negatives` per link) replaces the linked questions. A negative pair is never a question with itself
    or with a known duplicate. Links come first, then their negatives.
    """
    if left is None:  # the sides of a link alternate, beginning with a random one
        first = generator.permutation(len(links)) % 2
        left = np.take_along_axis(links, (first[:, None] + np.arange(negatives)) % 2, axis=1).ravel()
    right = draw_negatives(left, pool, split, generator)
    labels = (np.arange(len(links) + len(left)) < len(links)).astype(np.float32)
    return Pairs(np.concatenate([links[:, 0], left]), np.concatenate([links[:, 1], right]), labels)


def with_negatives(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    negatives: int,
    generator: np.random.Generator,
    mined: np.ndarray | None = None,
    wrong: np.ndarray = NO_PAIRS,
) -> Rankings:
    """Return every link, in order, with `negatives` random questions (dos Santos et al. 2015, section 2.5).

    Then come the negatives `mined` (int64, shape (links, any)). If there are pairs labelled as no duplicates (`wrong`,
    int64, shape (m, 2)), a partner of either question in one of them follows, or one more random question.
    """
    left, right = links.T
    columns = [draw_negatives(np.repeat(left, negatives), pool, split, generator).reshape(len(links), negatives)]
    if mined is not None:
        columns.append(mined)
    if len(wrong):
        random = draw_negatives(left, pool, split, generator)
        columns.append(_partners(left, right, random, wrong, generator)[:, None])
    return Rankings(left, right, np.concatenate(columns, axis=1), split.set_of(left))


def _partners(
    left: np.ndarray, right: np.ndarray, defaults: np.ndarray, wrong: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return for each pair a question that `wrong` pairs with either side, or else its question in `defaults`."""
    partners: dict[int, list[int]] = {}
    for one, other in wrong.tolist():
        partners.setdefault(one, []).append(other)
        partners.setdefault(other, []).append(one)
    chances = generator.random(len(left))
    chosen = defaults.copy()
    for row, (one, other) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        candidates = partners.get(one, []) + partners.get(other, [])
        if candidates:
            chosen[row] = candidates[int(chances[row] * len(candidates))]
    return chosen


def draw_negatives(questions: np.ndarray, pool: np.ndarray, split: Split, generator: np.random.Generator) -> np.ndarray:
    """Return for each of `questions` a random question of `pool` that is not a known duplicate of it or itself."""
    negatives = generator.choice(pool, len(questions))
    for _ in range(100):
        is_wrong = (negatives == questions) | split.in_one_set(questions, negatives)
        if not is_wrong.any():
            return negatives
        negatives[is_wrong] = generator.choice(pool, int(is_wrong.sum()))
    for row in np.flatnonzero(is_wrong):  # nearly all of the pool duplicates these questions
        question = questions[row : row + 1]
        allowed = pool[(pool != question) & ~split.in_one_set(question, pool)]
        if not len(allowed):
            raise DupqError(
                f"the pool of negatives: all its {len(pool)} questions are known duplicates of one another, so that "
                "there are no negatives; take a larger pool, or an archive with more questions"
            )
        negatives[row] = generator.choice(allowed)
    return negatives


def site_batches(sites: np.ndarray, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return rows in full batches of one site each, then mixed batches of the remainders; `sites` has one per row."""
    order = generator.permutation(len(sites))
    full, remainders = [], [np.zeros(0, np.int64)]
    for site in np.unique(sites):
        rows = order[sites[order] == site]
        end = len(rows) - len(rows) % size
        full += [rows[start : start + size] for start in range(0, end, size)]
        remainders.append(rows[end:])
    mixed = generator.permutation(np.concatenate(remainders))
    batches = [full[index] for index in generator.permutation(len(full))]
    batches += [mixed[start : start + size] for start in range(0, len(mixed), size)]
    if len(batches) > 1 and len(batches[-1]) < min(_LEAST_BATCH, size):
        batches.pop()
    return batches


class DistillationTargets(NamedTuple):
    """Questions and the teacher's embeddings of them."""

    left: np.ndarray  # (n,), int64 keys
    vectors: np.ndarray  # (n, any), float32, of length 1


def distillation_targets(keys: np.ndarray, embeddings: np.ndarray) -> DistillationTargets:
    """Return the targets for a teacher's embeddings (float32, one row per key): centred by site, of length 1.

    They are centred because what all questions of a site have in common does not tell them apart.
    """
    sites, vectors = keys >> ID_BITS, embeddings.copy()
    for site in np.unique(sites):
        vectors[sites == site] -= vectors[sites == site].mean(axis=0)
    return DistillationTargets(keys, vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))


def targets_in_order(
    targets: DistillationTargets, seed: int, epoch: int, batch_size: int = BATCH_SIZE
) -> DistillationTargets:
    """Return the targets in the order of an epoch, in batches of one site."""
    batches = site_batches(targets.left >> ID_BITS, batch_size, np.random.default_rng([seed, epoch]))
    order = np.concatenate([np.zeros(0, np.int64), *batches])
    return DistillationTargets(*(column[order] for column in targets))


# Titles and bodies as free training pairs in any archive, without links: each body belongs to its title.
#
# Two halves of a body are a pair too, closer to the encoder's purpose: two texts of the same kind.


def title_body_examples(
    texts: TitlesAndBodies, settings: TitleBodySettings, seed: int, epoch: int, bucket: int = 0
) -> tuple[Sequences, Rankings]:
    """Return the token ids of one epoch's texts, by keys that are valid in this epoch only, and their pairs in batches.

    A pair is the title and the body or, with probability 1/2 if the body has two spans of words, two halves of the
    body's spans, the first one after the title with probability 1/2. The side that is the query is drawn per batch.
    An epoch may consist of several buckets. Memory: twice the texts.
    """
    generator = np.random.default_rng([seed, epoch, 0, bucket])  # bucket 0 has the seed [seed, epoch]
    sequences: dict[int, np.ndarray] = {}
    left = [np.zeros(0, np.int64)]
    for batch in site_batches(texts.keys >> ID_BITS, settings.batch_size, generator):
        keys = 2 * batch + generator.integers(0, 2)
        left.append(keys)
        for row, key in zip(batch.tolist(), keys.tolist(), strict=True):
            sequences[key], sequences[key ^ 1] = _views(texts.titles[row], texts.bodies[row], generator)
    rows = np.concatenate(left)
    return sequences, Rankings(rows, rows ^ 1, np.zeros((len(rows), 0), np.int64), np.arange(len(rows)))


def _views(title: np.ndarray, body: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if len(body) <= _SPAN or generator.random() < 0.5:
        return title, body
    spans = [body[start : start + _SPAN] for start in range(0, len(body), _SPAN)]
    order = generator.permutation(len(spans)).tolist()
    middle = len(spans) // 2
    first, second = (np.concatenate([spans[index] for index in half]) for half in (order[:middle], order[middle:]))
    return (np.concatenate([title, first]) if generator.random() < 0.5 else first), second
