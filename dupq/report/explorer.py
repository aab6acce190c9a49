"""The explorer's data: one JSON object in the page, small enough to open fast.

It has the clusters with their questions, pairs and evidence: all clusters of a small run, the most telling ones of a
large run. Questions and sites are listed once and named by their index in the list. Values that a pair lacks are left
out.
"""

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
from dupq.clusters.decision import Titled, Wording
from dupq.errors import DupqError
from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.records import RunFiles
from dupq.runs.scoring import WEIGHED, weigh
from dupq.tables import RARITIES
from dupq.text.questions import BUCKETS
from dupq.text.tokens import LINK_MARK, html_to_text

QUESTIONS_HELD = 40  # per cluster
PAIRS = 120  # per cluster
EXCERPT = 500  # characters of a body
_HTML = 8_000  # characters of a body that are parsed for its excerpt


class Text(NamedTuple):
    """What a reader sees of a question. Users wrote it: hostile text."""

    title: str
    excerpt: str
    score: int | None
    tags: list[str]


class Members(NamedTuple):
    """The first questions of a cluster, the canonical one before the others, and the reason why it is canonical."""

    keys: list[Key]
    reason: str | None


def texts_of(run: Run, keys: Iterable[Key]) -> dict[Key, Text]:
    """Return the texts of the questions that are still in the archive."""
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
    clusters: dict[str, Members] = {}
    for row in rows.filter(pa.array(indices - begins < QUESTIONS_HELD)).to_pylist():
        cluster = clusters.setdefault(row["cluster_id"], Members([], row["canonical_reason"]))
        cluster.keys.append((row["site"], row["question_id"]))
    return clusters


def joined_pairs(run: Run, clusters: dict[str, Members]) -> dict[str, list[TableRow]]:
    """Return the rows of `pairs` that join two members of a cluster, by cluster, in any order."""
    home = {key: cluster_id for cluster_id, cluster in clusters.items() for key in cluster.keys}
    ids = pa.array(sorted({number for _, number in home}), pa.int64())
    pairs: dict[str, list[TableRow]] = defaultdict(list)
    for table in run.pairs.files():
        inside = pc.and_(pc.is_in(table["question_id_left"], ids), pc.is_in(table["question_id_right"], ids))
        for row in table.filter(pc.and_(inside, table["joined"])).to_pylist():
            left, right = ends_of(row)
            if left in home and home[left] == home.get(right):
                pairs[home[left]].append(row)
    return pairs


def least_probable(rows: list[TableRow]) -> list[TableRow]:
    """Return rows of `pairs`, the least probable first."""
    return sorted(rows, key=lambda row: (row["probability"], *ends_of(row), row["source"]))


def telling(rows: list[TableRow]) -> list[TableRow]:
    """Return at most PAIRS of a cluster's pairs, the least probable first.

    If there are more, the ones that hold the cluster together best (a maximum spanning tree) come before the least
    probable.
    """
    rows = least_probable(rows)
    if len(rows) <= PAIRS:
        return rows
    graph = nx.Graph()
    for index, row in enumerate(rows):
        graph.add_edge(*ends_of(row), weight=row["probability"], index=index)
    tree = {data["index"] for _, _, data in nx.maximum_spanning_edges(graph, data=True)}
    least = [index for index in range(len(rows)) if index not in tree][: PAIRS - len(tree)]
    return [rows[index] for index in sorted(tree.union(least))]


def excerpt(body_html: str) -> str:
    """Return the first EXCERPT characters of a body's text, including code, with "…" if there is more."""
    html = body_html[:_HTML]
    if len(body_html) > _HTML and html.rfind("<") > html.rfind(">"):
        html = html[: html.rfind("<")]  # an unfinished tag
    text = " ".join(html_to_text(html, "kept").replace(LINK_MARK, " [link] ").split())
    return text if len(text) <= EXCERPT and html == body_html else text[:EXCERPT] + "…"


Order = list[tuple[str, str]]  # columns, each "ascending" or "descending"


