"""From the neighbours of questions to pairs with a probability, and from these to clusters.

Pairs above a threshold connect questions to components, and each component is split into its best partition. Up to a
size of the component, pairs that neither question lists are scored for that too; in larger ones they count as the least
likely. The likeliest pairs that are not joined make the worklist.

lists of neighbours  ──ranked──▶        rows of NEIGHBOURS, a direction each
NEIGHBOURS           ──undirected──▶    rows of CANDIDATES, a pair each
CANDIDATES           ──compared──▶      rows of COMPARED
COMPARED             ──scored_table──▶  rows of SCORED, with a reranker's vectors if it has read the questions
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import regex
from scipy.special import expit, logit
from typing_extensions import TypedDict

from dupq.clusters.calibration import Calibrated, Model, features_of
from dupq.clusters.components import components, connected
from dupq.clusters.evidence import UNLISTED, Words, lifts_of, shared
from dupq.clusters.partition import partition
from dupq.clusters.reranking import Reread, cosines_of
from dupq.neighbours.candidates import Nearest, as_neighbours, nearest_in
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import pair_scores
from dupq.tables import CANDIDATES, COMPARED, NEIGHBOURS, SCORED
from dupq.text.keys import RowsByKey, are_among, indices_among, pairs_among, pairs_in
from dupq.text.languages import is_stop_word, stems
from dupq.text.questions import bucket_of
from dupq.text.title_intent import tells

_NO_RANK = np.iinfo(np.int32).max  # sorts last
_STEPS = 1_000  # of probability
_NO_PAIRS = np.zeros((0, 2), np.int64)
SCORED_SIZE = 1_000  # questions of a component: in a larger one only candidates are scored, else every pair
_LEAST_PROBABILITY, _MOST_PROBABILITY = 1e-3, 1 - 1e-6
Score = Callable[[np.ndarray], np.ndarray]  # from pairs of keys that are no candidates to their probabilities
_WORD = regex.compile(r"[\w\p{M}][\w\p{M}+#]*")  # Arabic and Hindi have marks within words
_DENIAL = regex.compile(r"\b(?:\w+n['’]t|cannot)\b")
_WORDS_SHOWN = 4
_TAGS_SHOWN = 3
_ALIKE = 0.5  # text_overlap from which texts are much alike


class PairScorer(NamedTuple):
    """What turns evidence into a probability."""

    model: Model
    reference: np.ndarray  # best scores of questions, ascending
    k: int  # neighbours of a question
    reread: Reread | None = None  # where a reranker has read both questions


def ranked(keys: np.ndarray, nearest: Nearest, measure: Measure, kind: type = np.float32) -> pa.Table:
    """Return the lists of the questions `keys` as rows of NEIGHBOURS. Lifts are calculated with floats of this kind."""
    scores: np.ndarray = nearest.scores.astype(np.float32).astype(kind)  # -inf where nothing is listed
    lifts = lifts_of(scores, measure.highest)[nearest.others >= 0]
    return pa.table([*as_neighbours(keys, nearest), lifts], schema=NEIGHBOURS)


def undirected(directed: pa.Table) -> pa.Table:
    """Return rows of NEIGHBOURS as pairs (CANDIDATES), each once, with how either side lists the other."""
    queries = directed["query"].to_numpy()
    ends = np.sort(np.stack([queries, directed["neighbour"].to_numpy()], axis=1), axis=1)
    ranks = directed["rank"].fill_null(_NO_RANK).to_numpy()
    order = np.lexsort((ranks, ends[:, 1], ends[:, 0]))
    queries, ends, ranks = queries[order], ends[order], ranks[order]
    scores, lifts = (directed[name].to_numpy()[order] for name in ("similarity", "lift"))
    first = np.append(True, (ends[1:] != ends[:-1]).any(axis=1))[: len(ends)]
    pairs, columns = np.cumsum(first) - 1, [*ends[first].T, scores[first]]
    for side in ends.T:
        rows = np.flatnonzero((ranks != _NO_RANK) & (queries == side))
        for values, empty in ((ranks, UNLISTED), (lifts, 0.0)):
            column = np.full(np.count_nonzero(first), empty, values.dtype)
            column[pairs[rows]] = values[rows]
            columns.append(column)
    return pa.table(columns, schema=CANDIDATES)


def scorer_of_pairs(calibration: Calibrated, k: int) -> PairScorer:
    """Return the scale of a run from its calibration.json."""
    return PairScorer(Model.from_dict(calibration["model"]), np.array(calibration["reference"]), k)


def scored_table(
    pairs: pa.Table, title_context: pa.Table, scale: PairScorer, read: Embeddings | None = None
) -> pa.Table:
    """Score rows of COMPARED, given the rows of TITLE_CONTEXT of their questions; returns rows of SCORED.

    `read` are a reranker's vectors of those questions that it has read, by ascending key.
    """
    features = features_of(pairs, title_context, scale.reference, scale.k)
    cosines = np.full(len(pairs), np.nan, np.float32)
    p = scale.model.probabilities_of(pairs, features)
    if read is not None and scale.reread is not None:
        cosines = cosines_of(read, pairs_in(pairs))
        rows = np.flatnonzero(np.isfinite(cosines))
        of_rows = pairs.take(pa.array(rows)), features[rows], cosines[rows].astype(np.float64)
        p[rows] = expit(scale.reread.log_odds(scale.model, *of_rows))
    ranks, tags = [pairs[f"rank_{side}"].to_numpy() for side in ("left", "right")], pairs["tags"].to_numpy()
    columns = [
        *(pairs[name].combine_chunks() for name in ("left", "right", "similarity")),
        *(pa.array(side, mask=side == UNLISTED) for side in ranks),
        *(pairs[name].combine_chunks() for name in ("title_cosine", "text_cosine")),
        pa.array(tags, mask=np.isnan(tags)),
        p.astype(np.float32),
        pa.array(cosines, from_pandas=True),
    ]
    return pa.table(columns, schema=SCORED)


def unlisted(pairs: np.ndarray, embedded: Embeddings, measure: Measure) -> pa.Table:
    """Return rows of CANDIDATES for pairs (int64 keys, shape (m, 2)) of which neither side lists the other."""
    rows = RowsByKey(embedded.keys)
    ends = rows.find(pairs[:, 0]), rows.find(pairs[:, 1])
    similarities = pair_scores(measure, embedded, embedded, ends).astype(np.float32)
    lifts, ranks = np.zeros(len(pairs), np.float32), np.full(len(pairs), UNLISTED, np.int32)
    return pa.table([*pairs.T, similarities, ranks, lifts, ranks, lifts], schema=CANDIDATES)


def compared(pairs: pa.Table, rows: RowsByKey, words: Words, rarities: np.ndarray) -> pa.Table:
    """Return rows of CANDIDATES with what their texts have in common (COMPARED).

    `rows` finds a question's row of `words` by its key; `rarities` has a value for each term.
    """
    left, right = (rows.find(pairs[side].to_numpy()) for side in ("left", "right"))
    common = shared(words, left, right, rarities)
    return pa.table([*pairs.columns, *common], schema=COMPARED)


class Thresholds(TypedDict):
    """The threshold from which pairs join, and those for other precisions, each with its expected precision."""

    chosen: dict[str, float]
    others: list[dict[str, float]]


class Histogram(NamedTuple):
    """Candidate pairs by probability, in 1,000 steps."""

    pairs: np.ndarray  # (1000,), how many
    probabilities: np.ndarray  # float64, (1000,), their sum

    def choose(self, precision: float, least_sure: float = 0.5) -> dict[str, float]:
        """Return the lowest threshold, with its figures, whose expected precision is enough; 1 if there is none.

        It is at least `least_sure` if the precision is more than 0.5: however sure other pairs are, one that is
        likelier wrong than right connects nothing.
        """
        right, pairs = (np.cumsum(column[::-1])[::-1] for column in (self.probabilities, self.pairs.astype(float)))
        least = round(_STEPS * least_sure) if precision > 0.5 else 0
        is_enough = least + np.flatnonzero(((self.pairs > 0) & (right >= precision * pairs))[least:])
        return {"precision": precision, **self.above(is_enough[0] / _STEPS if len(is_enough) else 1.0)}

    def above(self, threshold: float) -> dict[str, float]:
        """Return the number and the expected precision of the pairs from a threshold on."""
        first = min(_STEPS, int(np.ceil(threshold * _STEPS - 1e-9)))
        pairs, right = float(self.pairs[first:].sum()), float(self.probabilities[first:].sum())
        expected = right / pairs if pairs else 1.0
        return {"threshold": float(threshold), "pairs": pairs, "expected_precision": expected}


def histogram_of(probabilities: np.ndarray) -> Histogram:
    """Return the histogram of the probabilities of candidate pairs."""
    p = probabilities.astype(np.float64)
    steps = np.minimum((p * _STEPS).astype(np.int64), _STEPS - 1)
    return Histogram(np.bincount(steps, minlength=_STEPS), np.bincount(steps, p, minlength=_STEPS))


def decide(
    pairs: np.ndarray, p: np.ndarray, links: np.ndarray, threshold: float, score: Score, apart: np.ndarray = _NO_PAIRS
) -> tuple[np.ndarray, np.ndarray]:
    """Return the questions (int64 keys, sorted) of components, and for each the smallest key of its cluster.

    `pairs` (int64 keys, shape (m, 2), left < right, each once) have the probabilities `p` (float32). Pairs of `links`
    join at any probability; pairs of `apart` never share a cluster. `score` is called for pairs that are not among
    `pairs`, in components of three to SCORED_SIZE questions. This is the partition stage in one process. Memory: about
    500 bytes a pair in components.
    """
    keys, owners = components(np.concatenate([links, pairs[p >= np.float32(threshold)]]))
    _, indices, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    is_scored = (sizes[indices] > 2) & (sizes[indices] <= SCORED_SIZE)
    rows, inside = pairs_inside(keys, owners, pairs)
    return keys, solve(keys, owners, is_scored, rows, p[inside], (links, apart), threshold, score)[0]


def pairs_inside(keys: np.ndarray, owners: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs within one component, as indices of `keys` (int64, (n, 2)), and which they are (bool, (m,)).

    `owners` are the components of the sorted `keys`; `pairs` are keys of any questions (int64, shape (m, 2)).
    """
    indices, are_known = indices_among(keys, pairs)
    inside = are_known[:, 0] & are_known[:, 1]
    inside[inside] = np.equal(*owners[indices[inside]].T)
    return indices[inside], inside


