"""What training reads: known duplicates as positives; negatives that are random, mined or labelled as such; teachers'
embeddings of some questions; and titles with their bodies, in the order in which they are met.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.errors import DupqError
from dupq.links import Split
from dupq.settings.config import Settings
from dupq.settings.sections import TitleBodySettings, TrainingSettings
from dupq.text.keys import ID_BITS, are_pairs_among
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds

NEGATIVE_POOL = 100_000  # questions that negatives are drawn from, of the training part or of none
SET_PAIRS = 1_000  # of one set at most; of a larger one some are drawn, the others counted
_NO_PAIRS = np.zeros((0, 2), np.int64)
Sequences = Mapping[int, np.ndarray]  # the token ids of each question, by key


class Pairs(NamedTuple):
    """Question pairs (int64 keys) and their labels (float32): 1 duplicate, 0 not."""

    left: np.ndarray
    right: np.ndarray
    labels: np.ndarray


class Rankings(NamedTuple):
    """Known duplicates, and for each pair its negatives: questions that duplicate neither (int64 keys)."""

    left: np.ndarray  # (n,)
    right: np.ndarray  # (n,)
    negatives: np.ndarray  # (n, m)
    sets: np.ndarray  # (n,), the set of duplicates that a pair belongs to


class Positives(NamedTuple):
    """The pairs (int64, shape (m, 2), left < right, sorted) that are trained on, and how many SET_PAIRS left out."""

    pairs: np.ndarray
    over_set_pairs: int


def positives(links: np.ndarray, split: Split, settings: TrainingSettings) -> Positives:
    """Return the known duplicates of the training part: all pairs of each set, unless only links are wanted."""
    own = split.links_of("train", links)
    return closed(own, split, settings) if settings.positives == "closed" else Positives(own, 0)


def closed(links: np.ndarray, split: Split, settings: TrainingSettings) -> Positives:
    """Return every pair of every set of training questions.

    Of sets with more than SET_PAIRS, links come first, then random pairs: a set of 10,000 questions has 50 million.
    """
    questions = split.questions_of("train")
    sets = split.set_of(questions)
    order = np.argsort(sets, kind="stable")
    found, left_out = [_NO_PAIRS], 0
    for group in np.split(questions[order], np.flatnonzero(np.diff(sets[order])) + 1):
        total = len(group) * (len(group) - 1) // 2
        if total <= SET_PAIRS:
            pairs = np.stack([group[side] for side in np.triu_indices(len(group), 1)], axis=1)
        else:
            pairs = _some_pairs(group, links, settings)
        found.append(pairs)
        left_out += total - len(pairs)
    return Positives(np.unique(np.concatenate(found), axis=0), left_out)


def _some_pairs(group: np.ndarray, links: np.ndarray, settings: TrainingSettings) -> np.ndarray:
    linked = chosen_pairs(links[np.isin(links[:, 0], group)], SET_PAIRS, settings.seed)
    generator = np.random.default_rng([settings.seed, int(group[0])])
    drawn = np.sort(generator.choice(group, (SET_PAIRS, 2)), axis=1)
    drawn = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    drawn = drawn[~are_pairs_among(linked, drawn)]
    room = SET_PAIRS - len(linked)
    return np.concatenate([linked, chosen_pairs(drawn, room, settings.seed)])


def chosen_pairs(pairs: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most `most` of the pairs (int64, shape (m, 2)), by a hash of their keys, in their order."""
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
    others: np.ndarray = _NO_PAIRS,
    left: np.ndarray | None = None,
) -> Pairs:
    """Every link as a positive pair, and `negatives` times as many pairs of a linked and a random question.

    Where `left` (keys, `negatives` a link) is given it takes the place of the linked questions. A negative is never one
    question with itself or with one of its known duplicates. `others` are more negatives. The links come first, in
    their order, then the negatives of each, then the others.
    """
    if left is None:  # the two sides of a link alternate; which comes first is random
        first = generator.permutation(len(links)) % 2
        left = np.take_along_axis(links, (first[:, None] + np.arange(negatives)) % 2, axis=1).ravel()
    right = draw_negatives(left, pool, split, generator)
    wrong = len(left) + len(others)
    return Pairs(
        np.concatenate([links[:, 0], left, others[:, 0]]),
        np.concatenate([links[:, 1], right, others[:, 1]]),
        np.concatenate([np.ones(len(links), np.float32), np.zeros(wrong, np.float32)]),
    )


