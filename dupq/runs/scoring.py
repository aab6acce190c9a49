"""The probability of pairs as a finished run would give it, from the files that it keeps.

Pairs are two questions of which neither lists the other, or a new text and the questions nearest to it. `weigh` says
what each piece of evidence adds to a pair. A new text is scored as if it were in the archive: it lists its nearest
questions, and a question lists it if it is nearer than the last one on its own list. The change that it would make to
word rarities is ignored.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import logit

from dupq import storage, system
from dupq.clusters.calibration import FEATURES, KINDS, features_of
from dupq.clusters.decision import PairScorer, compared, scored_table, scorer_of_pairs, unlisted
from dupq.clusters.evidence import UNLISTED, Words, lifts_of, title_context
from dupq.clusters.reranking import Reread, cosines_of
from dupq.encoders.saved import read_measure
from dupq.encoders.sentence_models import Reranker, reranker_at, reread_texts, sentence_vectors
from dupq.errors import DupqError
from dupq.job.records import RunFiles, StageRecord, record_of
from dupq.neighbours.embeddings import Embeddings, Neighbours, embeddings_of, gathered
from dupq.runs.reader import Key, Run, may_be
from dupq.runs.views import SITE, TableView, in_memory, stored
from dupq.storage import read_or_none
from dupq.tables import CANDIDATES, QUESTIONS, RARITIES
from dupq.text.keys import RowsByKey, Sites, indices_among, pair_indices, pairs_in
from dupq.text.marks import askers_of, marks_of, with_askers
from dupq.text.questions import tags_of, terms_of, texts_table
from dupq.text.title_intent import TitleComparer
from dupq.text.written import written_titles

_log = logging.getLogger(__name__)
WEIGHED = (*KINDS, "a reranker's reading")  # evidence; the rest of a probability is the reranker's
ENDS = ("site_left", "question_id_left", "site_right", "question_id_right")
PAIR_COLUMNS = [*ENDS, "source", "similarity", "probability", "title_overlap", "rank_left", "rank_right"]
QUESTION = pa.schema([SITE, *map(QUESTIONS.field, ("question_id", "title", "body_html", "tags", "owner"))])


def new_questions(titles: list[str], bodies: list[str] | None) -> pa.Table:
    """Return new texts, with bodies in HTML, as questions of no site and no owner, with negative ids, which no link
    names.
    """
    count = len(titles)
    columns = [[""] * count, [*range(-count, 0)], titles, bodies or [""] * count, [[]] * count, [None] * count]
    return pa.Table.from_arrays(columns, schema=QUESTION)


def words_of_rows(questions: pa.Table, texts: pa.Table, language: str) -> Words:
    """Return the words, tags and marks of questions (rows of QUESTIONS); `texts` are their rows of TEXTS."""
    marks = marks_of(questions, texts["title"], written_titles(questions["title"], language), TitleComparer(language))
    marks = with_askers(marks, askers_of(questions["owner"], questions["site"]))
    titles, bodies = (terms_of(texts[name].combine_chunks(), language) for name in ("title", "text"))
    return Words(titles, bodies, tags_of(questions["tags"].combine_chunks()), marks)


class EncoderPairs(NamedTuple):
    """The pairs that the encoder found."""

    keys: np.ndarray  # int64, (m, 2), left < right
    probabilities: np.ndarray  # float32
    similarities: np.ndarray  # float32
    title_cosines: np.ndarray  # float32
    ranks: np.ndarray  # int32, (m, 2), of the right question in the left one's list, and vice versa; UNLISTED

    @property
    def listed(self) -> tuple[np.ndarray, ...]:
        """The rows of pairs of which one side lists the other, and that side (0 or 1); twice if both do."""
        return np.nonzero(self.ranks != UNLISTED)


class Lists:
    """The scores of what questions list."""

    def __init__(self, queries: np.ndarray, ranks: np.ndarray, scores: np.ndarray, k: int) -> None:
        """Take the scores of what `queries` list at `ranks`, up to `k`."""
        self._keys, rows = np.unique(queries, return_inverse=True)
        self._scores = np.full((len(self._keys) + 1, k), -np.inf)  # the last row is that of questions without a list
        self._scores[rows, ranks - 1] = scores

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Return the scores in the lists of `keys` by rank (float64, (len(keys), k)); -inf where there are fewer."""
        rows, are_listing = indices_among(self._keys, keys)
        return self._scores[np.where(are_listing, rows, -1)]


