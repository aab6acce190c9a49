"""From the neighbours of questions to pairs with a probability, and from these to clusters: at a threshold, components
of sure pairs, and of each the best partition. The likeliest pairs that are not joined make the worklist.

In components up to a size, pairs that no question lists are scored too; in larger ones they count as least likely.

lists of neighbours  ──ranked──▶        rows of NEIGHBOURS, a direction each
NEIGHBOURS           ──undirected──▶    rows of CANDIDATES, a pair each
CANDIDATES           ──shared──▶        rows of COMPARED (evidence.py)
COMPARED             ──scored_table──▶  rows of SCORED
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import logit
from typing_extensions import TypedDict

from dupq.clusters.calibration import Calibrated, Model, features_of
from dupq.clusters.components import components
from dupq.clusters.evidence import UNLISTED, Shared, Words, listing_of
from dupq.clusters.partition import connected, partition
from dupq.neighbours.embeddings import Measure
from dupq.neighbours.exact import rule_of
from dupq.tables import CANDIDATES, COMPARED, NEIGHBOURS, SCORED
from dupq.text.keys import are_among, indices_among
from dupq.text.questions import Terms, terms_of

if TYPE_CHECKING:
    from dupq.neighbours.candidates import Nearest

_NO_RANK = np.iinfo(np.int32).max  # after all others


class Scale(NamedTuple):
    """How evidence becomes a probability."""

    model: Model
    reference: np.ndarray
    k: int


def ranked(keys: np.ndarray, nearest: "Nearest", measure: Measure) -> pa.Table:
    """The lists (search.Nearest) of the questions `keys` as rows for the clusters stage."""
    scores = np.where(nearest.others >= 0, rule_of(measure).similarities(nearest.scores), -np.inf)
    rows, ranks = np.nonzero(nearest.others >= 0)
    lists = nearest.others, scores, listing_of(scores, measure.highest).lifts
    others, similarities, lifts = (column[rows, ranks] for column in lists)
    columns = keys[rows], others, similarities, (ranks + 1).astype(np.int32), lifts
    return pa.table([pa.array(column) for column in columns], schema=NEIGHBOURS)


def undirected(directed: pa.Table) -> pa.Table:
    """Rows of NEIGHBOURS as pairs (CANDIDATES), each once, with how either side lists the other."""
    queries, others = directed["query"].to_numpy(), directed["neighbour"].to_numpy()
    left, right = np.minimum(queries, others), np.maximum(queries, others)
    ranks = directed["rank"].fill_null(_NO_RANK).to_numpy()
    order = np.lexsort((ranks, right, left))
    left, right, ranks, queries = left[order], right[order], ranks[order], queries[order]
    first = np.r_[True, (left[1:] != left[:-1]) | (right[1:] != right[:-1])] if len(left) else np.zeros(0, bool)
    pairs = np.cumsum(first) - 1
    columns: list[np.ndarray] = [left[first], right[first], directed["similarity"].to_numpy()[order][first]]
    listed = ranks != _NO_RANK
    values = [ranks, directed["lift"].to_numpy()[order]]
    for is_mine in (queries == left, queries == right):
        rows = np.flatnonzero(listed & is_mine)
        for value, empty in zip(values, (UNLISTED, 0.0), strict=True):
            column = np.full(int(first.sum()), empty, value.dtype)
            column[pairs[rows]] = value[rows]
            columns.append(column)
    return pa.table([pa.array(column) for column in columns], schema=CANDIDATES)


def scale_of(calibration: Calibrated, k: int) -> Scale:
    """Return the model of a run, whose record is calibration.json."""
    return Scale(Model.from_dict(calibration["model"]), np.array(calibration["reference"]), k)


def scored_table(pairs: pa.Table, around: pa.Table, scale: Scale) -> pa.Table:
    """Rows of COMPARED, with the rows of AROUND of their questions, as rows of SCORED."""
    p = scale.model.probabilities(features_of(pairs, around, scale.reference, scale.k))
    ranks, tags = [pairs[f"rank_{side}"].to_numpy() for side in ("left", "right")], pairs["tags"].to_numpy()
    columns = [
        *(pairs[name].combine_chunks() for name in ("left", "right", "similarity")),
        *(pa.array(side, mask=side == UNLISTED) for side in ranks),
        *(pairs[name].combine_chunks() for name in ("title_cosine", "text_cosine")),
        pa.array(tags, mask=np.isnan(tags)),
        pa.array(p.astype(np.float32)),
        pa.nulls(len(p), pa.float32()),
    ]
    return pa.table(columns, schema=SCORED)


def unlisted(pairs: np.ndarray, similarities: np.ndarray, common: Shared) -> pa.Table:
    """Rows of COMPARED of pairs (int64 keys, shape (m, 2)) of which neither side lists the other."""
    nothing, ranks = np.zeros(len(pairs), np.float32), np.full(len(pairs), UNLISTED, np.int32)
    columns = [pairs[:, 0], pairs[:, 1], similarities, ranks, nothing, ranks, nothing, *common]
    return pa.table([pa.array(column) for column in columns], schema=COMPARED)


def words_of_texts(texts: pa.Table, tags: Terms, marks: Terms, language: str) -> Words:
    """The words, tags and marks of rows of TEXTS that are compared."""
    columns = (pa.concat_arrays([pa.array([], pa.string()), *texts[name].chunks]) for name in ("title", "text"))
    titles, whole = (terms_of(column, language) for column in columns)
    return Words(titles, whole, tags, marks)


_STEPS = 1_000  # of probability


class Thresholds(TypedDict):
    """The probability from which pairs join, and those for other precisions, with what is expected of each."""

    chosen: dict[str, float]
    others: list[dict[str, float]]


class Histogram(NamedTuple):
    """The candidate pairs by their probabilities, in steps of .001, and the sum of these in each; shape (1000,)."""

    pairs: np.ndarray
    probabilities: np.ndarray  # float64

    def choose(self, precision: float) -> dict[str, float]:
        """The lowest threshold from which the expected precision is reached, 1 if there is none; see `above`."""
        right, pairs = (np.cumsum(column[::-1])[::-1] for column in (self.probabilities, self.pairs.astype(float)))
        reached = np.flatnonzero((self.pairs > 0) & (right >= precision * pairs))
        return {"precision": precision, **self.above(reached[0] / _STEPS if len(reached) else 1.0)}

    def above(self, threshold: float) -> dict[str, float]:
        """The number and expected precision of the pairs from a threshold on."""
        first = min(_STEPS, int(np.ceil(threshold * _STEPS - 1e-9)))
        pairs, right = float(self.pairs[first:].sum()), float(self.probabilities[first:].sum())
        expected = right / pairs if pairs else 1.0
        return {"threshold": float(threshold), "pairs": pairs, "expected_precision": expected}


def histogram_of(probabilities: np.ndarray) -> Histogram:
    """Return that of the probabilities of candidate pairs."""
    p = probabilities.astype(np.float64)
    steps = np.minimum((p * _STEPS).astype(np.int64), _STEPS - 1)
    return Histogram(np.bincount(steps, minlength=_STEPS), np.bincount(steps, p, minlength=_STEPS))


_NO_PAIRS = np.zeros((0, 2), np.int64)
SCORED_SIZE = 1_000  # questions of a component of which every pair is scored; beyond it, only candidates
_LEAST_PROBABILITY, _MOST_PROBABILITY = 1e-3, 1 - 1e-6
Score = Callable[[np.ndarray], np.ndarray]  # from pairs of keys that no question lists to their probabilities


def decide(
    pairs: np.ndarray,
    probabilities: np.ndarray,
    links: np.ndarray,
    threshold: float,
    scored_size: int,
    score: Score,
    apart: np.ndarray = _NO_PAIRS,
) -> tuple[np.ndarray, np.ndarray]:
    """The questions (int64 keys, sorted) of components, and for each the smallest key of its cluster.

    `pairs` (int64 keys, shape (m, 2), left < right, each once) have `probabilities` (float32); `links` (likewise) join
    at any probability, and pairs that are `apart` (likewise) are never in one cluster. `score` is asked for pairs that
    are not among `pairs`, in components of three to `scored_size` questions. This is the partition stage in one
    process. Memory: about 500 bytes a pair of components.
    """
    keys, owners = components(np.concatenate([links, pairs[probabilities >= np.float32(threshold)]]))
    _, indices, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    is_scored = (sizes[indices] > 2) & (sizes[indices] <= scored_size)
    ends, are_there = indices_among(keys, pairs)
    inside = are_there[:, 0] & are_there[:, 1]
    inside[inside] = np.equal(*owners[ends[inside]].T)
    held = links, apart
    return keys, solve(keys, owners, is_scored, ends[inside], probabilities[inside], held, threshold, score)[0]


def solve(
    keys: np.ndarray,
    owners: np.ndarray,
    is_scored: np.ndarray,
    listed: np.ndarray,
    probabilities: np.ndarray,
    held: tuple[np.ndarray, np.ndarray],
    threshold: float,
    score: Score,
) -> tuple[np.ndarray, int]:
    """For each of the questions of whole components (sorted `keys`) the smallest key of its cluster.

    `owners` are their components, `is_scored` says whether `score` is asked for all pairs of these that are not
    `listed`; their number is the second result. `listed` pairs (int64, shape (m, 2), of indices of `keys`, each once)
    have `probabilities`. Of `held` pairs of keys the first join at any probability; the second are never in one
    cluster, and none is connected by the first.

    A cluster is split into what the listed pairs above the threshold, and the joined ones, connect: it would have
    nothing to show for the rest.
    """
    missing = _missing_pairs(owners, is_scored, listed)
    p = np.concatenate([probabilities, score(keys[missing])]) if len(missing) else probabilities
    joined, apart = (np.searchsorted(keys, pairs[are_among(keys, pairs).all(axis=1)]) for pairs in held)
    firsts = connected(len(keys), joined)
    even = logit(np.clip(threshold, _LEAST_PROBABILITY, _MOST_PROBABILITY))
    weights = logit(np.clip(p.astype(np.float64), _LEAST_PROBABILITY, _MOST_PROBABILITY)) - even
    absent = min(0.0, float(logit(_LEAST_PROBABILITY) - even))
    pairs, weights = np.concatenate([listed, missing, apart]), np.append(weights, np.full(len(apart), -np.inf))
    labels: np.ndarray = partition(len(keys), *_contracted(firsts, pairs, weights, absent), absent)[firsts]
    sure = listed[probabilities >= np.float32(threshold)]
    within = sure[labels[sure[:, 0]] == labels[sure[:, 1]]]
    linked = np.stack([np.arange(len(keys)), firsts], axis=1)
    return keys[connected(len(keys), np.concatenate([within, linked]))], len(missing)


def _missing_pairs(owners: np.ndarray, is_scored: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The pairs (int64, shape (m, 2), of indices) within components that are scored, that are not among `pairs`."""
    order = np.argsort(owners, kind="stable")
    order = order[is_scored[order]]
    starts = np.flatnonzero(np.diff(owners[order])) + 1
    found = [np.zeros((0, 2), np.int64)]
    for indices in np.split(order, starts):
        found.append(indices[np.stack(np.triu_indices(len(indices), 1), axis=1)])
    every, count = np.concatenate(found), len(owners)
    known = np.sort(pairs[:, 0] * count + pairs[:, 1])
    return every[~are_among(known, every[:, 0] * count + every[:, 1])]


