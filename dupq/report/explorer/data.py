"""The explorer's data: one JSON object that the page holds, within a size that opens fast.

Questions are listed once and named by their place in the list; so are sites. What is absent of a pair is left out.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dupq.report.explorer import choice, thresholds
from dupq.report.explorer.contents import Contents, Members, Text, telling
from dupq.report.explorer.weighing import WORDS, Weighing, has_words, weighing
from dupq.runs import sample
from dupq.runs.links import link
from dupq.runs.reader import Key, Run, TableRow, ends_of

BUDGET = 6_000_000  # characters of the clusters, so that the page opens in a second or two
TITLE = 300  # characters that are shown
TAGS = 8

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")


class Chosen(NamedTuple):
    """What the explorer is to show, as far as there is room."""

    clusters: list[TableRow]  # rows of `cluster_stats`, the most telling first
    judged: list[sample.Asked]
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
    return Chosen(choice.choose(run), sample.asked(run), choice.worklist(run))


def explorer_data(run: Run, show: Chosen, held: Contents, budget: int) -> dict[str, object]:
    """What the scripts read; a cluster is shown whole or, where it is too large, says how much of it is.

    At most about `budget` characters of clusters, and the pairs to be judged. `held` has what is chosen.
    """
    own = {cluster_id: held.members[cluster_id] for cluster_id in show.cluster_ids if cluster_id in held.members}
    parts = weighing(run, show.keys.union(*(some.keys for some in own.values())))
    listed = _Questions(held.texts)
    worklist = [to_judge(row, listed.place) for row in show.worklist]
    review = [[listed.place(pair.left), listed.place(pair.right), pair.verdict] for pair in show.judged]
    kinds = choice.changes(run, list(own))
    clusters: list[dict[str, object]] = []
    used = questions = 0
    for row in show.clusters:
        cluster_id = row["cluster_id"]
        if cluster_id not in own:
            continue
        shown = _cluster(row, own[cluster_id], telling(held.pairs.get(cluster_id, [])), parts)
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
        "steps": thresholds.at_thresholds(run),
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
        "meaning": [choice.TITLE_OVERLAP, choice.TEXT_OVERLAP],
        "compared": choice.is_compared(run),
        "bins": _bins(run),
        "words": has_words(run),
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


def _cluster(row: TableRow, own: Members, edges: list[TableRow], parts: Weighing | None) -> dict[str, object]:
    places = {key: place for place, key in enumerate(own.keys)}
    return {**cluster_data(row), "reason": own.reason, "pairs": [_weighed(pair, places, parts) for pair in edges]}


def cluster_data(row: TableRow) -> dict[str, object]:
    """The figures of a row of `cluster_stats`."""
    shown = {name: row[name] for name in ("size", "edges", "bridges")}
    shown |= {name: round(row[name], 4) for name in ("density", "weakest_link", "mean_probability")}
    return {"id": row["cluster_id"], **shown}


def _weighed(row: TableRow, places: dict[Key, int], parts: Weighing | None) -> dict[str, object]:
    shown = pair_data(row, places)
    made_of = parts_data(parts, *ends_of(row)) if parts is not None and row["source"] == "encoder" else None
    return shown if made_of is None else {**shown, "parts": made_of}


def pair_data(row: TableRow, places: dict[Key, int]) -> dict[str, object]:
    """A pair by the places of its questions in the cluster, the smaller one first."""
    shown: dict[str, object] = {"ends": sorted(places[end] for end in ends_of(row)), "source": row["source"]}
    shown["probability"] = round(row["probability"], 4)
    shown |= {name: round(row[name], 4) for name in FIGURES if row[name] is not None}
    if row["known_link"]:
        shown["known"] = True
    return shown


def parts_data(weighing: Weighing, left: Key, right: Key) -> dict[str, object] | None:
    """What a pair's score is made of; None where that is not known."""
    weighed = weighing.parts(left, right)
    if weighed is None:
        return None
    words = [[weighing.vocabulary.word(number), round(value, 4)] for number, value in weighed.words]
    rest = round(sum(value for _, value in weighed.words[WORDS:]), 4)
    others = max(0, len(words) - WORDS)
    return {"dense": round(weighed.dense, 4), "words": words[:WORDS], "rest": rest, "others": others}