def with_negatives(
    links: np.ndarray,
    pool: np.ndarray,
    split: Split,
    negatives: int,
    generator: np.random.Generator,
    mined: np.ndarray | None = None,
    wrong: np.ndarray = _NO_PAIRS,
) -> Rankings:
    """Every link, in the order of `links`, with `negatives` random questions (dos Santos et al. 2015, section 2.5).

    After them come those of `mined` (int64, shape (links, any)); and if there are pairs labelled as no duplicates
    (`wrong`, int64, shape (m, 2)), a partner of either question in one of those, or else one more random question.
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
    left: np.ndarray, right: np.ndarray, otherwise: np.ndarray, wrong: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """For each pair one of the questions that `wrong` pairs with either side, or else that of `otherwise`."""
    partners: dict[int, list[int]] = {}
    for one, other in wrong.tolist():
        partners.setdefault(one, []).append(other)
        partners.setdefault(other, []).append(one)
    chances = generator.random(len(left))
    found = otherwise.copy()
    for row, (one, other) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        known = partners.get(one, []) + partners.get(other, [])
        if known:
            found[row] = known[int(chances[row] * len(known))]
    return found


def draw_negatives(questions: np.ndarray, pool: np.ndarray, split: Split, generator: np.random.Generator) -> np.ndarray:
    """A random question of `pool` for each of `questions` that is neither it nor a known duplicate of it."""
    own = split.set_of(questions)
    negatives = generator.choice(pool, len(questions))
    for _ in range(100):
        drawn = split.set_of(negatives)
        wrong = (negatives == questions) | ((drawn == own) & (own >= 0))
        if not wrong.any():
            return negatives
        negatives[wrong] = generator.choice(pool, int(wrong.sum()))
    for row in np.flatnonzero(wrong):  # nearly all of the pool duplicates it
        negatives[row] = generator.choice(_possible_negatives(int(questions[row]), pool, split))
    return negatives


def _possible_negatives(question: int, pool: np.ndarray, split: Split) -> np.ndarray:
    own = int(split.set_of(np.array([question]))[0])
    allowed = pool[(pool != question) & ((split.set_of(pool) != own) | (own < 0))]
    if not len(allowed):
        raise DupqError(
            f"the pool of negatives: all its {len(pool)} questions are known duplicates of one another, so that "
            "there are no negatives; take a larger pool, or an archive with more questions"
        )
    return allowed


_LEAST_BATCH = 64  # rows: a smaller last batch would be too easy, and waits for the next epoch


def site_batches(sites: np.ndarray, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Rows in whole batches, each of one of `sites` (one a row); the remainders of all sites make mixed batches."""
    order = generator.permutation(len(sites))
    whole, rests = [], []
    for site in np.unique(sites):
        rows = order[sites[order] == site]
        end = len(rows) - len(rows) % size
        whole += [rows[start : start + size] for start in range(0, end, size)]
        rests.append(rows[end:])
    rest = generator.permutation(np.concatenate([np.zeros(0, np.int64), *rests]))
    batches = [whole[index] for index in generator.permutation(len(whole))]
    batches += [rest[start : start + size] for start in range(0, len(rest), size)]
    if len(batches) > 1 and len(batches[-1]) < min(_LEAST_BATCH, size):
        batches.pop()
    return batches


BATCH_SIZE = 768  # questions; the more, the more others each is compared with


class DistillationTargets(NamedTuple):
    """The targets of distillation: questions, and the embeddings that the teachers have of them."""

    left: np.ndarray  # (n,), int64 keys
    vectors: np.ndarray  # (n, any), float32, of length 1