def solve(
    keys: np.ndarray,
    owners: np.ndarray,
    is_scored: np.ndarray,
    listed: np.ndarray,
    probabilities: np.ndarray,
    constraints: tuple[np.ndarray, np.ndarray],
    threshold: float,
    score: Score,
) -> tuple[np.ndarray, int]:
    """Return for each question of whole components (sorted `keys`) the smallest key of its cluster.

    `owners` are the components of `keys`. The `listed` pairs (int64, shape (m, 2), indices of `keys`, each once) have
    `probabilities`; where `is_scored`, `score` is called for all other pairs, and the second result is their number.
    `constraints` are pairs of keys: the first join at any probability, the second never share a cluster, and the first
    connect none of the second.

    A cluster is split into what joined pairs and listed pairs above the threshold connect: nothing that the run shows
    would hold the rest together.
    """
    missing = _missing_pairs(owners, is_scored, listed)
    p = np.concatenate([probabilities, score(keys[missing])]) if len(missing) else probabilities
    joined, apart = (np.searchsorted(keys, pairs_among(keys, pairs)) for pairs in constraints)
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
    """Return the pairs (int64 indices, shape (m, 2)) of the components to be scored that are not among `pairs`."""
    order = np.argsort(owners, kind="stable")
    order = order[is_scored[order]]
    members = np.split(order, np.flatnonzero(np.diff(owners[order])) + 1)
    every = np.concatenate([nodes[np.stack(np.triu_indices(len(nodes), 1), axis=1)] for nodes in members])
    count = len(owners)
    known = np.sort(pairs[:, 0] * count + pairs[:, 1])
    return every[~are_among(known, every[:, 0] * count + every[:, 1])]


