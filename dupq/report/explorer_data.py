"""The explorer's data: one JSON object that the page holds, within a size that opens fast; and what a run would give
at other thresholds, for the slider.
"""

import json
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dupq.errors import DupqError
from dupq.report import explorer_clusters
from dupq.report.explorer_clusters import Contents, Evidence, Members, Text, telling
from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.records import AtThreshold
from dupq.runs.scoring import WEIGHED, scorer_of
from dupq.text.keys import Sites

# What a run would give at other thresholds, for the report's slider.
#
# Pairs are counted. Clusters and questions are those of connected components: a run then takes apart the components
# whose pairs disagree (dupq/clusters/partition.py), so it has at most as many questions in clusters as are said here.

STEPS = 100  # of the probability
LOWEST = 10  # step: below it, components of pairs that are hardly any duplicates join nearly everything
PAIRS = 4_000_000  # that are held at once, but for one file: those that always join, then the most probable

_SIDES = ("left", "right")
_COLUMNS = [f"{name}_{side}" for side in _SIDES for name in ("site", "question_id")]
_COLUMNS += ["source", "probability", "joined", "known_link"]


class Steps(TypedDict):
    """A row for each step, from the lowest one that is held to the highest: what joins from there on."""

    threshold: list[float]
    pairs: list[int]  # of the encoder
    expected: list[float | None]  # their mean probability; None where there are none
    known: list[int | None]  # of them are known links; None if the run was given no links
    clusters: list[int]
    questions: list[int]  # in clusters
    largest: list[int]
    left_out: int  # pairs from LOWEST on whose steps are not held
    run_known: int | None  # known links at the run's own threshold
    found: list[float | None] | None  # share of the known duplicates that nothing was fitted on; None if not measured
    linked: list[float | None] | None  # of the pairs with such a question, the share that is linked: a lower bound


def steps_of(probabilities: np.ndarray) -> np.ndarray:
    """The step (int64, 0 to STEPS - 1) of each probability (float32): at a threshold of s / STEPS it is above from s.

    Compared as the run does, in float32.
    """
    edges = (np.arange(STEPS) / STEPS).astype(np.float32)
    return np.searchsorted(edges, probabilities, "right") - 1


def at_thresholds(run: Run) -> Steps | None:
    """What other thresholds would give, in one pass over the pairs.

    None if the run has no counts of its sites or no candidate pair, or more than PAIRS pairs at every step.
    """
    if not run.metrics.get("sites"):
        return None
    survey = _Survey(Sites(sorted(run.metrics["sites"])), run.metrics.get("threshold"))
    for table in run.pairs.files(_COLUMNS):
        survey.add(table, run.pairs.place)
    if not survey.counts.any() or survey.first >= STEPS:
        return None
    return survey.steps(_measured(run))


def _measured(run: Run) -> dict[int, AtThreshold]:
    """What the run measured on known duplicates, by step."""
    rows = (run.metrics.get("links") or {}).get("by_threshold") or []
    return {round(row["threshold"] * STEPS): row for row in rows}


