"""The explorer's data: one JSON object that the page holds, within a size that opens fast.

It has the clusters, all of a small run and of a large one the most telling; their questions and pairs, and what speaks
for a pair. Questions are listed once and named by their index in the list; so are sites. What is absent of a pair is
left out.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.decision import Rarity, Titled, in_words
from dupq.errors import DupqError
from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.records import RunFiles
from dupq.runs.scoring import WEIGHED, weigh
from dupq.tables import RARITIES
from dupq.text.languages import is_stop_word, stems
from dupq.text.questions import BUCKETS, bucket_of
from dupq.text.tokens import LINK_MARK, html_to_text

QUESTIONS_HELD = 40  # of a cluster
PAIRS = 120  # of a cluster
EXCERPT = 500  # characters of a body
_HTML = 8_000  # characters of a body that its excerpt is made from


class Text(NamedTuple):
    """What a reader is shown of a question. All of it is its author's: hostile text."""

    title: str
    excerpt: str
    score: int | None
    tags: list[str]


class Members(NamedTuple):
    """The first questions of a cluster, the canonical one before all, and why it is that."""

    keys: list[Key]
    reason: str | None


def texts_of(run: Run, keys: Iterable[Key]) -> dict[Key, Text]:
    """Return the texts of questions, without those that are no longer in the archive."""
    return {
        key: Text(row["title"], excerpt(row["body_html"]), row["score"], row["tags"] or [])
        for key, row in run.question_rows(keys, ["title", "body_html", "score", "tags"])
    }


def members(run: Run, cluster_ids: Iterable[str]) -> dict[str, Members]:
    """Return at most QUESTIONS_HELD questions of each cluster, by id."""
    columns = ["site", "question_id", "cluster_id", "is_canonical", "canonical_reason"]
    rows = run.clusters.arrow(columns, pc.field("cluster_id").isin(pa.array(sorted(cluster_ids), pa.string())))
    order = [("cluster_id", "ascending"), ("is_canonical", "descending")]
    rows = rows.sort_by([*order, ("site", "ascending"), ("question_id", "ascending")])
    ids, indices = rows["cluster_id"].to_numpy(), np.arange(len(rows))
    begins = np.maximum.accumulate(np.where(np.r_[True, ids[1:] != ids[:-1]][: len(ids)], indices, 0))
    found: dict[str, Members] = {}
    for row in rows.filter(pa.array(indices - begins < QUESTIONS_HELD)).to_pylist():
        own = found.setdefault(row["cluster_id"], Members([], row["canonical_reason"]))
        own.keys.append((row["site"], row["question_id"]))
    return found


def joined_pairs(run: Run, of_clusters: dict[str, Members]) -> dict[str, list[TableRow]]:
    """Return the rows of `pairs` that join two of these members, by cluster, in any order."""
    home = {key: cluster_id for cluster_id, own in of_clusters.items() for key in own.keys}
    ids = pa.array(sorted({number for _, number in home}), pa.int64())
    found: dict[str, list[TableRow]] = defaultdict(list)
    for table in run.pairs.files():
        inside = pc.and_(pc.is_in(table["question_id_left"], ids), pc.is_in(table["question_id_right"], ids))
        for row in table.filter(pc.and_(inside, table["joined"])).to_pylist():
            left, right = ends_of(row)
            if left in home and home[left] == home.get(right):
                found[home[left]].append(row)
    return found


def least_probable(rows: list[TableRow]) -> list[TableRow]:
    """Rows of `pairs`, the least probable first."""
    return sorted(rows, key=lambda row: (row["probability"], *ends_of(row), row["source"]))