def _contracted(
    firsts: np.ndarray, pairs: np.ndarray, weights: np.ndarray, absent: float
) -> tuple[np.ndarray, np.ndarray]:
    """Contract sets of linked questions to one node; return the pairs between them, each once, and their weights.

    `firsts` is the first question of the set of each question. The weights of all pairs between two sets are summed up;
    a pair that is not listed weighs `absent`. Sets without a listed pair between them are left out.
    """
    ends = np.sort(firsts[pairs], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    distinct, indices = np.unique(ends[apart], axis=0, return_inverse=True)
    distinct, indices, sizes = distinct.reshape(-1, 2), indices.ravel(), np.bincount(firsts, minlength=len(firsts))
    unlisted = sizes[distinct].prod(axis=1) - np.bincount(indices, minlength=len(distinct))
    return distinct, np.bincount(indices, weights[apart], len(distinct)) + absent * unlisted


class Titled(NamedTuple):
    """What a reader sees of a question. Users wrote it: hostile text."""

    title: str
    tags: Sequence[str]


def likeliest(pairs: np.ndarray, probabilities: np.ndarray, clusters: np.ndarray, most: int) -> np.ndarray:
    """Return the rows (int64) of the `most` likeliest pairs, the likeliest first, ties by key; one per two clusters.

    `pairs` are int64 keys of shape (m, 2), `clusters` the clusters of their questions in the same shape.
    """
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -probabilities))
    _, first = np.unique(np.sort(clusters[order], axis=1), axis=0, return_index=True)
    return order[np.sort(first)[:most]]