class _Survey:
    """Counts of the encoder's pairs by step, and the ends of those from step `first` on."""

    def __init__(self, sites: Sites, threshold: float | None) -> None:
        """`threshold` is the run's own."""
        self.first = LOWEST
        self.counts = np.zeros(STEPS, np.int64)
        self._sums, self._known = np.zeros(STEPS), np.zeros(STEPS, np.int64)
        self._sites, self._threshold = sites, threshold
        self._is_linked, self._run_known = False, 0
        self._held = np.zeros(STEPS + 2, np.int64)  # pairs that were held, by step; none is above STEPS
        self._pieces = [(np.zeros((0, 2), np.int64), np.zeros(0, np.int64))]

    def add(self, pairs: pa.Table, place: str) -> None:
        """Take in one file of the table at `place`."""
        is_encoders = pc.equal(pairs["source"], "encoder").to_numpy()
        probabilities = pairs["probability"].to_numpy()
        self._count(probabilities[is_encoders], pairs["known_link"].filter(pa.array(is_encoders)))
        steps = np.where(is_encoders, steps_of(probabilities), STEPS)  # STEPS: joins at any threshold
        wanted = (steps >= self.first) & (is_encoders | pairs["joined"].to_numpy())
        self._hold(pairs.filter(pa.array(wanted)), steps[wanted], place)

    def _count(self, probabilities: np.ndarray, known_link: pa.ChunkedArray) -> None:
        steps, known = steps_of(probabilities), pc.fill_null(known_link, False).to_numpy()
        self.counts += np.bincount(steps, minlength=STEPS)
        self._sums += np.bincount(steps, probabilities.astype(np.float64), minlength=STEPS)
        self._known += np.bincount(steps[known], minlength=STEPS)
        self._is_linked |= known_link.null_count < len(known_link)
        if self._threshold is not None:
            self._run_known += int((probabilities[known] >= np.float32(self._threshold)).sum())

    def _hold(self, pairs: pa.Table, steps: np.ndarray, place: str) -> None:
        """Keep the ends of `pairs`, and let go of the lowest steps of which there is no room."""
        sides = [
            self._sites.pack_columns(pairs[f"site_{side}"], pairs[f"question_id_{side}"], place) for side in _SIDES
        ]
        self._pieces.append((np.stack(sides, axis=1).reshape(-1, 2), steps))
        self._held += np.bincount(steps, minlength=STEPS + 2)
        above = np.cumsum(self._held[::-1])[::-1]
        if above[self.first] > PAIRS:
            self.first = int(np.flatnonzero(above <= PAIRS)[0])
            self._pieces = [(ends[own >= self.first], own[own >= self.first]) for ends, own in self._pieces]

    def steps(self, measured: dict[int, AtThreshold]) -> Steps:
        """The columns, of what was added, and of what was `measured`."""
        counts, sums, known = (np.cumsum(column[::-1])[::-1] for column in (self.counts, self._sums, self._known))
        steps = range(self.first, STEPS)
        ends, own = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        clusters, questions, largest = _components(ends, own, steps)
        return {
            "threshold": [step / STEPS for step in steps],
            "pairs": [int(counts[step]) for step in steps],
            "expected": [round(float(sums[step] / counts[step]), 4) if counts[step] else None for step in steps],
            "known": [int(known[step]) if self._is_linked else None for step in steps],
            "clusters": clusters,
            "questions": questions,
            "largest": largest,
            "left_out": int(self.counts[LOWEST : self.first].sum()),
            "run_known": self._run_known if self._is_linked and self._threshold is not None else None,
            "found": _column(measured, "links_found", steps),
            "linked": _column(measured, "lower_bound_precision", steps),
        }


def _column(
    measured: dict[int, AtThreshold], name: Literal["links_found", "lower_bound_precision"], steps: range
) -> list[float | None] | None:
    if not measured:
        return None
    values = (measured[step][name] if step in measured else None for step in steps)
    return [None if value is None else round(value, 6) for value in values]


def _components(ends: np.ndarray, own: np.ndarray, steps: range) -> tuple[list[int], list[int], list[int]]:
    """Clusters, questions in them and the largest at each of `steps`, of pairs (int64, (m, 2)) by their `own` steps."""
    nodes, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape)
    labels = _joined(np.arange(len(nodes)), places[own == STEPS])
    clusters, questions, largest = list[int](), list[int](), list[int]()
    for step in reversed(steps):
        labels = _joined(labels, places[own == step])
        sizes = np.bincount(labels)
        several = sizes[sizes > 1]
        clusters.append(len(several))
        questions.append(int(several.sum()))
        largest.append(int(several.max(initial=0)))
    return clusters[::-1], questions[::-1], largest[::-1]