def _contracted(
    firsts: np.ndarray, pairs: np.ndarray, weights: np.ndarray, absent: float
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs between linked sets, each once with the sum of its weights: linked questions are one.

    `firsts` is the first question of the linked set of each. Pairs of two such sets that are not listed weigh `absent`
    each, where any of them is listed.
    """
    ends = np.sort(firsts[pairs], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    distinct, indices = np.unique(ends[apart], axis=0, return_inverse=True)
    distinct, indices, sizes = distinct.reshape(-1, 2), indices.ravel(), np.bincount(firsts, minlength=len(firsts))
    unlisted = sizes[distinct].prod(axis=1) - np.bincount(indices, minlength=len(distinct))
    return distinct, np.bincount(indices, weights[apart], len(distinct)) + absent * unlisted


_WORD = re.compile(r"\w[\w+#]*")
_WORDS_SHOWN = 4
_TAGS_SHOWN = 3
_ALIKE = 0.5  # of text_overlap: the texts share much


class Titled(NamedTuple):
    """What a reader is told of a question. It is its author's: hostile text."""

    title: str
    tags: Sequence[str]


def likeliest(pairs: np.ndarray, probabilities: np.ndarray, clusters: np.ndarray, most: int) -> np.ndarray:
    """The rows (int64) of the `most` likeliest pairs, the likeliest first, ties by key; one between two clusters.

    `pairs` are int64 keys of shape (m, 2), `clusters` (likewise) those of the questions.
    """
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -probabilities))
    _, first = np.unique(np.sort(clusters[order], axis=1), axis=0, return_index=True)
    return order[np.sort(first)[:most]]