def unlinked(probabilities: np.ndarray, linked_share: float) -> np.ndarray:
    """Return the probabilities (float64) of pairs, given that nobody linked them.

    People link a share of the duplicates, so a pair without a link is less likely to be one (Bayes' rule).
    """
    p = probabilities.astype(np.float64)
    return np.asarray(p * (1 - linked_share) / (1 - linked_share * p))


class Wording:
    """The evidence for pairs of one archive in a reader's words."""

    def __init__(self, language: str, rarities: np.ndarray, questions: int, k: int) -> None:
        """Take the rarity of each term, the number of questions in the archive, and of neighbours in a list."""
        self._language, self._stem, self._rarities = language, stems(language), rarities
        self._questions, self._k = questions, k

    def evidence(self, pair: Mapping[str, Any], left: Titled, right: Titled) -> str:
        """Return what titles, texts and tags of a row of `pairs` share, and how near its questions are."""
        parts = [self._titles(left.title, right.title)]
        if pair["jaccard"] is not None:
            parts.append(f"{pair['jaccard']:.0%} of the shingles of both texts are the same")
        has_bodies = pair["text_overlap"] != pair["title_overlap"]
        if has_bodies and (pair["text_overlap"] or 0) >= _ALIKE:
            parts.append("texts much alike")
        if pair["reranker"] is not None:
            parts.append(f"the reranker's cosine is {pair['reranker']:.2f}")
        if pair["rank"] is not None:
            parts.append(f"{_ordinal(pair['rank'])}nearest of {self._questions:,}")
        elif pair["source"] == "encoder":
            parts.append(f"beyond the {self._k} nearest of each")
        if left.tags or right.tags:
            common = [tag for tag in left.tags if tag in right.tags]
            told = f"tags share {_quoted(common[:_TAGS_SHOWN])}" if common else "no tag in common"
            parts.append("same tags" if len(common) == len(left.tags) == len(right.tags) else told)
        return "; ".join(parts)

    def _titles(self, left: str, right: str) -> str:
        if " ".join(left.split()).lower() == " ".join(right.split()).lower() != "":
            return "same title"
        words, others = self._telling(left), self._telling(right)
        shared = [word for stem, word in words.items() if stem in others]
        if not shared:
            return "titles share no telling word"
        return f"titles share {_quoted(shared[:_WORDS_SHOWN])}" + self._difference(left, right)

    def _difference(self, left: str, right: str) -> str:
        """Return the words that only one of two titles has; stop words too if they change a question."""
        words, others = self._stems(left), self._stems(right)
        first, second = (
            [word for stem, word in some.items() if stem not in rest and tells(word, self._language)][:_WORDS_SHOWN]
            for some, rest in ((words, others), (others, words))
        )
        if first and second:
            return f"; differ: {_quoted(first)} / {_quoted(second)}"
        if first or second:
            return f"; only one title has {_quoted(first or second)}"
        return "; in another order" if sorted(words) == sorted(others) and [*words] != [*others] else ""

    def _telling(self, title: str) -> dict[str, str]:
        """Return the words of a title that are no stop words, by their stems, the rarest first."""
        words = {stem: word for stem, word in self._stems(title).items() if not is_stop_word(word, self._language)}
        return dict(sorted(words.items(), key=lambda item: -float(self._rarities[bucket_of(item[0])])))

    def _stems(self, title: str) -> dict[str, str]:
        """Return the words of a title by their stems, in its order; all that deny a verb are "not" in English."""
        words = _WORD.findall(_DENIAL.sub("not", title.lower()) if self._language == "english" else title.lower())
        return {self._stem(word): word for word in words}


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending} " if number > 1 else ""


def listed_rows(tables: Sequence[pa.Table], k: int, measure: Measure) -> pa.Table:
    """Return the lists in tables (NEAREST), at most `k` neighbours each, as rows of NEIGHBOURS, sorted by query."""
    return ranked(*nearest_in(pa.concat_tables(tables).sort_by("key"), k), measure, np.float64)
