"""The explorer's data: one JSON object that the page holds, within a size that opens fast.

Questions are listed once and named by their index in the list; so are sites. What is absent of a pair is left out.
"""

import json
from collections.abc import Callable, Mapping

import numpy as np

from dupq.errors import DupqError
from dupq.report.explorer_clusters import (
    TEXT_OVERLAP,
    TITLE_OVERLAP,
    Evidence,
    Text,
    changes,
    choose,
    is_compared,
    joined_pairs,
    members,
    telling,
    texts_of,
    worklist,
)
from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.scoring import WEIGHED, scorer_of
from dupq.text.keys import Sites

BUDGET = 6_000_000  # characters of the clusters, so that the page opens in a second or two
TITLE = 300  # characters that are shown
TAGS = 8

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")


def explorer_data(run: Run, budget: int = BUDGET) -> dict[str, object]:
    """Return what the scripts read: at most about `budget` characters of clusters, and the pairs to be judged.

    A cluster is shown whole or, where it is too large, says how much of it is.
    """
    rows, judged, work = choose(run), queries.asked(run), worklist(run)
    own = members(run, [row["cluster_id"] for row in rows])
    to_ask = {key for pair in judged for key in pair[:2]}.union(*map(ends_of, work))
    texts = texts_of(run, to_ask.union(*(some.keys for some in own.values())))
    pairs = {cluster_id: telling(joined) for cluster_id, joined in joined_pairs(run, own).items()}
    evidence, odds = Evidence(run), odds_of(run, [row for joined in pairs.values() for row in joined])
    kinds, listed = changes(run, list(own)), _Questions(texts)
    review = [[listed.place(pair.left), listed.place(pair.right), pair.verdict] for pair in judged]
    to_decide = [to_judge(row, listed.place) for row in work]
    clusters: list[dict[str, object]] = []
    used = questions = 0
    for row in (row for row in rows if row["cluster_id"] in own):
        (keys, reason), joined = own[row["cluster_id"]], pairs.get(row["cluster_id"], [])
        places = {key: place for place, key in enumerate(keys)}
        shown = {
            **cluster_data(row),
            "reason": reason,
            "pairs": [
                {**pair_data(pair, places), "evidence": evidence.of(pair, texts), **odds.get(pair_of(pair), {})}
                for pair in joined
            ],
            "changes": kinds.get(row["cluster_id"], []),
        }
        used += len(json.dumps(shown)) + sum(map(listed.cost, keys))
        if used > budget and clusters:
            break
        shown["questions"] = list(map(listed.place, keys))
        questions += len(keys)
        clusters.append(shown)
    return {
        **run_data(run),
        "sites": listed.sites,
        "questions": listed.questions,
        "clusters": clusters,
        "held": questions,
        "review": review,
        "worklist": to_decide,
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
        "meaning": [TITLE_OVERLAP, TEXT_OVERLAP],
        "compared": is_compared(run),
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


LEAST_ODDS = 0.05  # that are shown; the rest is added up


def pair_of(row: TableRow) -> tuple[Key, Key, str]:
    """Return the questions of a row of `pairs`, and who found it."""
    return *ends_of(row), row["source"]


def odds_of(run: Run, rows: list[TableRow]) -> dict[tuple[Key, Key, str], dict[str, object]]:
    """Return what the evidence adds to the log-odds of the encoder's pairs among `rows`, by `pair_of`.

    None of it where what tells it is gone.
    """
    weighed = [row for row in rows if row["source"] == "encoder"]
    if not weighed:
        return {}
    ends = [ends_of(row) for row in weighed]
    try:
        sites = Sites(sorted(run.metrics["sites"]))
        scorer = scorer_of(run, sites, (number for pair in ends for _, number in pair))
        keys = [[int(sites.pack(site, np.array([number]), "pairs")[0]) for site, number in pair] for pair in ends]
        added = scorer.weigh(np.array(keys))
    except (DupqError, KeyError):  # of another version, or its archive or encoder is another one now
        return {}
    is_told = ~np.isnan(added).any(axis=1)
    return {
        pair_of(row): {"odds": odds_data(values)}
        for row, values, told in zip(weighed, added.tolist(), is_told.tolist(), strict=True)
        if told
    }


def odds_data(added: list[float]) -> list[list[object]]:
    """Return what each kind of evidence adds to a pair's log-odds, as the scripts read it."""
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