def unlinked(probabilities: np.ndarray, linked_share: float) -> np.ndarray:
    """The probabilities (float64) of pairs, given that nobody linked them.

    People link a share of the duplicates; so of pairs without a link fewer are duplicates (Bayes' rule).
    """
    p = probabilities.astype(np.float64)
    return np.asarray(p * (1 - linked_share) / (1 - linked_share * p))


def in_words(pair: Mapping[str, Any], left: Titled, right: Titled, questions: int, k: int, rarity: "Rarity") -> str:
    """The evidence of a row of `pairs` for a reader: what titles, texts and tags share, and how near the two are.

    `questions` are those of the archive, of which each lists its `k` nearest.
    """
    parts = [_titles(left.title, right.title, rarity)]
    if pair["jaccard"] is not None:
        parts.append(f"{pair['jaccard']:.0%} of the shingles of both texts are the same")
    if (pair["text_overlap"] or 0) >= _ALIKE:
        parts.append("texts much alike")
    if pair["teacher"] is not None:
        parts.append(f"the teacher's cosine is {pair['teacher']:.2f}")
    if pair["rank"] is not None:
        parts.append(f"{_ordinal(pair['rank'])}nearest of {questions:,}")
    elif pair["source"] == "encoder":
        parts.append(f"beyond the {k} nearest of each")
    return "; ".join([*parts, *_tags(left.tags, right.tags)])


