"""The explorer's data: one JSON object in the page, small enough to open fast.

It has the clusters with their questions, pairs and evidence: all clusters of a small run, the most telling ones of a
large run. Questions and sites are listed once and named by their index in the list. Values that a pair lacks are left
out.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import networkx as nx
import numpy as np

from dupq import storage
from dupq.clusters.decision import Titled, Wording
from dupq.errors import DupqError
from dupq.job.records import RunFiles
from dupq.judging.prompt import in_words
from dupq.runs import queries
from dupq.runs.queries import Queries, open_queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, link
from dupq.runs.scoring import WEIGHED, weigh
from dupq.runs.views import SITE
from dupq.tables import CHANGED_CLUSTERS, QUESTIONS, RARITIES
from dupq.text.questions import BUCKETS
from dupq.text.tokens import LINK_MARK, html_to_text

QUESTIONS_HELD = 40  # per cluster
PAIRS = 120  # per cluster
EXCERPT = 500  # characters of a body
_HTML = 8_000  # characters of a body that are parsed for its excerpt
TEXT = ["title", "body_html", "score", "tags", "own_id", "url"]  # the columns of a question that `texts_of` reads
TITLE_OVERLAP, TEXT_OVERLAP = 0.25, 0.5  # below both, an encoder's pair is alike in meaning, not in words
MEANING = f"source = 'encoder' AND title_overlap < {TITLE_OVERLAP} AND text_overlap < {TEXT_OVERLAP}"
LEAST_FIRST = "probability, site_left, question_id_left, site_right, question_id_right, source"
ORDERS = {
    "largest": "size DESC, cluster_id",
    "least": "weakest_link, cluster_id",
    "most": "weakest_link DESC, cluster_id",
}
BUDGET = 6_000_000  # characters of JSON for the clusters, so that the page opens in a second or two
TITLE = 300  # characters of a title
TAGS = 8  # of a question

FIGURES = ("jaccard", "similarity", "title_overlap", "text_overlap", "tag_overlap", "rank_left", "rank_right")
PAST = 500  # verdicts that earlier runs knew or that were given since
LEAST_ODDS = 0.05  # shown one by one; smaller ones are added up


class Text(NamedTuple):
    """What a reader sees of a question. Users wrote it: hostile text."""

    title: str
    excerpt: str
    score: int | None
    tags: list[str]
    own_id: str | None
    url: str | None


def texts_of(rows: Iterable[TableRow]) -> dict[Key, Text]:
    """Return the texts of the questions in rows of the archive."""
    return {
        _key_of(row): Text(
            row["title"], excerpt(row["body_html"]), row["score"], row["tags"] or [], row["own_id"], row["url"]
        )
        for row in rows
    }


def telling(rows: list[TableRow]) -> list[TableRow]:
    """Return at most PAIRS of a cluster's pairs, which are given the least probable first, in their order.

    If there are more, the ones that hold the cluster together best (a maximum spanning tree) come before the least
    probable.
    """
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


class Evidence:
    """The evidence for pairs of a run, worded as in the worklist."""

    def __init__(self, run: Run) -> None:
        """If the run has lost its rarities, words are in the order of the titles."""
        settings, questions = run.settings, run.metrics["questions"]
        uri, rarities = RunFiles(run.uri).rarities, np.zeros(BUCKETS)
        if storage.exists(uri):
            rarities = storage.read_table(uri, RARITIES)["rarity"].to_numpy()
        self._wording = Wording(settings.text.language, rarities, questions, settings.neighbours.k)
        answers = queries.usable_answers(run).to_pylist() if run.metrics.get("judge") else []
        self._judged = {ends_of(row): in_words(row) for row in answers}

    def of(self, row: TableRow, texts: Mapping[Key, Text]) -> str:
        """Return the evidence for a row of `pairs`, a judge's answer first; "" if one of its questions is gone."""
        sides = [Titled(texts[key].title, texts[key].tags) for key in ends_of(row) if key in texts]
        if len(sides) < 2:
            return ""
        said = [self._judged[ends_of(row)]] if ends_of(row) in self._judged else []
        return "; ".join([*said, self._wording.evidence(row, *sides)])


def in_turn(orders: Collection[str]) -> str:
    """Return the SQL order that takes the first row by each of `orders`, then the second ones, and so on."""
    turns = (f"{len(orders)} * row_number() OVER (ORDER BY {order}) + {turn}" for turn, order in enumerate(orders))
    return f"least({', '.join(turns)})"