def first_rows(tables: Iterable[pa.Table], limit: int, order: Order) -> list[TableRow]:
    """Return the first `limit` rows of all tables in an order, nulls last. It holds these rows and one table.

    If no two rows are equal in `order`, neither the files nor their order make a difference.
    """
    first: pa.Table | None = None
    for table in tables:
        pool = table if first is None else pa.concat_tables([first, table])
        # select_k_unstable is faster, but fails without rows before pyarrow 26, and drops nulls up to 24
        first = pool.take(pc.sort_indices(pool, sort_keys=order)[:limit])
    return [] if first is None else first.to_pylist()


class Evidence:
    """The evidence for pairs of a run, worded as in the worklist."""

    def __init__(self, run: Run) -> None:
        """If the run has lost its rarities, words are in the order of the titles."""
        language = (run.config.get("text") or {}).get("language", "english")
        k = (run.config.get("neighbours") or {}).get("k", 10)
        uri, rarities = RunFiles(run.uri).rarities, np.zeros(BUCKETS)
        if storage.exists(uri):
            rarities = storage.read_table(uri, RARITIES)["rarity"].to_numpy()
        self._wording = Wording(language, rarities, run.metrics.get("questions") or 0, k)

    def of(self, row: TableRow, texts: Mapping[Key, Text]) -> str:
        """Return the evidence for a row of `pairs`; "" if one of its questions is gone."""
        sides = [Titled(texts[key].title, texts[key].tags) for key in ends_of(row) if key in texts]
        return self._wording.evidence(row, *sides) if len(sides) == 2 else ""


# Which clusters the explorer has: all of a small run, the most telling ones of a large run.
#
# They are taken in turn from several orders: the largest, the least certain, the most certain, those that changed since
# the last run, and those whose questions are alike in meaning but not in words.

CLUSTERS = 6_000  # at most, in each order and in all
MEANING_PAIRS = 3_000  # pairs alike in meaning whose clusters are considered
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

    def filtered(condition: pc.Expression) -> Iterator[pa.Table]:
        return (table.filter((pc.field("size") > 1) & condition) for table in run.cluster_stats.files())

    orders = [first_rows(filtered(pc.scalar(True)), most, order) for order in _ORDERS]
    for ids in (_changed(run, most), _alike_in_meaning(run)):
        is_among = pc.field("cluster_id").isin(pa.array(sorted(ids), pa.string()))
        orders.append(first_rows(filtered(is_among), most, _ORDERS[0]))
    chosen = {row["cluster_id"]: row for turn in zip_longest(*orders) for row in turn if row is not None}
    return list(chosen.values())[:most]


def changes(run: Run, cluster_ids: list[str]) -> dict[str, list[str]]:
    """Return the kinds of change (clusters.identity.KINDS) of the clusters that changed since the last run."""
    ids = pa.array(cluster_ids, pa.string())
    kinds_by_id = defaultdict[str, set[str]](set)
    for table in _change_files(run):
        for row in table.filter(pc.is_in(table["cluster_id"], ids)).to_pylist():
            kinds_by_id[row["cluster_id"]].add(row["kind"])
    return {cluster_id: sorted(kinds) for cluster_id, kinds in kinds_by_id.items()}


def is_compared(run: Run) -> bool:
    """Return whether the run was compared with an earlier one."""
    return bool(storage.list_files(storage.join(run.uri, "changes"), ".parquet"))


def _change_files(run: Run) -> Iterator[pa.Table]:
    if is_compared(run):
        yield from run.changes.files(["kind", "cluster_id", "size"])


def _changed(run: Run, most: int) -> set[str]:
    """Return the ids of the largest clusters that changed and are not gone."""
    rows = (table.filter(pc.is_valid(table["cluster_id"])) for table in _change_files(run))
    return {row["cluster_id"] for row in first_rows(rows, most, [("size", "descending"), _BY_ID])}