class Rarity:
    """How much a word says in this archive."""

    def __init__(self, stem: Callable[[str], str], is_stop_word: Callable[[str], bool], of: Callable[[str], float]):
        """`of` is the rarity of a stem."""
        self.stem, self._is_stop_word, self._of = stem, is_stop_word, of

    def telling(self, title: str) -> dict[str, str]:
        """By their stems the words of a title that are no stop words, the rarest first."""
        words = [word for word in _WORD.findall(title.lower()) if not self._is_stop_word(word)]
        return {self.stem(word): word for word in sorted(words, key=lambda word: -self._of(self.stem(word)))}


def _titles(left: str, right: str, rarity: Rarity) -> str:
    if " ".join(left.split()).lower() == " ".join(right.split()).lower() != "":
        return "same title"
    words, others = rarity.telling(left), rarity.telling(right)
    shared = [word for stem, word in words.items() if stem in others]
    return f"titles share {_quoted(shared[:_WORDS_SHOWN])}" if shared else "titles share no telling word"


def _tags(left: Sequence[str], right: Sequence[str]) -> list[str]:
    shared = [tag for tag in left if tag in right]
    if not (left or right):
        return []
    if len(shared) == len(left) == len(right):
        return ["same tags"]
    return [f"tags share {_quoted(shared[:_TAGS_SHOWN])}" if shared else "no tag in common"]


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _ordinal(number: int) -> str:
    if number == 1:
        return ""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending} "