# Which clusters the explorer has: all of a small run, the most telling ones of a large run. They are taken in turn from
# several orders: the largest, the least certain, the most certain, those that changed since the last run, and those
# whose questions are alike in meaning but not in words.
CLUSTERS = 6_000  # at most
_MEANING_PAIRS = 3_000  # pairs alike in meaning whose clusters are considered
_CHANGED = "SELECT cluster_id FROM changes WHERE cluster_id IS NOT NULL"
_ALIKE_IN_MEANING = f"""SELECT cluster_id FROM clusters JOIN (
        SELECT site_left AS site, question_id_left AS question_id FROM pairs WHERE joined AND {MEANING}
        ORDER BY probability DESC, site_left, question_id_left, site_right, question_id_right LIMIT {_MEANING_PAIRS}
    ) USING (site, question_id)"""
_FIRST = [f"cluster_id IN ({ids}) DESC, {ORDERS['largest']}" for ids in (_CHANGED, _ALIKE_IN_MEANING)]
_CHOSEN = f"SELECT * FROM cluster_stats WHERE size > 1 ORDER BY {in_turn([*ORDERS.values(), *_FIRST])} LIMIT ?"
_HELD = """SELECT cluster_id, site, question_id, canonical_reason FROM clusters SEMI JOIN chosen USING (cluster_id)
    QUALIFY row_number() OVER (PARTITION BY cluster_id ORDER BY is_canonical DESC, site, question_id) <= ?
    ORDER BY cluster_id, is_canonical DESC, site, question_id"""
_JOINED = f"""SELECT pairs.*, one.cluster_id FROM pairs
    JOIN held one ON one.site = site_left AND one.question_id = question_id_left
    JOIN held other ON other.site = site_right AND other.question_id = question_id_right
    WHERE joined AND one.cluster_id = other.cluster_id ORDER BY one.cluster_id, {LEAST_FIRST}"""
_JOINED_COUNTS = """SELECT cluster_id, count(*) AS joined FROM pairs
    JOIN (SELECT site, question_id, cluster_id FROM clusters SEMI JOIN chosen USING (cluster_id)) AS own
        ON own.site = site_left AND own.question_id = question_id_left
    WHERE pairs.joined GROUP BY cluster_id"""
_KINDS = """SELECT cluster_id, list_sort(list(DISTINCT kind)) AS kinds FROM changes
    WHERE cluster_id IN (SELECT unnest(?)) GROUP BY cluster_id"""


def open_tables(run: Run) -> AbstractContextManager[Queries]:
    """Open queries on pairs, clusters, cluster_stats, changes and questions; of the last two there may be no rows."""
    views = {name: getattr(run, name).dataset for name in ("pairs", "clusters", "cluster_stats")}
    views["changes"] = run.changes.dataset if is_compared(run) else CHANGED_CLUSTERS.empty_table()
    # without its archive all questions of a run are shown as gone
    views["questions"] = QUESTIONS.append(SITE).empty_table() if run.archive is None else run.archive.dataset
    return open_queries(run, views)


def changes(tables: Queries, cluster_ids: list[str]) -> dict[str, list[str]]:
    """Return the kinds of change (clusters.identity.KINDS) of the clusters that changed since the last run."""
    return {row["cluster_id"]: row["kinds"] for row in tables.rows(_KINDS, cluster_ids)}


def is_compared(run: Run) -> bool:
    """Return whether the run was compared with an earlier one."""
    return bool(storage.list_files(storage.join(run.uri, "changes"), ".parquet"))


