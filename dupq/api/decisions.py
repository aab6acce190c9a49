"""The clusters of a finished run at another threshold (`run.at`), and what became of clusters between two runs
(`Run.changes_since`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.api.inputs import share
from dupq.clusters import identity
from dupq.clusters.components import Constraints, components, constraints, represented, with_represented
from dupq.clusters.decision import (
    SCORED_SIZE,
    arounds,
    decide,
    scale_of,
    scored_table,
    spread_of,
    unlisted,
    words_of_texts,
)
from dupq.clusters.evidence import Words, around, marks_of, shared
from dupq.encoders.description import read_measure
from dupq.errors import DupqError, SettingError
from dupq.evaluation.sampling import read_verdicts
from dupq.evaluation.verdicts import DIFFERENT, SAME, VERDICTS_FILE
from dupq.links.link_files import known_duplicates
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.exact import pair_scores
from dupq.runs.layout import RunLayout
from dupq.runs.question_tables import embeddings_of
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView, in_memory
from dupq.settings import config
from dupq.settings.sections import TextSettings
from dupq.tables import RARITIES
from dupq.text.keys import Sites, are_among
from dupq.text.questions import tags_of, texts_table


def changes_since(run: Run, earlier: Run) -> TableView:
    """See Run.changes_since."""
    if not isinstance(earlier, Run):
        raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    found = identity.changes(own_clusters(run, sites), own_clusters(earlier, sites))
    return in_memory(f"{run.uri} since {earlier.uri}", identity.changes_table(found, sites))


def own_clusters(run: Run, sites: Sites) -> identity.Grouping:
    """The clusters of two and more of the run itself, by id."""
    rows = run.clusters.arrow(["site", "question_id", "cluster_id"], pc.field("cluster_size") > 1)
    named = [text.rpartition("/") for text in rows["cluster_id"].to_pylist()]
    names = pa.chunked_array([[site for site, _, _ in named]], pa.string())
    numbers = pa.chunked_array([[int(number) for _, _, number in named]], pa.int64())
    place = run.clusters.place
    keys = sites.pack_columns(rows["site"], rows["question_id"], place)
    return identity.Grouping(keys, sites.pack_columns(names, numbers, place))


_KEYS = ["site_left", "question_id_left", "site_right", "question_id_right"]
_COLUMNS = [*_KEYS, "source", "probability", "title_overlap", "rank_left", "rank_right"]
_NEAR = ["exact", "near_duplicate"]
_NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Decision:
    """The clusters of a run at another threshold."""

    threshold: float
    pairs: int  # of the encoder, from the threshold on
    expected_precision: float  # of these
    clusters: TableView  # the questions of clusters of two and more: site, question_id, cluster_id, cluster_size
    changes: TableView  # what became of the run's own clusters, as in the run's table `changes`
    is_complete: bool  # False: pairs that no question lists counted as the least likely; see docs/python.md


class _Pairs(NamedTuple):
    """The encoder's pairs."""

    keys: np.ndarray  # int64, (m, 2), left < right
    probabilities: np.ndarray  # float32
    title_cosines: np.ndarray  # float32
    is_listed: tuple[np.ndarray, np.ndarray]  # bool: by the left question, by the right one


def decided(run: Run, threshold: float | None, precision: float | None) -> Decision:
    """The decision at a threshold, or at the one for a precision. See Run.at."""
    if (threshold is None) == (precision is None):
        raise SettingError("at: give a threshold or a precision, not both")
    wanted = share(threshold if threshold is not None else precision, "at: ")
    sites = Sites(sorted(run.metrics["sites"]))
    table = run.pairs.arrow(_COLUMNS)
    near = _ends(table.filter(pc.is_in(table["source"], pa.array(_NEAR))), sites)
    members, representatives = components(near)
    pairs = _pairs_of(table.filter(pc.equal(table["source"], "encoder")), sites)
    spread = spread_of(pairs.probabilities)
    chosen = spread.choose(wanted) if threshold is None else spread.above(wanted)
    scorer = _Scorer(run, sites, pairs)
    cut = chosen["threshold"]
    held = _constraints(run, sites, members, representatives)
    solved = decide(pairs.keys, pairs.probabilities, held.joined, cut, SCORED_SIZE, scorer.score, held.apart)
    then = own_clusters(run, sites)
    keys, clusters = with_represented((members, representatives), solved)
    ids = identity.cluster_ids(identity.Grouping(keys, clusters), then).of(clusters)
    changed = identity.changes(identity.Grouping(keys, ids), then)
    return Decision(
        cut,
        int(chosen["pairs"]),
        chosen["expected_precision"],
        in_memory(f"{run.uri} at {cut}", _clusters_table(keys, ids, sites)),
        in_memory(f"{run.uri} at {cut}", identity.changes_table(changed, sites)),
        scorer.is_complete,
    )


def _ends(table: pa.Table, sites: Sites) -> np.ndarray:
    columns = [table[name] for name in _KEYS]
    sides = [sites.pack_columns(columns[place], columns[place + 1], "pairs") for place in (0, 2)]
    return np.stack(sides, axis=1) if len(table) else _NO_PAIRS