def inserted(lists: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks (int32) that new neighbours with `scores` would have in lists (float64, (n, k)), behind equal
    scores; UNLISTED beyond k. And return the lists with them.
    """
    k, new = lists.shape[1], scores[:, None]
    ranks = 1 + (lists >= new).sum(axis=1, dtype=np.int32)
    whole = -np.sort(-np.concatenate([lists, new], axis=1), axis=1)
    return np.where(ranks <= k, ranks, np.int32(UNLISTED)), whole[:, :k]


def pairs_of(table: pa.Table, sites: Sites) -> EncoderPairs:
    """Return the pairs that the encoder found, from rows of `pairs` (PAIR_COLUMNS)."""
    table = table.filter(pc.equal(table["source"], "encoder"))
    p, scores, cosines = (table[name].to_numpy() for name in ("probability", "similarity", "title_overlap"))
    ranks = np.stack([table[name].fill_null(UNLISTED).to_numpy() for name in ("rank_left", "rank_right")], axis=1)
    return EncoderPairs(sites.pack_pairs(table, "pairs"), p, scores, cosines, ranks)


class Scorer:
    """The probability of pairs as a run would give it, from the files that it keeps."""

    def __init__(self, run: Run, sites: Sites, pairs: EncoderPairs) -> None:
        """Use at least those `pairs` of the run that contain a question to be scored."""
        self._run, self._files, self._sites, self.pairs = run, RunFiles(run.uri), sites, pairs
        self._text, self._k = run.settings.text, run.settings.neighbours.k
        needed = [self._files.calibration, self._files.rarities, storage.join(run.encoder_uri, "encoder.json")]
        needed.append(run.input("questions") or "")
        self._can_score = all(map(storage.exists, needed))
        if self._can_score:  # and the run's model weighs the evidence that this version of dupq knows
            self._can_score = storage.read_json(self._files.calibration)["model"]["features"] == list(FEATURES)
        self.is_complete = self._can_score  # and no question of a pair was missing

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """Return the probabilities (float32) of pairs of keys (int64, shape (m, 2)) of which neither lists the other.

        All are 0 if the encoder, the questions or the calibration are gone, or of another version of dupq. Those of a
        question that has left the archive are 0, too; then `is_complete` is false.
        """
        if not self._can_score:
            return np.zeros(len(pairs), np.float32)
        keys, view = np.unique(pairs), self._run.embeddings
        of_files = (embeddings_of(table, self._sites, view.source) for table in view.files())
        embedded = gathered([each.take(np.isin(each.keys, keys)) for each in of_files])
        scored, are_there = self._scored(unlisted(pairs, embedded, read_measure(self._run.encoder_uri)))
        self.is_complete, probabilities = bool(are_there.all()), np.zeros(len(pairs), np.float32)
        probabilities[are_there] = scored["probability"].to_numpy()
        return probabilities

    def hold(self) -> None:
        """Read a reranker's vectors into memory, for many calls of `score_new`."""
        if self._can_score and self._scale.reread is not None:
            self._vectors = in_memory(self._vectors.source, self._vectors.arrow())

    def score_new(self, nearest: Neighbours, new: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """Return the pairs of `new_questions` and their nearest questions (SCORED), and which rows of `nearest` they
        are (bool): all whose question is still in the archive. Text n has the key n - len(new).
        """
        pairs = np.stack([nearest.queries, nearest.neighbours], axis=1)
        k, scores = self._k, nearest.similarities
        is_own = nearest.ranks <= k
        own = np.where(is_own, nearest.ranks, np.int32(UNLISTED))
        lists = Lists(nearest.queries[is_own], own[is_own], scores[is_own], k)
        lifts = self._lifts(lists.of(nearest.queries), own)
        theirs, with_new = inserted(self._lists.of(nearest.neighbours), scores)
        listing = own, lifts, theirs, self._lifts(with_new, theirs)
        return self._scored(pa.table([*pairs.T, scores, *listing], schema=CANDIDATES), new)

    def weigh(self, pairs: np.ndarray) -> np.ndarray:
        """Return what each of WEIGHED adds to the log-odds of `pairs` of the encoder (int64 keys, shape (m, 2)):
        float64, (m, kinds); NaN if one of the two has left the archive.

        Raises DupqError for a pair that the run does not have, and if the encoder, the questions or the calibration are
        gone.
        """
        own = pair_indices(self.pairs.keys, pairs)
        if (own < 0).any():
            named = ", ".join(map(self._sites.label, pairs[own < 0][0].tolist()))
            raise DupqError(f"{named}: no candidate pair of the encoder, so no evidence was weighed")
        if not self._can_score:
            raise DupqError(
                f"{self._run.uri}: the encoder, the questions or the calibration of the run are gone, or of another "
                "version of dupq; run its job again"
            )
        listing = []
        for side in (0, 1):
            ranks = self.pairs.ranks[own, side]
            listing += [ranks, self._lifts(self._lists.of(pairs[:, side]), ranks)]
        candidates = pa.table([*pairs.T, self.pairs.similarities[own], *listing], schema=CANDIDATES)
        (evidence, are_there), scale = self._compared(candidates), self._scale
        added = np.full((len(pairs), len(KINDS)), np.nan)
        features = features_of(evidence, self._around(evidence), scale.reference, scale.k)
        added[are_there] = scale.model.added(evidence, features)
        if scale.reread is not None:
            is_read = np.isfinite(cosines_of(self._read(evidence), pairs_in(evidence)))
            rows = pa.array(np.flatnonzero(is_read))
            added[np.flatnonzero(are_there)[is_read]] = scale.reread.added(
                scale.model, evidence.take(rows), features[is_read]
            )
        rest = logit(np.clip(self.pairs.probabilities[own].astype(np.float64), 1e-7, 1 - 1e-7)) - added.sum(axis=1)
        return np.concatenate([added, rest[:, None]], axis=1)

    def _lifts(self, scores: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return the lifts (float32) of the neighbours at `ranks` of lists with these `scores`; 0 for UNLISTED."""
        lifts = lifts_of(scores, read_measure(self._run.encoder_uri).highest)
        return np.where(ranks == UNLISTED, np.float32(0), lifts[np.arange(len(ranks)), np.maximum(ranks, 1) - 1])

    def _compared(self, candidates: pa.Table, new: pa.Table | None = None) -> tuple[pa.Table, np.ndarray]:
        """Return rows of COMPARED for the candidates whose questions are still in the archive, and which these are
        (bool). Negative keys are `new` texts.
        """
        ends = pairs_in(candidates)
        keys, words = self._words(np.unique(ends[ends >= 0]), new)
        are_there = np.asarray(np.isin(ends, keys).all(axis=1))
        return compared(candidates.filter(pa.array(are_there)), RowsByKey(keys), words, self.rarities), are_there

    def _scored(self, candidates: pa.Table, new: pa.Table | None = None) -> tuple[pa.Table, np.ndarray]:
        """Return SCORED of those candidates whose questions are still in the archive, and which these are (bool)."""
        evidence, are_there = self._compared(candidates, new)
        read = None if self._scale.reread is None else self._read(evidence, new)
        return scored_table(evidence, self._around(evidence), self._scale, read), are_there

    def _read(self, evidence: pa.Table, new: pa.Table | None = None) -> Embeddings:
        """Return a reranker's vectors of the questions in rows of COMPARED that it has read, and of `new` texts."""
        ends = np.unique(pairs_in(evidence))
        names, numbers = self._sites.unpack(ends[ends >= 0])
        rows = self._vectors.arrow(None, may_be(list(zip(names, numbers.tolist(), strict=True))))
        read = embeddings_of(rows, self._sites, self._files.read_vectors)
        reranker = self._reranker if new is not None and len(read.keys) else None
        if reranker is not None and new is not None:
            texts = reread_texts(new["title"].to_pylist(), new["body_html"].to_pylist(), self._text.code)
            vectors = sentence_vectors(reranker, texts, system.CPU)
            read = Embeddings(np.append(read.keys, np.arange(-len(new), 0)), np.concatenate([read.vectors, vectors]))
        return read.take(np.argsort(read.keys))

    @cached_property
    def _reranker(self) -> Reranker | None:
        """The run's reranker on this machine; None, with a line, if it is missing or another one."""
        name = str(self._run.manifest["inputs"].get("reranker"))
        try:
            reranker = reranker_at(name, "the run's reranker ", may_load=False)
        except DupqError as error:
            _log.warning(f"new texts are not read by a reranker: {error}")
            return None
        record = read_or_none(record_of(self._run.uri, "rerank"), StageRecord)
        if record is None or reranker.fingerprint != record["made_as"].get("model"):
            _log.warning(f"new texts are not read by a reranker: {name} is another model here than in {self._run.uri}")
            return None
        return reranker

    def _around(self, evidence: pa.Table) -> pa.Table:
        """Return TITLE_CONTEXT of the questions in rows of COMPARED, and of new texts (negative keys) with lists."""
        ends, (queries, cosines) = pairs_in(evidence), self._title_cosines
        listing = np.unique(ends[ends >= 0])
        bounds = zip(*(np.searchsorted(queries, listing, side) for side in ("left", "right")), strict=True)
        rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(*both) for both in bounds)])
        is_new = (ends[:, 0] < 0) & (evidence["rank_left"].to_numpy() != UNLISTED)
        keys = np.concatenate([queries[rows], ends[is_new, 0]])
        return title_context(keys, np.concatenate([cosines[rows], evidence["title_cosine"].to_numpy()[is_new]]))

    @cached_property
    def _scale(self) -> PairScorer:
        scale = scorer_of_pairs(storage.read_json(self._files.calibration), self._k)
        if not storage.exists(self._files.reread):
            return scale
        return scale._replace(reread=Reread(**storage.read_json(self._files.reread)))

    @cached_property
    def rarities(self) -> np.ndarray:
        """The rarities of all terms."""
        return storage.read_table(self._files.rarities, RARITIES)["rarity"].to_numpy()

    @cached_property
    def _vectors(self) -> TableView:
        return stored(self._files.read_vectors)

    @cached_property
    def _lists(self) -> Lists:
        pairs, (rows, sides) = self.pairs, self.pairs.listed
        return Lists(pairs.keys[rows, sides], pairs.ranks[rows, sides], pairs.similarities[rows], self._k)

    @cached_property
    def _title_cosines(self) -> tuple[np.ndarray, np.ndarray]:
        """The questions that list others (ascending, once for each of these), and the cosines of both titles."""
        rows, sides = self.pairs.listed
        queries = self.pairs.keys[rows, sides]
        order = np.argsort(queries, kind="stable")
        return queries[order], self.pairs.title_cosines[rows][order]

    def _words(self, archive: np.ndarray, new: pa.Table | None) -> tuple[np.ndarray, Words]:
        """Return the keys (ascending) of `new` texts and of those questions of `archive` that are still there, and the
        words, tags and marks of each.
        """
        questions, (names, numbers) = self._run.questions, self._sites.unpack(archive)
        rows = questions.arrow(QUESTION.names, may_be(list(zip(names, numbers.tolist(), strict=True))))
        row_keys = self._sites.pack_columns(rows["site"], rows["question_id"], questions.source)
        is_one = np.isin(row_keys, archive)
        rows = rows.filter(pa.array(is_one)).take(pa.array(np.argsort(row_keys[is_one])))
        new = QUESTION.empty_table() if new is None else new
        rows, keys = pa.concat_tables([new, rows]), np.append(np.arange(-len(new), 0), np.sort(row_keys[is_one]))
        texts = texts_table(pa.array(keys), rows["title"], rows["body_html"], self._text)
        return keys, words_of_rows(rows, texts, self._text.language)


def scorer_of(run: Run, sites: Sites, ids: Iterable[int]) -> Scorer:
    """Return a scorer that knows the pairs of the questions with these ids, of any site."""
    values = pa.array(sorted(set(ids)), pa.int64())
    left, right = (pc.field(f"question_id_{side}").isin(values) for side in ("left", "right"))
    return Scorer(run, sites, pairs_of(run.pairs.arrow(PAIR_COLUMNS, left | right), sites))


def weigh(run: Run, pairs: Sequence[tuple[Key, Key]]) -> np.ndarray:
    """Return what each of WEIGHED adds to the log-odds of pairs of questions (float64, (m, kinds)); see `Scorer`."""
    sites = Sites(sorted(run.metrics["sites"]))
    for site in {site for pair in pairs for site, _ in pair} - set(sites.names):
        raise DupqError(f"{site}: no such site in {run.uri}")
    keys = [[int(sites.pack(site, np.array([number]), "pairs")[0]) for site, number in pair] for pair in pairs]
    scorer = scorer_of(run, sites, (number for pair in pairs for _, number in pair))
    return scorer.weigh(np.sort(keys, axis=1))