def targets(keys: np.ndarray, embeddings: Sequence[np.ndarray]) -> DistillationTargets:
    """The embeddings of each teacher (float32, one row a key), less the mean of their site and of length 1, as one.

    What a site has in common tells no question of it from another. The cosine of two questions is the mean of the
    teachers' cosines.
    """
    units = [_centred(keys, each) for each in embeddings]
    return DistillationTargets(keys, np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units))))


def _centred(keys: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    found, sites = embeddings.copy(), keys >> ID_BITS
    for site in np.unique(sites):
        found[sites == site] -= found[sites == site].mean(axis=0)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def targets_in_order(
    taught: DistillationTargets, seed: int, epoch: int, batch_size: int = BATCH_SIZE
) -> DistillationTargets:
    """Return the targets in the order of an epoch, in batches of one site."""
    batches = site_batches(taught.left >> ID_BITS, batch_size, np.random.default_rng([seed, epoch]))
    order = np.concatenate([np.zeros(0, np.int64), *batches])
    return DistillationTargets(*(column[order] for column in taught))


# Titles and bodies as free training pairs: which body belongs to which title, in any archive and without links.
#
# Two halves of a body are pairs too, which is closer to what the encoder is for: two texts of the same kind.

_SPAN = 12  # words of the spans that are dealt out to the two halves of a body


class TitlesAndBodies(NamedTuple):
    """Questions that have both."""

    keys: np.ndarray  # int64, (n,)
    titles: TokenIds
    bodies: TokenIds

    def take(self, rows: np.ndarray) -> "TitlesAndBodies":
        """Some questions, by row number."""
        return TitlesAndBodies(self.keys[rows], self.titles.take(rows), self.bodies.take(rows))

    def among(self, keys: np.ndarray) -> "TitlesAndBodies":
        """Those of the questions `keys`."""
        return self.take(np.flatnonzero(np.isin(self.keys, keys)))


def title_body_examples(
    texts: TitlesAndBodies, settings: TitleBodySettings, seed: int, epoch: int, bucket: int = 0
) -> tuple[Sequences, Rankings]:
    """The pairs of texts of one epoch, in batches, and their token ids by keys that hold for this epoch only.

    With even odds the title is paired with the body, or (if it has two spans of words) one half of the body's spans,
    with even odds behind the title, with the other half. Which side is the query alternates at random between batches.
    `bucket` tells parts of an epoch apart that are trained on one after the other. Memory: twice the texts.
    """
    generator = np.random.default_rng([seed, epoch, 0, bucket])  # zeros at the end of a seed count for nothing
    sequences: dict[int, np.ndarray] = {}
    left, right = [], []
    for batch in site_batches(texts.keys >> ID_BITS, settings.batch_size, generator):
        keys = 2 * batch + generator.integers(0, 2)
        left.append(keys)
        right.append(keys ^ 1)
        for row, key in zip(batch.tolist(), keys.tolist(), strict=True):
            sequences[key], sequences[key ^ 1] = _views(texts.titles[row], texts.bodies[row], generator)
    rows = np.concatenate([np.zeros(0, np.int64), *left])
    return sequences, Rankings(
        rows,
        np.concatenate([np.zeros(0, np.int64), *right]),
        np.zeros((len(rows), 0), np.int64),
        np.arange(len(rows)),
    )


def _views(title: np.ndarray, body: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if len(body) <= _SPAN or generator.random() < 0.5:
        return title, body
    pieces = [body[start : start + _SPAN] for start in range(0, len(body), _SPAN)]
    order = generator.permutation(len(pieces)).tolist()
    half = len(pieces) // 2
    first, second = (np.concatenate([pieces[index] for index in part]) for part in (order[:half], order[half:]))
    return (np.concatenate([title, first]) if generator.random() < 0.5 else first), second


def titles_and_bodies(texts: pa.Table, vocabulary: Vocabulary, settings: Settings) -> TitlesAndBodies:
    """Return the rows of TEXTS that have both, in their order."""
    table = texts.filter(pc.and_(pc.not_equal(texts["title"], ""), pc.not_equal(texts["title"], texts["text"])))
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(column, most)[0] for column in (table["title"], bodies))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)