def _alike_in_meaning(run: Run) -> set[str]:
    """Return the ids of the clusters of the surest pairs that are alike in meaning."""
    keys = ["site_left", "question_id_left", "site_right", "question_id_right"]
    order: Order = [("probability", "descending"), *((name, "ascending") for name in keys)]
    files = run.pairs.files([*keys, "source", "probability", "title_overlap", "text_overlap", "joined"])
    pairs = first_rows((table.filter(_ALIKE_IN_MEANING) for table in files), MEANING_PAIRS, order)
    left = {ends_of(row)[0] for row in pairs}
    ids = pc.field("question_id").isin(pa.array(sorted({number for _, number in left}), pa.int64()))
    rows = run.clusters.arrow(["site", "question_id", "cluster_id"], ids).to_pylist()
    return {row["cluster_id"] for row in rows if (row["site"], row["question_id"]) in left}


BUDGET = 6_000_000  # characters of JSON for the clusters, so that the page opens in a second or two
TITLE = 300  # characters of a title
TAGS = 8  # of a question

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")


def explorer_data(run: Run, budget: int = BUDGET) -> dict[str, object]:
    """Return what the scripts read: at most about `budget` characters of clusters, and the pairs to be judged.

    A cluster that is too large to be shown whole says how much of it is shown.
    """
    rows, sample, worklist = choose(run), queries.sampled_pairs(run), queries.worklist(run)
    clusters = members(run, [row["cluster_id"] for row in rows])
    to_judge = {key for pair in sample for key in pair[:2]}.union(*map(ends_of, worklist))
    texts = texts_of(run, to_judge.union(*(cluster.keys for cluster in clusters.values())))
    pairs = {cluster_id: telling(joined) for cluster_id, joined in joined_pairs(run, clusters).items()}
    evidence, odds = Evidence(run), odds_of(run, [row for joined in pairs.values() for row in joined])
    kinds, listed = changes(run, list(clusters)), _Questions(texts)
    review = [[listed.index(pair.left), listed.index(pair.right), pair.verdict] for pair in sample]
    work = [worklist_data(row, listed.index) for row in worklist]
    entries: list[dict[str, object]] = []
    used = questions = 0
    for row in (row for row in rows if row["cluster_id"] in clusters):
        (keys, reason), joined = clusters[row["cluster_id"]], pairs.get(row["cluster_id"], [])
        indices = {key: index for index, key in enumerate(keys)}
        entry = {
            **cluster_data(row),
            "reason": reason,
            "pairs": [
                {**pair_data(pair, indices), "evidence": evidence.of(pair, texts), **odds.get(pair_of(pair), {})}
                for pair in joined
            ],
            "changes": kinds.get(row["cluster_id"], []),
        }
        used += len(json.dumps(entry)) + sum(map(listed.cost, keys))
        if used > budget and entries:
            break
        entry["questions"] = list(map(listed.index, keys))
        questions += len(keys)
        entries.append(entry)
    return {
        **run_data(run),
        "sites": listed.sites,
        "questions": listed.questions,
        "clusters": entries,
        "held": questions,
        "review": review,
        "worklist": work,
    }


def worklist_data(row: TableRow, index_of: Callable[[Key], int]) -> list[object]:
    """Return a row of `worklist`: the indices of its questions, no verdict yet, its probability and evidence."""
    return [*map(index_of, ends_of(row)), "", round(row["probability"], 4), row["evidence"]]


def _bins(run: Run) -> list[list[float]]:
    """Return for ranges of probability its mean, the share of linked pairs, and the number of pairs."""
    bins = (run.metrics.get("links") or {}).get("calibration") or {}
    columns = (bins.get("mean_probability"), bins.get("share_right"), bins.get("pairs"))
    return [[round(value, 4) for value in row] for row in zip(*(column or [] for column in columns), strict=True)]


def run_data(run: Run) -> dict[str, object]:
    """Return what the scripts read of a run, whichever clusters are shown."""
    return {
        "run": run.manifest["run_id"],
        "threshold": run.metrics.get("threshold"),
        "shingle": (run.config.get("near_duplicates") or {}).get("shingle_size", 3),
        "meaning": [TITLE_OVERLAP, TEXT_OVERLAP],
        "compared": is_compared(run),
        "bins": _bins(run),
    }


