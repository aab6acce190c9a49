"""The probability of pairs as a finished run would give it, from what it has left: of two questions that neither lists,
of a new text and the questions that it is nearest to; and what each piece of evidence adds to that of a pair.

A new text is scored as if it were in the archive: it lists its nearest questions, and a question lists it where it is
nearer than the farthest one that this lists. What it would change in the words' rarities is left out.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import logit

from dupq import storage
from dupq.clusters.calibration import KINDS, features_of
from dupq.clusters.decision import Scale, scale_of, scored_table, unlisted, words_of_texts
from dupq.clusters.evidence import UNLISTED, Words, around, listing_of, marks_of, shared
from dupq.encoders.saved import read_measure
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings, Neighbours, gathered
from dupq.neighbours.exact import pair_scores
from dupq.runs.question_tables import embeddings_of, pairs_in
from dupq.runs.reader import Key, Run
from dupq.runs.records import RunFiles
from dupq.settings import config
from dupq.tables import COMPARED, QUESTIONS, RARITIES
from dupq.text.keys import Sites
from dupq.text.questions import tags_of, texts_table

WEIGHED = (*KINDS, "a teacher")  # evidence: a teacher is what is left
KEYS = ["site_left", "question_id_left", "site_right", "question_id_right"]
PAIR_COLUMNS = [*KEYS, "source", "similarity", "probability", "title_overlap", "rank_left", "rank_right"]
_QUESTION = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        *(QUESTIONS.field(name) for name in ("question_id", "title", "body_html", "tags", "owner")),
    ]
)


class NewTexts(NamedTuple):
    """Texts that are no questions of the archive."""

    titles: list[str]
    bodies: list[str] | None  # HTML

    def rows(self) -> pa.Table:
        """Return them as questions of no site, of which nobody says who asked; no id that a link names is theirs."""
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
    marks = marks_of(questions, texts["title"], questions["site"].to_pylist(), language)
    return words_of_texts(texts, tags_of(questions["tags"].combine_chunks()), marks, language)


class EncoderPairs(NamedTuple):
    """The encoder's pairs."""

    keys: np.ndarray  # int64, (m, 2), left < right
    probabilities: np.ndarray  # float32
    similarities: np.ndarray  # float32
    title_cosines: np.ndarray  # float32
    ranks: tuple[np.ndarray, np.ndarray]  # int32: of the right question in the left one's list, and the other way round

    @property
    def is_listed(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether the left question lists the right one, and the other way round (bool)."""
        return self.ranks[0] != UNLISTED, self.ranks[1] != UNLISTED

    def listed(self, column: np.ndarray) -> np.ndarray:
        """Return the values of a column, once for each question that lists the other: the left ones, then the right."""
        return np.concatenate([column[some] for some in self.is_listed])

    @property
    def listing(self) -> np.ndarray:
        """The questions (int64) of the rows of `listed`."""
        return np.concatenate([self.keys[some, side] for side, some in enumerate(self.is_listed)])


def ends(table: pa.Table, sites: Sites) -> np.ndarray:
    """Return the keys of rows of `pairs` (int64, shape (m, 2))."""
    columns = [table[name] for name in KEYS]
    sides = [sites.pack_columns(columns[place], columns[place + 1], "pairs") for place in (0, 2)]
    return np.stack(sides, axis=1)


def pairs_of(table: pa.Table, sites: Sites) -> EncoderPairs:
    """Return those of rows of `pairs` (PAIR_COLUMNS) that the encoder found."""
    table = table.filter(pc.equal(table["source"], "encoder"))
    p, scores, cosines = (table[name].to_numpy() for name in ("probability", "similarity", "title_overlap"))
    left, right = (table[name].fill_null(UNLISTED).to_numpy() for name in ("rank_left", "rank_right"))
    return EncoderPairs(ends(table, sites), p, scores, cosines, (left, right))


class Scorer:
    """The probability of pairs as a run would give it, from what it has left."""

    def __init__(self, run: Run, sites: Sites, pairs: EncoderPairs) -> None:
        """`pairs` are those of the questions that are scored, at least."""
        layout = RunFiles(run.uri)
        self._calibration, self._rarities = layout.calibration, layout.rarities
        self._run, self._sites, self.pairs, self._settings = run, sites, pairs, config.from_dict(run.config)
        needed = [self._calibration, self._rarities, storage.join(run.encoder_uri, "encoder.json")]
        needed.append(run.manifest["inputs"]["questions"])
        self.is_complete = all(storage.exists(uri) for uri in needed)

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """Return the probabilities (float32) of pairs of keys (int64, shape (m, 2)) of which neither lists the other.

        0 for all if something is gone that tells it.
        """
        if not self.is_complete:
            return np.zeros(len(pairs), np.float32)
        keys = np.unique(pairs)
        left, right = (np.searchsorted(keys, pairs[:, side]) for side in (0, 1))
        embedded = self._embeddings(keys)
        scores = pair_scores(read_measure(self._run.encoder_uri), embedded.take(left), embedded.take(right))
        common = shared(self._words(keys), left, right, self._read_rarities())
        return self._scored(unlisted(pairs, scores.astype(np.float32), common), [])

    def score_new(self, found: Neighbours, new: NewTexts) -> np.ndarray:
        """Return the probabilities (float32) of new texts and their nearest questions, for each row of `found`.

        Text n has the key n - len(new.titles).
        """
        pairs = np.stack([found.queries, found.neighbours], axis=1)
        keys = np.unique(np.concatenate([np.arange(-len(new.titles), 0), found.neighbours]))
        left, right = (np.searchsorted(keys, pairs[:, side]) for side in (0, 1))
        common = shared(self._words(keys, new), left, right, self._read_rarities())
        k, lists, highest = self._settings.neighbours.k, self._lists(), self._highest
        forth = [_place(found.similarities[found.queries == query], k, highest) for query in np.unique(found.queries)]
        back = [
            _placed(score, lists.get(key, _NOTHING), k, highest)
            for key, score in zip(found.neighbours.tolist(), found.similarities, strict=True)
        ]
        ranks, lifts = (np.concatenate(column) for column in zip(*forth, strict=True))
        theirs = [np.array(column, kind) for column, kind in zip(zip(*back, strict=True), _KINDS, strict=True)]
        columns = [*pairs.T, found.similarities, ranks, lifts, *theirs, *common]
        own = ranks != UNLISTED
        compared = pa.table([pa.array(column) for column in columns], schema=COMPARED)
        return self._scored(compared, [(found.queries[own], common.title_cosine[own])])

    def weigh(self, pairs: np.ndarray) -> np.ndarray:
        """Return what each of WEIGHED adds to the log-odds (float64, (m, kinds)).

        Of `pairs` of the encoder (int64 keys, shape (m, 2)). Raises DupqError for a pair that the run does not have,
        and where something is gone that tells it.
        """
        rows = {tuple(ends): row for row, ends in enumerate(self.pairs.keys.tolist())}
        for ends in pairs.tolist():
            if tuple(ends) not in rows:
                named = ", ".join(map(self._sites.label, ends))
                raise DupqError(f"{named}: no candidate pair of the encoder, so no evidence was weighed")
        if not self.is_complete:
            raise DupqError(f"{self._run.uri}: the encoder, the questions or the calibration of the run are gone")
        own = np.array([rows[tuple(ends)] for ends in pairs.tolist()])
        keys, lists = np.unique(pairs), self._lists()
        left, right = (np.searchsorted(keys, pairs[:, side]) for side in (0, 1))
        common = shared(self._words(keys), left, right, self._read_rarities())
        listing = []
        for side in (0, 1):
            ranks = self.pairs.ranks[side][own]
            listing += [ranks, self._lifts(lists, pairs[:, side], ranks)]
        columns = [*pairs.T, self.pairs.similarities[own], *listing, *common]
        compared = pa.table([pa.array(column) for column in columns], schema=COMPARED)
        scale = self._scale()
        added = scale.model.added(features_of(compared, self._around(compared, []), scale.reference, scale.k))
        rest = logit(np.clip(self.pairs.probabilities[own].astype(np.float64), 1e-7, 1 - 1e-7)) - added.sum(axis=1)
        return np.concatenate([added, rest[:, None]], axis=1)

    def _lifts(self, lists: dict[int, np.ndarray], keys: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return the lifts (float32) of what questions list at these ranks; 0 where UNLISTED."""
        scores = np.full((len(keys), max(map(len, lists.values()), default=1)), -np.inf)
        for row, key in enumerate(keys.tolist()):
            own = lists.get(key, _NOTHING)
            scores[row, : len(own)] = own
        lifts = listing_of(scores, self._highest).lifts
        return np.where(ranks == UNLISTED, np.float32(0), lifts[np.arange(len(keys)), np.maximum(ranks, 1) - 1])

    def _scored(self, compared: pa.Table, around_new: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """The probabilities of rows of COMPARED; `around_new` are keys of new texts that list others, and cosines."""
        around = self._around(compared, around_new)
        probabilities: np.ndarray = scored_table(compared, around, self._scale())["probability"].to_numpy()
        return probabilities

    def _around(self, compared: pa.Table, around_new: list[tuple[np.ndarray, np.ndarray]]) -> pa.Table:
        queries, cosines = self.pairs.listing, self.pairs.listed(self.pairs.title_cosines)
        some = np.isin(queries, pairs_in(compared))
        keys, alike = zip((queries[some], cosines[some]), *around_new, strict=True)
        return around(np.concatenate(keys), np.concatenate(alike))

    def _scale(self) -> Scale:
        return scale_of(storage.read_json(self._calibration), self._settings.neighbours.k)

    @cached_property
    def _highest(self) -> float:
        return read_measure(self._run.encoder_uri).highest

    def _read_rarities(self) -> np.ndarray:
        return storage.read_table(self._rarities, RARITIES)["rarity"].to_numpy()

    def _lists(self) -> dict[int, np.ndarray]:
        """The scores that each question lists others with, the best first."""
        queries, scores = self.pairs.listing, self.pairs.listed(self.pairs.similarities)
        order = np.lexsort((-scores, queries))
        owners, first = np.unique(queries[order], return_index=True)
        return dict(zip(owners.tolist(), np.split(scores[order], first[1:]), strict=True))

    def _embeddings(self, keys: np.ndarray) -> Embeddings:
        """Those of `keys` (sorted), in their order."""
        found = []
        for table in self._run.embeddings.files():
            embedded = embeddings_of(table, self._sites, self._run.embeddings.place)
            found.append(embedded.take(np.isin(embedded.keys, keys)))
        return gathered(found)

    def _words(self, keys: np.ndarray, new: NewTexts | None = None) -> Words:
        """The words, tags and marks of `keys`, in their order; those below 0 are `new` texts."""
        settings, archive = self._settings.text, keys[keys >= 0]
        names, numbers = self._sites.unpack(archive)
        is_wanted = pc.field("question_id").isin(pa.array(np.unique(numbers)))
        is_wanted &= pc.field("site").isin(pa.array(sorted(set(names)), pa.string()))
        rows = self._run.questions.arrow(_QUESTION.names, is_wanted)
        found = self._sites.pack_columns(rows["site"], rows["question_id"], self._run.questions.place)
        rows = rows.filter(pa.array(np.isin(found, archive)))
        if len(rows) != len(archive):
            raise DupqError(f"{self._run.questions.place}: no longer the archive that the run was made from")
        rows = rows.take(pa.array(np.argsort(found[np.isin(found, archive)], kind="stable")))
        if new is not None:
            rows = pa.concat_tables([new.rows(), rows])
        texts = texts_table(pa.array(keys), rows["title"], rows["body_html"], settings)
        return words_of_rows(rows, texts, settings.language)


def scorer_of(run: Run, sites: Sites, ids: Iterable[int]) -> Scorer:
    """Return a scorer of pairs of the questions with these ids, of any site; of other pairs it reads none."""
    wanted = pa.array(sorted(set(ids)), pa.int64())
    left, right = (pc.field(f"question_id_{side}").isin(wanted) for side in ("left", "right"))
    return Scorer(run, sites, pairs_of(run.pairs.arrow(PAIR_COLUMNS, left | right), sites))


def weigh(run: Run, pairs: Sequence[tuple[Key, Key]]) -> np.ndarray:
    """Return what each of WEIGHED adds to the log-odds of pairs of questions (float64, (m, kinds)); see `Scorer`."""
    sites = Sites(sorted(run.metrics["sites"]))
    keys = [[int(sites.pack(site, np.array([number]), "pairs")[0]) for site, number in pair] for pair in pairs]
    scorer = scorer_of(run, sites, (number for pair in pairs for _, number in pair))
    return scorer.weigh(np.sort(keys, axis=1))


_NOTHING, _KINDS = np.zeros(0, np.float32), (np.int32, np.float32)


def _place(scores: np.ndarray, k: int, highest: float) -> tuple[np.ndarray, np.ndarray]:
    """How a new text lists its nearest questions, the best first: ranks and lifts (`Listing`), none beyond k."""
    ranks, lifts = np.full(len(scores), UNLISTED, np.int32), np.zeros(len(scores), np.float32)
    listing = listing_of(scores[None, :k].astype(np.float64), highest)
    ranks[:k], lifts[:k] = listing.ranks[0], listing.lifts[0]
    return ranks, lifts


def _placed(score: float, listed: np.ndarray, k: int, highest: float) -> tuple[int, float]:
    """How a question that lists others with these scores, the best first, would list a new text: rank and lift."""
    rank = int((listed >= score).sum())
    if rank >= k:
        return UNLISTED, 0.0
    scores = np.insert(listed, rank, score)[:k]
    return rank + 1, float(_place(scores, k, highest)[1][rank])