def _joined(labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """`labels` (int64, 0 to n - 1 without gaps) after the groups of both ends of `pairs` are joined."""
    if not len(pairs):
        return labels
    groups = int(labels.max()) + 1
    left, right = labels[pairs[:, 0]], labels[pairs[:, 1]]
    graph = sparse.coo_array((np.ones(len(left), np.int8), (left, right)), shape=(groups, groups))
    return connected_components(graph.tocsr(), directed=False)[1].astype(np.int64)[labels]


# The explorer's data: one JSON object that the page holds, within a size that opens fast.
#
# Questions are listed once and named by their place in the list; so are sites. What is absent of a pair is left out.

BUDGET = 6_000_000  # characters of the clusters, so that the page opens in a second or two
TITLE = 300  # characters that are shown
TAGS = 8

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")


class Chosen(NamedTuple):
    """What the explorer is to show, as far as there is room."""

    clusters: list[TableRow]  # rows of `cluster_stats`, the most telling first
    judged: list[queries.Asked]
    worklist: list[TableRow]

    @property
    def cluster_ids(self) -> set[str]:
        """Of the clusters."""
        return {row["cluster_id"] for row in self.clusters}

    @property
    def keys(self) -> set[Key]:
        """The questions of the pairs to be judged."""
        sampled = {key for pair in self.judged for key in pair[:2]}
        return sampled.union(*(ends_of(row) for row in self.worklist))


def chosen(run: Run) -> Chosen:
    """The clusters to be shown, and the pairs to be judged."""
    return Chosen(explorer_clusters.choose(run), queries.asked(run), explorer_clusters.worklist(run))


def explorer_data(run: Run, show: Chosen, held: Contents, budget: int) -> dict[str, object]:
    """What the scripts read; a cluster is shown whole or, where it is too large, says how much of it is.

    At most about `budget` characters of clusters, and the pairs to be judged. `held` has what is chosen.
    """
    own = {cluster_id: held.members[cluster_id] for cluster_id in show.cluster_ids if cluster_id in held.members}
    evidence = Evidence(run)
    odds = _odds(run, [row for cluster_id in own for row in telling(held.pairs.get(cluster_id, []))])
    listed = _Questions(held.texts)
    worklist = [to_judge(row, listed.place) for row in show.worklist]
    review = [[listed.place(pair.left), listed.place(pair.right), pair.verdict] for pair in show.judged]
    kinds = explorer_clusters.changes(run, list(own))
    clusters: list[dict[str, object]] = []
    used = questions = 0
    for row in show.clusters:
        cluster_id = row["cluster_id"]
        if cluster_id not in own:
            continue
        shown = _cluster(row, own[cluster_id], telling(held.pairs.get(cluster_id, [])), evidence, held.texts, odds)
        shown["changes"] = kinds.get(cluster_id, [])
        used += len(json.dumps(shown)) + sum(listed.cost(key) for key in own[cluster_id].keys)
        if used > budget and clusters:
            break
        shown["questions"] = [listed.place(key) for key in own[cluster_id].keys]
        questions += len(own[cluster_id].keys)
        clusters.append(shown)
    return {
        **run_data(run),
        "sites": listed.sites,
        "questions": listed.questions,
        "clusters": clusters,
        "held": questions,
        "review": review,
        "worklist": worklist,
        "steps": at_thresholds(run),
    }


def to_judge(row: TableRow, place: Callable[[Key], int]) -> list[object]:
    """A row of `worklist`: the places of its questions, no verdict yet, and what speaks for it."""
    return [*map(place, ends_of(row)), "", round(row["probability"], 4), row["evidence"]]


def _bins(run: Run) -> list[list[float]]:
    """By ranges of probability: the mean of it, the share that is linked, and how many pairs that is of."""
    bins = (run.metrics.get("links") or {}).get("calibration") or {}
    columns = (bins.get("mean_probability"), bins.get("share_right"), bins.get("pairs"))
    return [[round(value, 4) for value in row] for row in zip(*(column or [] for column in columns), strict=True)]


def run_data(run: Run) -> dict[str, object]:
    """What the scripts read of a run, whatever of it is shown."""
    return {
        "run": run.manifest["run_id"],
        "threshold": run.metrics.get("threshold"),
        "shingle": (run.config.get("near_duplicates") or {}).get("shingle_size", 3),
        "meaning": [explorer_clusters.TITLE_OVERLAP, explorer_clusters.TEXT_OVERLAP],
        "compared": explorer_clusters.is_compared(run),
        "bins": _bins(run),
    }


def script_text(data: Mapping[str, object]) -> str:
    """JSON for a script element: no "<", so that nothing in it ends the element or begins a comment."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def question_data(site: int, number: int, text: Text | None) -> dict[str, object]:
    """What is shown of a question; `site` is the place of its site in the list of these. None: it is gone."""
    if text is None:
        return {"site": site, "id": number, "gone": True}
    entry = {
        "site": site,
        "id": number,
        "title": shown_title(text.title),
        "text": text.excerpt,
        "tags": text.tags[:TAGS],
    }
    return entry if text.score is None else {**entry, "score": text.score}


def shown_title(title: str) -> str:
    """A title on one line, of at most TITLE characters."""
    line = " ".join(title.split())
    return line if len(line) <= TITLE else line[:TITLE] + "…"


def site_data(site: str) -> dict[str, object]:
    """A site, and whether its questions can be linked to."""
    return {"name": site, "linked": link((site, 0)) is not None}


class _Questions:
    """The questions that are named so far, each once."""

    def __init__(self, said: dict[Key, Text]) -> None:
        self.questions: list[dict[str, object]] = []
        self.sites: list[dict[str, object]] = []
        self._said, self._places, self._site_places = said, dict[Key, int](), dict[str, int]()

    def place(self, key: Key) -> int:
        if key not in self._places:
            self._places[key] = len(self.questions)
            self.questions.append(self._entry(key))
        return self._places[key]

    def cost(self, key: Key) -> int:
        text = self._said.get(key)
        return 60 if text is None else 60 + len(text.title[:TITLE]) + len(text.excerpt)

    def _entry(self, key: Key) -> dict[str, object]:
        site, number = key
        return question_data(self._site(site), number, self._said.get(key))

    def _site(self, site: str) -> int:
        if site not in self._site_places:
            self._site_places[site] = len(self.sites)
            self.sites.append(site_data(site))
        return self._site_places[site]


def _cluster(
    row: TableRow,
    own: Members,
    edges: list[TableRow],
    evidence: Evidence,
    texts: Mapping[Key, Text],
    odds: Mapping[tuple[Key, Key], list[list[object]]],
) -> dict[str, object]:
    places = {key: place for place, key in enumerate(own.keys)}
    pairs = [{**pair_data(pair, places), "evidence": evidence.of(pair, texts)} for pair in edges]
    for shown, pair in zip(pairs, edges, strict=True):
        if pair["source"] == "encoder" and ends_of(pair) in odds:
            shown["odds"] = odds[ends_of(pair)]
    return {**cluster_data(row), "reason": own.reason, "pairs": pairs}


LEAST_ODDS = 0.05  # that are shown; the rest is added up


def _odds(run: Run, rows: list[TableRow]) -> dict[tuple[Key, Key], list[list[object]]]:
    """What the evidence adds to the log-odds of the encoder's pairs, by their questions; none where that is gone."""
    wanted = [ends_of(row) for row in rows if row["source"] == "encoder"]
    if not wanted:
        return {}
    try:
        sites = Sites(sorted(run.metrics["sites"]))
        scorer = scorer_of(run, sites, (number for ends in wanted for _, number in ends))
        packed = [[int(sites.pack(site, np.array([number]), "pairs")[0]) for site, number in ends] for ends in wanted]
        added = scorer.weigh(np.array(packed))
    except (DupqError, KeyError):  # of another version, or its archive or encoder is another one now
        return {}
    return {ends: odds_data(row) for ends, row in zip(wanted, added.tolist(), strict=True) if row[0] == row[0]}


def odds_data(added: list[float]) -> list[list[object]]:
    """What each kind of evidence adds to a pair's log-odds, as the scripts read it."""
    named = list(zip(WEIGHED, added, strict=True))
    shown: list[list[object]] = [[kind, round(value, 3)] for kind, value in named if abs(value) >= LEAST_ODDS]
    rest = sum(value for _, value in named if abs(value) < LEAST_ODDS)
    return [*shown, ["all else", round(rest, 3)]]


def cluster_data(row: TableRow) -> dict[str, object]:
    """The figures of a row of `cluster_stats`."""
    shown = {name: row[name] for name in ("size", "edges", "bridges")}
    shown |= {name: round(row[name], 4) for name in ("density", "weakest_link", "mean_probability")}
    return {"id": row["cluster_id"], **shown}


def pair_data(row: TableRow, places: dict[Key, int]) -> dict[str, object]:
    """A pair by the places of its questions in the cluster, the smaller one first."""
    shown: dict[str, object] = {"ends": sorted(places[end] for end in ends_of(row)), "source": row["source"]}
    shown["probability"] = round(row["probability"], 4)
    shown |= {name: round(row[name], 4) for name in FIGURES if row[name] is not None}
    if row["known_link"]:
        shown["known"] = True
    return shown