def _pairs_of(table: pa.Table, sites: Sites) -> _Pairs:
    listed = [table[name].is_valid().to_numpy() for name in ("rank_left", "rank_right")]
    probabilities, cosines = (table[name].to_numpy() for name in ("probability", "title_overlap"))
    return _Pairs(_ends(table, sites), probabilities, cosines, (listed[0], listed[1]))


def _constraints(run: Run, sites: Sites, members: np.ndarray, representatives: np.ndarray) -> Constraints:
    """What the run's verdicts and the known duplicates that it used hold together and apart, of representatives."""
    links, kept = run.manifest["inputs"].get("links"), storage.join(run.uri, VERDICTS_FILE)
    is_used = run.config["clusters"]["known_links"] == "use"
    known = known_duplicates(links, sites) if is_used and links is not None else _NO_PAIRS
    judged = read_verdicts(kept if storage.exists(kept) else None, sites)
    rows = run.clusters.arrow(["site", "question_id"])
    archive = np.sort(sites.pack_columns(rows["site"], rows["question_id"], run.clusters.place))
    same, known, apart = (
        pairs[are_among(archive, pairs).all(axis=1)] for pairs in (judged.pairs(SAME), known, judged.pairs(DIFFERENT))
    )
    return constraints(same, known, apart, lambda keys: represented(keys, members, representatives))


def _clusters_table(keys: np.ndarray, ids: np.ndarray, sites: Sites) -> pa.Table:
    names, numbers = sites.unpack(keys)
    _, places, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    return pa.table(
        {
            "site": pa.array(names, pa.string()),
            "question_id": numbers,
            "cluster_id": pa.array([sites.label(key) for key in ids.tolist()], pa.string()),
            "cluster_size": sizes[places],
        }
    )


class _Scorer:
    """The probability of pairs that no question lists, as the run would give it, from what it has left."""

    def __init__(self, run: Run, sites: Sites, pairs: _Pairs) -> None:
        layout = RunLayout(run.uri)
        self._calibration, self._rarities = layout.calibration, layout.rarities
        self._run, self._sites, self._pairs = run, sites, pairs
        self.is_complete = True

    def score(self, pairs: np.ndarray) -> np.ndarray:
        """The probabilities (float32) of pairs of keys (int64, shape (m, 2)); 0 for all if something is gone."""
        encoder, questions = self._run.encoder_uri, self._run.manifest["inputs"]["questions"]
        needed = [self._calibration, self._rarities, storage.join(encoder, "encoder.json"), questions]
        if not all(storage.exists(uri) for uri in needed):
            self.is_complete = False
            return np.zeros(len(pairs), np.float32)
        keys = np.unique(pairs)
        left, right = (np.searchsorted(keys, pairs[:, side]) for side in (0, 1))
        embedded = self._embeddings(keys)
        scores = pair_scores(read_measure(encoder), embedded.take(left), embedded.take(right))
        settings = config.from_dict(self._run.config)
        words = self._words(keys, settings.text)
        rarities = storage.read_table(self._rarities, RARITIES)["rarity"].to_numpy()
        common = shared(words, left, right, rarities)
        compared = unlisted(pairs, scores.astype(np.float32), common)
        scale = scale_of(storage.read_json(self._calibration), settings.neighbours.k)
        found = scored_table(compared, arounds([keys, *self._around(keys)], compared), scale)
        return found["probability"].to_numpy()

    def _embeddings(self, keys: np.ndarray) -> Embeddings:
        """Those of `keys` (sorted), in their order."""
        found = []
        for table in self._run.embeddings.files():
            embedded = embeddings_of(table, self._sites, self._run.embeddings.place)
            found.append(embedded.take(np.isin(embedded.keys, keys)))
        return gathered(found)

    def _words(self, keys: np.ndarray, settings: TextSettings) -> Words:
        """The words, tags and marks of `keys`, in their order."""
        names, numbers = self._sites.unpack(keys)
        columns = ["site", "question_id", "title", "body_html", "tags", "owner"]
        is_wanted = pc.field("question_id").isin(pa.array(np.unique(numbers)))
        is_wanted &= pc.field("site").isin(pa.array(sorted(set(names)), pa.string()))
        rows = self._run.questions.arrow(columns, is_wanted)
        found = self._sites.pack_columns(rows["site"], rows["question_id"], self._run.questions.place)
        rows = rows.filter(pa.array(np.isin(found, keys)))
        if len(rows) != len(keys):
            raise DupqError(f"{self._run.questions.place}: no longer the archive that the run was made from")
        rows = rows.take(pa.array(np.argsort(found[np.isin(found, keys)], kind="stable")))
        texts = texts_table(pa.array(keys), rows["title"], rows["body_html"], settings)
        marks = marks_of(rows, texts["title"], rows["site"].to_pylist(), settings.language)
        tags = tags_of(rows["tags"].combine_chunks())
        return words_of_texts(texts, tags, marks, settings.language)

    def _around(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How alike the titles of what each question lists are; see evidence.Around."""
        listed = self._pairs.is_listed
        queries = np.concatenate([self._pairs.keys[listed[side], side] for side in (0, 1)])
        cosines = np.concatenate([self._pairs.title_cosines[some] for some in listed])
        rows = np.flatnonzero(np.isin(queries, keys))
        return around(np.searchsorted(keys, queries[rows]), cosines[rows], len(keys))