def telling(rows: list[TableRow]) -> list[TableRow]:
    """At most PAIRS of the pairs of a cluster, the least probable first.

    Of more pairs those are taken that hold the cluster together at best (a maximum spanning tree), and then the least
    probable.
    """
    rows = least_probable(rows)
    if len(rows) <= PAIRS:
        return rows
    graph = nx.Graph()
    for place, row in enumerate(rows):
        graph.add_edge(*ends_of(row), weight=row["probability"], place=place)
    tree = {data["place"] for _, _, data in nx.maximum_spanning_edges(graph, data=True)}
    least = [place for place in range(len(rows)) if place not in tree][: PAIRS - len(tree)]
    return [rows[place] for place in sorted(tree.union(least))]


def excerpt(body_html: str) -> str:
    """The first EXCERPT characters of a body's text, code and all, with "…" where it goes on."""
    cut = body_html if len(body_html) <= _HTML else _without_unfinished_tag(body_html[:_HTML])
    text = " ".join(html_to_text(cut, "kept").replace(LINK_MARK, " [link] ").split())
    return text if len(text) <= EXCERPT and cut == body_html else text[:EXCERPT] + "…"


def _without_unfinished_tag(html: str) -> str:
    begin = html.rfind("<")
    return html[:begin] if begin > html.rfind(">") else html


Order = list[tuple[str, str]]  # columns, each "ascending" or "descending"


def first_rows(tables: Iterable[pa.Table], limit: int, order: Order) -> list[TableRow]:
    """Return the first `limit` rows of all tables in an order, nulls last; never more than those and a table are held.

    If no two rows are equal in `order`, the answer depends neither on the files nor on their order.
    """
    kept: pa.Table | None = None
    for table in tables:
        pool = table if kept is None else pa.concat_tables([kept, table])
        # select_k_unstable is faster, but until pyarrow 26 it fails without rows, and up to 24 it drops nulls
        kept = pool.take(pc.sort_indices(pool, sort_keys=order)[:limit])
    return [] if kept is None else kept.to_pylist()


class Evidence:
    """What speaks for a pair, in the words of the worklist."""

    def __init__(self, run: Run) -> None:
        """Of a run that has lost its rarities, words are in the order of the titles."""
        self._questions = run.metrics.get("questions") or 0
        self._k = (run.config.get("neighbours") or {}).get("k", 10)
        language = (run.config.get("text") or {}).get("language", "english")
        place = RunFiles(run.uri).rarities
        rarities = (
            storage.read_table(place, RARITIES)["rarity"].to_numpy() if storage.exists(place) else np.zeros(BUCKETS)
        )
        is_stop = functools.partial(is_stop_word, language=language)
        self._rarity = Rarity(stems(language), is_stop, lambda stem: float(rarities[bucket_of(stem)]))

    def of(self, row: TableRow, texts: Mapping[Key, Text]) -> str:
        """Return what speaks for a row of `pairs`; "" where one of its questions is gone."""
        left, right = (texts.get(end) for end in ends_of(row))
        if left is None or right is None:
            return ""
        one, other = (Titled(side.title, side.tags) for side in (left, right))
        return in_words(row, one, other, self._questions, self._k, self._rarity)


# Which clusters the explorer holds: all of a small run, of a large one the most telling.
#
# One is taken from each of several orders in turn, until they are used up: the largest, the least and the most certain,
# those that changed since the last run, and those whose questions are alike in meaning and not in words.

CLUSTERS = 6_000  # at most, in each order and in all
MEANING_PAIRS = 3_000  # whose clusters are candidates
TITLE_OVERLAP, TEXT_OVERLAP = 0.25, 0.5  # below both, an encoder's pair is alike in meaning, not in words

_ALIKE_IN_MEANING = (
    (pc.field("source") == "encoder")
    & pc.field("joined")
    & (pc.field("title_overlap") < TITLE_OVERLAP)
    & (pc.field("text_overlap") < TEXT_OVERLAP)
)
_BY_ID = ("cluster_id", "ascending")
_ORDERS: list[Order] = [
    [("size", "descending"), _BY_ID],
    [("weakest_link", "ascending"), _BY_ID],
    [("weakest_link", "descending"), _BY_ID],
]


