"""The probability of pairs as a finished run would give it, from the files that it keeps.

Pairs are two questions of which neither lists the other, or a new text and the questions nearest to it. `weigh` says
what each piece of evidence adds to a pair. A new text is scored as if it were in the archive: it lists its nearest
questions, and a question lists it if it is nearer than the last one on its own list. The change that it would make to
word rarities is ignored.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import logit

from dupq import storage
from dupq.clusters.calibration import FEATURES, KINDS, features_of
from dupq.clusters.decision import Scale, compared, scale_of, scored_table, unlisted, words_of_texts
from dupq.clusters.evidence import UNLISTED, Words, around, askers_of, lifts_of, marks_of, with_askers
from dupq.encoders.saved import read_measure
from dupq.errors import DupqError
from dupq.near_duplicates.asking import TitleComparer, signs_of
from dupq.neighbours.embeddings import Embeddings, Neighbours, gathered
from dupq.runs.question_tables import embeddings_of, pairs_in
from dupq.runs.reader import Key, Run
from dupq.runs.records import RunFiles
from dupq.settings import config
from dupq.tables import CANDIDATES, QUESTIONS, RARITIES
from dupq.text.keys import RowsByKey, Sites
from dupq.text.questions import tags_of, texts_table

WEIGHED = (*KINDS, "a teacher")  # evidence; the rest of a probability is the teacher's
KEYS = ["site_left", "question_id_left", "site_right", "question_id_right"]
PAIR_COLUMNS = [*KEYS, "source", "similarity", "probability", "title_overlap", "rank_left", "rank_right"]
_QUESTION = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        *(QUESTIONS.field(name) for name in ("question_id", "title", "body_html", "tags", "owner")),
    ]
)


class NewTexts(NamedTuple):
    """Texts that are not questions of the archive."""

    titles: list[str]
    bodies: list[str] | None  # HTML

    def rows(self) -> pa.Table:
        """Return them as questions of no site and no owner, with negative ids, which no link names."""
        count = len(self.titles)
        columns = {
            "site": [""] * count,
            "question_id": range(-count, 0),
            "title": self.titles,
            "body_html": self.bodies or [""] * count,
            "tags": [[]] * count,
            "owner": [None] * count,
        }
        return pa.table(columns, schema=_QUESTION)


def words_of_rows(questions: pa.Table, texts: pa.Table, language: str) -> Words:
    """Return the words, tags and marks of questions (rows of QUESTIONS); `texts` are their rows of TEXTS."""
    marks = marks_of(questions, texts["title"], signs_of(questions["title"]), TitleComparer(language))
    marks = with_askers(marks, askers_of(questions["owner"], questions["site"]))
    return words_of_texts(texts, tags_of(questions["tags"].combine_chunks()), marks, language)


class EncoderPairs(NamedTuple):
    """The pairs that the encoder found."""

    keys: np.ndarray  # int64, (m, 2), left < right
    probabilities: np.ndarray  # float32
    similarities: np.ndarray  # float32
    title_cosines: np.ndarray  # float32
    ranks: tuple[np.ndarray, np.ndarray]  # int32: of the right question in the left one's list, and vice versa

    @property
    def is_listed(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether the left question lists the right one, and vice versa (bool)."""
        return self.ranks[0] != UNLISTED, self.ranks[1] != UNLISTED

    def listed(self, column: np.ndarray) -> np.ndarray:
        """Return the values of a column, once per question that lists the other: left ones, then right ones."""
        return np.concatenate([column[rows] for rows in self.is_listed])

    @property
    def listing(self) -> np.ndarray:
        """The keys (int64) of the listing questions, in the rows of `listed`."""
        return np.concatenate([self.keys[rows, side] for side, rows in enumerate(self.is_listed)])


def ends(table: pa.Table, sites: Sites) -> np.ndarray:
    """Return the keys of rows of `pairs` (int64, shape (m, 2))."""
    columns = [table[name] for name in KEYS]
    sides = [sites.pack_columns(columns[index], columns[index + 1], "pairs") for index in (0, 2)]
    return np.stack(sides, axis=1)


def pairs_of(table: pa.Table, sites: Sites) -> EncoderPairs:
    """Return the pairs that the encoder found, from rows of `pairs` (PAIR_COLUMNS)."""
    table = table.filter(pc.equal(table["source"], "encoder"))
    p, scores, cosines = (table[name].to_numpy() for name in ("probability", "similarity", "title_overlap"))
    left, right = (table[name].fill_null(UNLISTED).to_numpy() for name in ("rank_left", "rank_right"))
    return EncoderPairs(ends(table, sites), p, scores, cosines, (left, right))