def script_text(data: Mapping[str, object]) -> str:
    """Return JSON for a script element: without "<", nothing in it ends the element or begins a comment."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def question_data(site: int, number: int, text: Text | None) -> dict[str, object]:
    """Return what is shown of a question; `site` is the index of its site. `text` is None if the question is gone."""
    entry: dict[str, object] = {"site": site, "id": number}
    if text is None:
        return {**entry, "gone": True}
    entry |= {"title": shown_title(text.title), "text": text.excerpt, "tags": text.tags[:TAGS]}
    return entry if text.score is None else {**entry, "score": text.score}


def shown_title(title: str) -> str:
    """Return a title on one line, of at most TITLE characters."""
    line = " ".join(title.split())
    return line if len(line) <= TITLE else line[:TITLE] + "…"


def site_data(site: str) -> dict[str, object]:
    """Return a site, and whether links to its questions exist."""
    return {"name": site, "linked": link((site, 0)) is not None}


class _Questions:
    """The lists of questions and of sites, each entry once."""

    def __init__(self, texts: dict[Key, Text]) -> None:
        self.questions: list[dict[str, object]] = []
        self.sites: list[dict[str, object]] = []
        self._texts, self._indices, self._site_indices = texts, dict[Key, int](), dict[str, int]()

    def index(self, key: Key) -> int:
        """Return the index of a question, which is added if it is new."""
        if key not in self._indices:
            self._indices[key] = len(self.questions)
            self.questions.append(question_data(self._site(key[0]), key[1], self._texts.get(key)))
        return self._indices[key]

    def cost(self, key: Key) -> int:
        """Return about how many characters a question takes."""
        text = self._texts.get(key)
        return 60 if text is None else 60 + len(text.title[:TITLE]) + len(text.excerpt)

    def _site(self, site: str) -> int:
        if site not in self._site_indices:
            self._site_indices[site] = len(self.sites)
            self.sites.append(site_data(site))
        return self._site_indices[site]


LEAST_ODDS = 0.05  # shown one by one; smaller ones are added up


def pair_of(row: TableRow) -> tuple[Key, Key, str]:
    """Return the questions and the source of a row of `pairs`."""
    return *ends_of(row), row["source"]


def odds_of(run: Run, rows: list[TableRow]) -> dict[tuple[Key, Key, str], dict[str, object]]:
    """Return what the evidence adds to the log-odds of the encoder's pairs among `rows`, by `pair_of`.

    The result is empty if the run's archive or encoder is gone or has changed.
    """
    weighed = [row for row in rows if row["source"] == "encoder"]
    if not weighed:
        return {}
    try:
        added = weigh(run, [ends_of(row) for row in weighed])
    except (DupqError, KeyError):  # KeyError: a run of another version
        return {}
    return {pair_of(row): {"odds": odds_data(values)} for row, values in zip(weighed, added.tolist(), strict=True)}


def odds_data(added: list[float]) -> list[list[object]]:
    """Return what each kind of evidence adds to a pair's log-odds, as the scripts read it."""
    named = list(zip(WEIGHED, added, strict=True))
    shown: list[list[object]] = [[kind, round(value, 3)] for kind, value in named if abs(value) >= LEAST_ODDS]
    rest = sum(value for _, value in named if abs(value) < LEAST_ODDS)
    return [*shown, ["all else", round(rest, 3)]]


def cluster_data(row: TableRow) -> dict[str, object]:
    """Return the figures of a row of `cluster_stats`."""
    counts = {name: row[name] for name in ("size", "edges", "bridges")}
    values = {name: round(row[name], 4) for name in ("density", "weakest_link", "mean_probability")}
    return {"id": row["cluster_id"], **counts, **values}


def pair_data(row: TableRow, indices: dict[Key, int]) -> dict[str, object]:
    """Return a row of `pairs`, with the indices of its questions in the cluster, the smaller one first."""
    entry: dict[str, object] = {"ends": sorted(indices[end] for end in ends_of(row)), "source": row["source"]}
    entry["probability"] = round(row["probability"], 4)
    entry |= {name: round(row[name], 4) for name in FIGURES if row[name] is not None}
    return {**entry, "known": True} if row["known_link"] else entry