def choose(run: Run, most: int = CLUSTERS) -> list[TableRow]:
    """Return at most `most` rows of the run's `cluster_stats`, of clusters of two and more, the most telling first."""

    def several(is_wanted: pc.Expression | None = None) -> Iterator[pa.Table]:
        for table in run.cluster_stats.files():
            rows = table.filter(pc.greater(table["size"], 1))
            yield rows if is_wanted is None else rows.filter(is_wanted)

    orders = [first_rows(several(), most, order) for order in _ORDERS]
    for ids in (_changed(run, most), _alike_in_meaning(run)):
        is_among = pc.field("cluster_id").isin(pa.array(sorted(ids), pa.string()))
        orders.append(first_rows(several(is_among), most, _ORDERS[0]))
    taken = {row["cluster_id"]: row for turn in zip_longest(*orders) for row in turn if row is not None}
    return list(taken.values())[:most]


def changes(run: Run, cluster_ids: list[str]) -> dict[str, list[str]]:
    """The kinds of change, of clusters.identity.KINDS, of each of the clusters that changed since the last run."""
    ids = pa.array(cluster_ids, pa.string())
    found = defaultdict[str, set[str]](set)
    for table in _change_files(run):
        for row in table.filter(pc.is_in(table["cluster_id"], ids)).to_pylist():
            found[row["cluster_id"]].add(row["kind"])
    return {cluster_id: sorted(kinds) for cluster_id, kinds in found.items()}


def is_compared(run: Run) -> bool:
    """Whether the run was given an earlier one."""
    return bool(storage.list_files(storage.join(run.uri, "changes"), ".parquet"))


def _change_files(run: Run) -> Iterator[pa.Table]:
    if is_compared(run):
        yield from run.changes.files(["kind", "cluster_id", "size"])


def _changed(run: Run, most: int) -> set[str]:
    """Return the ids of the largest clusters that changed; the others are gone."""
    rows = (table.filter(pc.is_valid(table["cluster_id"])) for table in _change_files(run))
    return {row["cluster_id"] for row in first_rows(rows, most, [("size", "descending"), _BY_ID])}


def _alike_in_meaning(run: Run) -> set[str]:
    """Return the clusters of the surest such pairs."""
    keys = ["site_left", "question_id_left", "site_right", "question_id_right"]
    order: Order = [("probability", "descending"), *((name, "ascending") for name in keys)]
    files = run.pairs.files([*keys, "source", "probability", "title_overlap", "text_overlap", "joined"])
    pairs = first_rows((table.filter(_ALIKE_IN_MEANING) for table in files), MEANING_PAIRS, order)
    left = {ends_of(row)[0] for row in pairs}
    ids = pc.field("question_id").isin(pa.array(sorted({number for _, number in left}), pa.int64()))
    rows = run.clusters.arrow(["site", "question_id", "cluster_id"], ids).to_pylist()
    return {row["cluster_id"] for row in rows if (row["site"], row["question_id"]) in left}


BUDGET = 6_000_000  # characters of the clusters, so that the page opens in a second or two
TITLE = 300  # characters that are shown
TAGS = 8

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")


def explorer_data(run: Run, budget: int = BUDGET) -> dict[str, object]:
    """Return what the scripts read: at most about `budget` characters of clusters, and the pairs to be judged.

    A cluster is shown whole or, where it is too large, says how much of it is.
    """
    rows, judged, work = choose(run), queries.sampled_pairs(run), queries.worklist(run)
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
            self.questions.append(question_data(self._site(key[0]), key[1], self._said.get(key)))
        return self._places[key]

    def cost(self, key: Key) -> int:
        text = self._said.get(key)
        return 60 if text is None else 60 + len(text.title[:TITLE]) + len(text.excerpt)

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
    try:
        added = weigh(run, [ends_of(row) for row in weighed])
    except (DupqError, KeyError):  # of another version, or its archive or encoder is another one now
        return {}
    return {pair_of(row): {"odds": odds_data(values)} for row, values in zip(weighed, added.tolist(), strict=True)}


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