class Scorer:
    """The probability of pairs as a run would give it, from the files that it keeps."""

    def __init__(self, run: Run, sites: Sites, pairs: EncoderPairs) -> None:
        """Use at least those `pairs` of the run that contain a question to be scored."""
        layout = RunFiles(run.uri)
        self._calibration, self._rarities = layout.calibration, layout.rarities
        self._run, self._sites, self.pairs, self._settings = run, sites, pairs, config.from_dict(run.config)
        needed = [self._calibration, self._rarities, storage.join(run.encoder_uri, "encoder.json")]
        needed.append(run.manifest["inputs"]["questions"])
        self.is_complete = all(storage.exists(uri) for uri in needed) and self._is_of_this_version()

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """Return the probabilities (float32) of pairs of keys (int64, shape (m, 2)) of which neither lists the other.

        All are 0 if the encoder, the questions or the calibration are gone, or of another version of dupq.
        """
        if not self.is_complete:
            return np.zeros(len(pairs), np.float32)
        keys = np.unique(pairs)
        candidates = unlisted(pairs, self._embeddings(keys), read_measure(self._run.encoder_uri))
        return self._scored(self._compared(candidates, keys), [])

    def score_new(self, nearest: Neighbours, new: NewTexts) -> np.ndarray:
        """Return the probabilities (float32) of new texts and their nearest questions, per row of `nearest`.

        Text n has the key n - len(new.titles).
        """
        pairs = np.stack([nearest.queries, nearest.neighbours], axis=1)
        keys = np.unique(np.concatenate([np.arange(-len(new.titles), 0), nearest.neighbours]))
        k, lists, highest = self._settings.neighbours.k, self._lists(), self._highest
        forth = [
            _ranks_and_lifts(nearest.similarities[nearest.queries == query], k, highest)
            for query in np.unique(nearest.queries)
        ]
        back = [
            _rank_and_lift(score, lists.get(key, _NOTHING), k, highest)
            for key, score in zip(nearest.neighbours.tolist(), nearest.similarities, strict=True)
        ]
        ranks, lifts = (np.concatenate(column) for column in zip(*forth, strict=True))
        theirs = [np.array(column, kind) for column, kind in zip(zip(*back, strict=True), _KINDS, strict=True)]
        candidates = pa.table([*pairs.T, nearest.similarities, ranks, lifts, *theirs], schema=CANDIDATES)
        evidence, own = self._compared(candidates, keys, new), ranks != UNLISTED
        return self._scored(evidence, [(nearest.queries[own], evidence["title_cosine"].to_numpy()[own])])

    def weigh(self, pairs: np.ndarray) -> np.ndarray:
        """Return what each of WEIGHED adds to the log-odds of `pairs` of the encoder (int64 keys, shape (m, 2)):
        float64, (m, kinds).

        Raises DupqError for a pair that the run does not have, and if the encoder, the questions or the calibration are
        gone.
        """
        rows = {tuple(ends): row for row, ends in enumerate(self.pairs.keys.tolist())}
        for ends in pairs.tolist():
            if tuple(ends) not in rows:
                named = ", ".join(map(self._sites.label, ends))
                raise DupqError(f"{named}: no candidate pair of the encoder, so no evidence was weighed")
        if not self.is_complete:
            raise DupqError(
                f"{self._run.uri}: the encoder, the questions or the calibration of the run are gone, or of another "
                "version of dupq; run its job again"
            )
        own = np.array([rows[tuple(ends)] for ends in pairs.tolist()])
        lists, listing = self._lists(), []
        for side in (0, 1):
            ranks = self.pairs.ranks[side][own]
            listing += [ranks, self._lifts(lists, pairs[:, side], ranks)]
        candidates = pa.table([*pairs.T, self.pairs.similarities[own], *listing], schema=CANDIDATES)
        evidence, scale = self._compared(candidates, np.unique(pairs)), self._scale()
        added = scale.model.added(features_of(evidence, self._around(evidence, []), scale.reference, scale.k))
        rest = logit(np.clip(self.pairs.probabilities[own].astype(np.float64), 1e-7, 1 - 1e-7)) - added.sum(axis=1)
        return np.concatenate([added, rest[:, None]], axis=1)

    def _lifts(self, lists: dict[int, np.ndarray], keys: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return the lifts (float32) of the neighbours that questions list at these ranks; 0 for UNLISTED."""
        scores = np.full((len(keys), max(map(len, lists.values()), default=1)), -np.inf)
        for row, key in enumerate(keys.tolist()):
            own = lists.get(key, _NOTHING)
            scores[row, : len(own)] = own
        lifts = lifts_of(scores, self._highest)
        return np.where(ranks == UNLISTED, np.float32(0), lifts[np.arange(len(keys)), np.maximum(ranks, 1) - 1])

    def _compared(self, candidates: pa.Table, keys: np.ndarray, new: NewTexts | None = None) -> pa.Table:
        """Return rows of COMPARED; `keys` (sorted) are the questions, of which negative ones are `new` texts."""
        rarities = storage.read_table(self._rarities, RARITIES)["rarity"].to_numpy()
        return compared(candidates, RowsByKey(keys), self._words(keys, new), rarities)

    def _scored(self, evidence: pa.Table, around_new: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the probabilities of rows of COMPARED; `around_new` are keys of new texts that list others, and
        cosines.
        """
        around = self._around(evidence, around_new)
        probabilities: np.ndarray = scored_table(evidence, around, self._scale())["probability"].to_numpy()
        return probabilities

    def _around(self, evidence: pa.Table, around_new: list[tuple[np.ndarray, np.ndarray]]) -> pa.Table:
        queries, cosines = self.pairs.listing, self.pairs.listed(self.pairs.title_cosines)
        rows = np.isin(queries, pairs_in(evidence))
        keys, title_cosines = zip((queries[rows], cosines[rows]), *around_new, strict=True)
        return around(np.concatenate(keys), np.concatenate(title_cosines))

    def _is_of_this_version(self) -> bool:
        """Return whether the run's model weighs the evidence that this version of dupq knows."""
        features: list[str] = storage.read_json(self._calibration)["model"]["features"]
        return features == list(FEATURES)

    def _scale(self) -> Scale:
        return scale_of(storage.read_json(self._calibration), self._settings.neighbours.k)

    @cached_property
    def _highest(self) -> float:
        return read_measure(self._run.encoder_uri).highest

    def _lists(self) -> dict[int, np.ndarray]:
        """Return the scores in the list of each question, best first."""
        queries, scores = self.pairs.listing, self.pairs.listed(self.pairs.similarities)
        order = np.lexsort((-scores, queries))
        owners, first = np.unique(queries[order], return_index=True)
        return dict(zip(owners.tolist(), np.split(scores[order], first[1:]), strict=True))

    def _embeddings(self, keys: np.ndarray) -> Embeddings:
        """Return the embeddings of `keys` (sorted), in their order."""
        embeddings = []
        for table in self._run.embeddings.files():
            embedded = embeddings_of(table, self._sites, self._run.embeddings.source)
            embeddings.append(embedded.take(np.isin(embedded.keys, keys)))
        return gathered(embeddings)

    def _words(self, keys: np.ndarray, new: NewTexts | None = None) -> Words:
        """Return the words, tags and marks of `keys`, in their order; negative keys are `new` texts."""
        settings, archive = self._settings.text, keys[keys >= 0]
        names, numbers = self._sites.unpack(archive)
        condition = pc.field("question_id").isin(pa.array(np.unique(numbers)))
        condition &= pc.field("site").isin(pa.array(sorted(set(names)), pa.string()))
        rows = self._run.questions.arrow(_QUESTION.names, condition)
        row_keys = self._sites.pack_columns(rows["site"], rows["question_id"], self._run.questions.source)
        rows = rows.filter(pa.array(np.isin(row_keys, archive)))
        if len(rows) != len(archive):
            raise DupqError(f"{self._run.questions.source}: no longer the archive that the run was made from")
        rows = rows.take(pa.array(np.argsort(row_keys[np.isin(row_keys, archive)], kind="stable")))
        if new is not None:
            rows = pa.concat_tables([new.rows(), rows])
        texts = texts_table(pa.array(keys), rows["title"], rows["body_html"], settings)
        return words_of_rows(rows, texts, settings.language)


def scorer_of(run: Run, sites: Sites, ids: Iterable[int]) -> Scorer:
    """Return a scorer that knows the pairs of the questions with these ids, of any site."""
    values = pa.array(sorted(set(ids)), pa.int64())
    left, right = (pc.field(f"question_id_{side}").isin(values) for side in ("left", "right"))
    return Scorer(run, sites, pairs_of(run.pairs.arrow(PAIR_COLUMNS, left | right), sites))


def weigh(run: Run, pairs: Sequence[tuple[Key, Key]]) -> np.ndarray:
    """Return what each of WEIGHED adds to the log-odds of pairs of questions (float64, (m, kinds)); see `Scorer`."""
    sites = Sites(sorted(run.metrics["sites"]))
    keys = [[int(sites.pack(site, np.array([number]), "pairs")[0]) for site, number in pair] for pair in pairs]
    scorer = scorer_of(run, sites, (number for pair in pairs for _, number in pair))
    return scorer.weigh(np.sort(keys, axis=1))


_NOTHING, _KINDS = np.zeros(0, np.float32), (np.int32, np.float32)


def _ranks_and_lifts(scores: np.ndarray, k: int, highest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return how a new text lists its nearest questions, best first: ranks and lifts, none beyond k."""
    ranks, lifts = np.full(len(scores), UNLISTED, np.int32), np.zeros(len(scores), np.float32)
    lifts[:k] = lifts_of(scores[None, :k].astype(np.float64), highest)[0]
    ranks[:k] = np.arange(1, len(ranks[:k]) + 1)
    return ranks, lifts


def _rank_and_lift(score: float, listed: np.ndarray, k: int, highest: float) -> tuple[int, float]:
    """Return how a question whose list has these scores, best first, would list a new text: rank and lift."""
    rank = int((listed >= score).sum())
    if rank >= k:
        return UNLISTED, 0.0
    scores = np.insert(listed, rank, score)[:k]
    return rank + 1, float(_ranks_and_lifts(scores, k, highest)[1][rank])