def explorer_data(run: Run, budget: int = BUDGET) -> dict[str, object]:
    """Return what the scripts read: at most about `budget` characters of clusters, and the pairs to be judged.

    A cluster that is too large to be shown whole says how much of it is shown.
    """
    with open_tables(run) as tables:
        tables.add("chosen", tables.table(_CHOSEN, CLUSTERS))
        tables.add("held", tables.table(_HELD, QUESTIONS_HELD))
        rows, held = (tables.rows(sql) for sql in ("FROM chosen", "FROM held"))
        # in Arrow, as rows take eight times as much, and large clusters have many
        tables.add("joined", tables.table(_JOINED))
        joined = (row for batch in tables.batches("FROM joined") for row in batch.to_pylist())
        pairs = {cluster: telling(list(own)) for cluster, own in groupby(joined, key=itemgetter("cluster_id"))}
        counts = {row["cluster_id"]: row["joined"] for row in tables.rows(_JOINED_COUNTS)}
        kinds = changes(tables, [row["cluster_id"] for row in rows])
    members = {cluster: list(own) for cluster, own in groupby(held, key=itemgetter("cluster_id"))}
    # without later verdicts: the same run gives the same page
    shown, judging = to_judge(run, run.worklist.arrow().to_pylist(), queries.known_verdicts(run, also_later=False))
    texts = texts_of(row for _, row in run.question_rows({*shown, *map(_key_of, held)}, TEXT))
    evidence, odds = Evidence(run), odds_of(run, [row for edges in pairs.values() for row in edges])
    entries: list[dict[str, object]] = []
    used = questions = 0
    for row in rows:
        cluster_id = row["cluster_id"]
        keys = list(map(_key_of, members[cluster_id]))
        indices = {key: index for index, key in enumerate(keys)}
        entry = {
            **cluster_data(row),
            "reason": members[cluster_id][0]["canonical_reason"],
            "joined": counts.get(cluster_id, 0),
            "pairs": [
                {**pair_data(pair, indices), "evidence": evidence.of(pair, texts), **odds.get(ends_of(pair), {})}
                for pair in pairs.get(cluster_id, [])
            ],
            "changes": kinds.get(cluster_id, []),
        }
        used += len(json.dumps(entry)) + 60 * len(keys)  # about what they take in the page
        used += sum(len(texts[key].title[:TITLE]) + len(texts[key].excerpt) for key in keys if key in texts)
        if used > budget and entries:
            break
        entry["questions"] = [shown.setdefault(key, len(shown)) for key in keys]
        questions += len(keys)
        entries.append(entry)
    sites = {site: index for index, site in enumerate(dict.fromkeys(site for site, _ in shown))}
    return {
        **run_data(run),
        "sites": list(map(site_data, sites)),
        "questions": [question_data(sites[site], number, texts.get((site, number))) for site, number in shown],
        "clusters": entries,
        "held": questions,
        **judging,
    }


def _key_of(row: TableRow) -> Key:
    return row["site"], row["question_id"]


def to_judge(
    run: Run, worklist: list[TableRow], known: Mapping[tuple[Key, Key], str]
) -> tuple[dict[Key, int], dict[str, object]]:
    """Return the questions of the sample, of a worklist and of at most PAST of the `known` verdicts, with their indices
    in the page; and the pairs to be judged, and judged before.

    A pair has the indices of its questions and its verdict; a likely pair also its probability and its evidence.
    """
    sample, past = queries.sampled_pairs(run).to_pylist(), list(known.items())[:PAST]
    pairs = [*map(ends_of, [*sample, *worklist]), *(pair for pair, _ in past)]
    indices = {key: index for index, key in enumerate(dict.fromkeys(end for pair in pairs for end in pair))}
    return indices, {
        "review": [[*map(indices.get, ends_of(row)), row["verdict"] or ""] for row in sample],
        "worklist": [
            [*map(indices.get, ends_of(row)), "", round(row["probability"], 4), row["evidence"]] for row in worklist
        ],
        "past": [[*map(indices.get, pair), verdict] for pair, verdict in past],
        "past_left_out": len(known) - len(past),
    }


def run_data(run: Run) -> dict[str, object]:
    """Return what the scripts read of a run, whichever clusters are shown."""
    return {
        "run": run.manifest["run_id"],
        "threshold": run.metrics["threshold"],
        "shingle": run.settings.near_duplicates.shingle_size,
        "meaning": [TITLE_OVERLAP, TEXT_OVERLAP],
        "compared": is_compared(run),
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
    more = {"score": text.score, "own_id": text.own_id, "url": text.url}
    return entry | {name: value for name, value in more.items() if value is not None}


def shown_title(title: str) -> str:
    """Return a title on one line, of at most TITLE characters."""
    line = " ".join(title.split())
    return line if len(line) <= TITLE else line[:TITLE] + "…"


def site_data(site: str) -> dict[str, object]:
    """Return a site, and whether links to its questions exist."""
    return {"name": site, "linked": link((site, 0)) is not None}


def odds_of(run: Run, rows: list[TableRow]) -> dict[tuple[Key, Key], dict[str, object]]:
    """Return what the evidence adds to the log-odds of the encoder's pairs among `rows`, by their questions.

    Pairs of questions that have left the archive are left out, and all if the archive or the encoder is gone.
    """
    pairs = [ends_of(row) for row in rows if row["source"] == "encoder"]
    if not pairs:
        return {}
    try:
        added = weigh(run, pairs)
    except (DupqError, KeyError):  # KeyError: a run of another version
        return {}
    odds: dict[tuple[Key, Key], dict[str, object]] = {}
    for pair, values in zip(pairs, added.tolist(), strict=True):
        if not any(map(math.isnan, values)):
            shown = [
                [kind, round(value, 3)] for kind, value in zip(WEIGHED, values, strict=True) if abs(value) >= LEAST_ODDS
            ]
            rest = sum(value for value in values if abs(value) < LEAST_ODDS)
            odds[pair] = {"odds": [*shown, ["all else", round(rest, 3)]]}
    return odds


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
