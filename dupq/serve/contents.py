"""What the server of `dupq serve` answers: each request has a method of its name."""

import queue
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import pyarrow as pa

from dupq.api.encoders import load_encoder
from dupq.api.inputs import Texts, read_texts
from dupq.api.matching import HeldMatcher
from dupq.clusters.identity import KINDS
from dupq.errors import DupqError
from dupq.report import explorer
from dupq.report.explorer import QUESTIONS_HELD, Text
from dupq.runs import queries
from dupq.runs.queries import Queries
from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.system import is_installed

_TOGETHER = 8  # questions that are looked up at once
_TITLE, _TEXT, _MOST = 1_000, 20_000, 50  # of a question: characters, and matches
PAGE = 100  # clusters in an answer, as SHOWN in static/list.js; also questions and pairs of one cluster
_WORDS = 32  # of a search, at most
_MEMBERS = "SELECT cluster_id, site, question_id, is_canonical, canonical_reason FROM clusters"
_HAS = "cluster_id IN (SELECT cluster_id FROM clusters {} WHERE cluster_size > 1 AND {})"
_MATCHES = (
    "contains(lower(title), ?) OR coalesce(lower(own_id), question_id::VARCHAR) = ? "
    "OR lower(concat(site, '/', coalesce(own_id, question_id::VARCHAR))) = ? OR lower(cluster_id) = ?"
)
_NAMED = "(coalesce(own_id, question_id::VARCHAR) = ? OR concat(site, '/', coalesce(own_id, question_id::VARCHAR)) = ?)"
_TITLED = _HAS.format("LEFT JOIN questions USING (site, question_id)", f"({_MATCHES})")
_PAIRED = _HAS.format("JOIN pairs ON site = site_left AND question_id = question_id_left", "joined AND {}")
_CHANGED = "cluster_id IN (SELECT cluster_id FROM changes WHERE {})"
FILTERS: dict[str, dict[str, str]] = {  # the explorer's form, as conditions on `cluster_stats`
    "size": {"two": "size = 2", "few": "size BETWEEN 3 AND 5", "many": "size BETWEEN 6 AND 20", "most": "size > 20"},
    "certainty": {
        name: f"weakest_link >= {low} AND weakest_link < {high}"
        for name, low, high in (("sure", 0.9, 2), ("likely", 0.7, 0.9), ("fair", 0.5, 0.7), ("doubtful", 0, 0.5))
    },
    "evidence": {name: _PAIRED.format(f"source = '{name}'") for name in ("exact", "near_duplicate", "encoder")},
    "change": {"any": _CHANGED.format("true"), **{kind: _CHANGED.format(f"kind = '{kind}'") for kind in KINDS}},
    "meaning": {"true": _PAIRED.format(explorer.MEANING)},
}
FILTERS["evidence"]["known"] = _PAIRED.format("known_link")
SORTS = {"telling": explorer.in_turn(explorer.ORDERS.values()), **explorer.ORDERS}
Parameters = Mapping[str, str]
Shown = dict[str, object]
_Waiting = tuple[Texts, int, Future[list[TableRow]]]  # a question, of how many rows, and these once they are there
# The reason for the canonical question; the questions' indices, the canonical one first; the most telling pairs of the
# first questions; and all other joined pairs, the least probable first.
_Cluster = tuple[str | None, dict[Key, int], list[TableRow], list[TableRow]]


class RequestError(DupqError):
    """A request that the page never makes, or for something that does not exist."""

    def __init__(self, message: str, status: int = 400) -> None:
        """Answer with an HTTP status."""
        super().__init__(message)
        self.status = status


class Lookup:
    """Looks new questions up for all threads, in their order: one thread does, for all together that wait for it."""

    def __init__(self, run: Run) -> None:
        """What is looked up in is read at the first question, and kept in memory."""
        self._matcher = HeldMatcher(run, lru_cache(lambda: load_encoder(run.encoder_uri)))
        self._waiting = queue.SimpleQueue[_Waiting]()
        self._thread = ThreadPoolExecutor(1, initializer=_use_one_core)

    def matches(self, title: str, text: str, k: int) -> list[TableRow]:
        """Return the rows of `Run.match` for a question."""
        found = Future[list[TableRow]]()
        self._waiting.put((read_texts([{"title": title, "text": text}], "auto", "similar"), k, found))
        self._thread.submit(self._answer_waiting)
        return found.result()

    def _answer_waiting(self) -> None:
        """Answer the first _TOGETHER that wait; none may, if they were answered with others."""
        waiting: list[_Waiting] = []
        while len(waiting) < _TOGETHER and not self._waiting.empty():
            waiting.append(self._waiting.get())
        try:
            rows = self._rows([texts for texts, _, _ in waiting], max((k for _, k, _ in waiting), default=1))
        except Exception as error:  # which each of their threads raises
            for _, _, found in waiting:
                found.set_exception(error)
        else:
            for (_, k, found), own in zip(waiting, rows, strict=True):
                found.set_result([row for row in own if row["rank"] <= k])

    def _rows(self, waiting: list[Texts], k: int) -> list[list[TableRow]]:
        """Return the rows for each of some questions."""
        titles, bodies = [texts.titles[0] for texts in waiting], [(texts.bodies or [""])[0] for texts in waiting]
        rows: list[list[TableRow]] = [[] for _ in waiting]
        new = Texts(titles, bodies, pa.array(range(len(rows)), pa.int64()))
        for row in self._matcher.matches(new, k).to_pylist() if waiting else ():
            rows[row.pop("text")].append(row)
        return rows


def _use_one_core() -> None:
    if is_installed("torch"):
        import torch

        torch.set_num_threads(1)  # texts are short: where cores are busy, several threads take five times as long


class Contents:
    """The contents of a run. Each public method answers the request of its name."""

    def __init__(self, run: Run, tables: Queries) -> None:
        """`tables` are those of `explorer.open_tables`."""
        self.run, self._queries, self._judging = run, tables, threading.Lock()
        self._sites = sorted(run.metrics["sites"])
        self._cluster, self._evidence, self._lookup = lru_cache(16)(self._read), explorer.Evidence(run), Lookup(run)

    def clusters(self, parameters: Parameters) -> Shown:
        """Return the clusters from `from` on, their total, and whether the open cluster is one of them."""
        words = parameters.get("search", "").lower().split()[:_WORDS]
        conditions, values = ["size > 1", *[_TITLED] * len(words)], [value for word in words for value in 4 * [word]]
        conditions += [_chosen(choices, parameters[name]) for name, choices in FILTERS.items() if parameters.get(name)]
        if parameters.get("site"):
            conditions.append(_HAS.format("", "site = ?"))
            values.append(self._key(parameters["site"])[0])
        where, start = " AND ".join(conditions), _whole(parameters.get("from", "0"))
        order = _chosen(SORTS, parameters.get("sort") or "telling")
        totals = "count(*) OVER () AS total, bool_or(cluster_id = ?) OVER () AS is_open"
        sql = f"SELECT *, {totals} FROM cluster_stats WHERE {where} ORDER BY {order} LIMIT {PAGE} OFFSET {start}"
        rows = self._queries.rows(sql, parameters.get("open", ""), *values)
        first = rows[0] if rows else {"total": 0, "is_open": False}
        return {"total": first["total"], "entries": self._entries(rows), "isOpenFound": first["is_open"]}

    def cluster(self, parameters: Parameters) -> Shown:
        """Return the first questions of a cluster, and the most telling pairs between them."""
        reason, indices, first, others = self._cluster(parameters.get("id"))
        pairs = [explorer.pair_data(pair, indices) for pair in first]
        shown = {"questions": self._questions([*indices][:QUESTIONS_HELD]), "pairs": pairs}
        return {"reason": reason, **shown, "joined": len(first) + len(others)}

    def more(self, parameters: Parameters) -> Shown:
        """Return the questions of a cluster from `from` on, and the pairs that `cluster` does not show."""
        start, (_, indices, _, others) = _whole(parameters.get("from", "0")), self._cluster(parameters.get("id"))
        pairs = self._with_ends(others[start : start + PAGE], indices)
        return {"questions": self._questions([*indices][start : start + PAGE]), "pairs": pairs}

    def pair(self, parameters: Parameters) -> Shown:
        """Return two questions with their texts, and the evidence if they are a pair."""
        (left, right), rows = self._pair(parameters)
        texts = self._texts((left, right), "body_html")
        sides = {"left": self._shown(left, texts), "right": self._shown(right, texts)}
        return {**sides, "evidence": self._evidence.of(rows[0], texts) if rows else ""}

    def odds(self, parameters: Parameters) -> Shown:
        """Return what each kind of evidence adds to the log-odds of a pair of the encoder; of other pairs nothing."""
        _, rows = self._pair(parameters)
        return next(iter(explorer.odds_of(self.run, rows).values()), {})

    def question(self, parameters: Parameters) -> Shown:
        """Return a question, by SITE/ID or ID (own ids too), with its cluster and its likeliest pairs."""
        text = parameters.get("id", "").strip()
        columns = "site, question_id, cluster_id AS cluster, cluster_size AS size"
        joined = f"clusters LEFT JOIN questions USING (site, question_id) WHERE {_NAMED}"
        rows = self._queries.rows(f"SELECT {columns} FROM {joined}", text, text)
        if len(rows) != 1:
            raise RequestError("several sites have it: give SITE/ID" if rows else "no such question is in this run")
        key = (rows[0]["site"], rows[0]["question_id"])
        ends = [f"SELECT * FROM pairs WHERE site_{side} = ? AND question_id_{side} = ?" for side in ("left", "right")]
        order = "ORDER BY probability DESC, question_id_left, question_id_right, source"
        pairs = self._queries.rows(f"{' UNION ALL '.join(ends)} {order} LIMIT {PAGE}", *key, *key)
        return {**rows[0], "question": self._questions([key])[0], "pairs": self._with_ends(pairs, {key: 0})}

    def similar(self, parameters: Parameters) -> Shown:
        """Return the questions that a new one, with a `title` and a `text`, is likeliest to ask again: of the `k`
        nearest ones, as `Run.match` has them, the likeliest first.
        """
        for name in parameters:
            _chosen({"title": "", "text": "", "k": ""}, name)
        title, text, k = parameters.get("title", ""), parameters.get("text", ""), _whole(parameters.get("k", "10"))
        if len(title) > _TITLE or len(text) > _TEXT:
            raise RequestError(f"at most {_TITLE:,} characters of title and {_TEXT:,} of text are read", 413)
        if not (title + text).strip() or not 1 <= k <= _MOST:
            raise RequestError(f"a title or a text expected, and k from 1 to {_MOST}")
        rows = self._lookup.matches(title, text, k)
        return {"questions": sorted(rows, key=lambda row: -(row["probability"] or 0))}

    def verdict(self, parameters: Parameters) -> Shown:
        """Write a verdict on two questions, as `dupq review` does."""
        keys = self._ends(parameters)
        texts = self._texts(keys)
        with self._judging:
            titles = {key: texts[key].title if key in texts else None for key in keys}
            queries.judge(self.run, titles, parameters.get("verdict", ""))
        return {}

    def page(self) -> Shown:
        """Return the data in the page itself: the run, its sites, and the pairs to judge, without texts."""
        indices, judging = explorer.to_judge(self.run, queries.unjudged(self.run), queries.known_verdicts(self.run))
        return {
            **explorer.run_data(self.run),
            "count": len(self.run.cluster_stats),
            "sites": [explorer.site_data(site) for site in self._sites],
            "questions": self._questions(indices),
            **judging,
            "verdicts": queries.verdicts_file(self.run),
        }

    def _entries(self, rows: list[TableRow]) -> list[Shown]:
        """Return the list's entries of clusters, as in static/local.js."""
        members = self._among(f"{_MEMBERS} WHERE cluster_id", [row["cluster_id"] for row in rows])
        home = {(row["site"], row["question_id"]): row["cluster_id"] for row in members}
        heads = {row["cluster_id"]: (row["site"], row["question_id"]) for row in members if row["is_canonical"]}
        questions = dict(zip(heads, self._questions(heads.values()), strict=True))
        pairs: dict[str, list[TableRow]] = {cluster_id: [] for cluster_id in heads}
        columns = "site_left, question_id_left, site_right, question_id_right, source"
        for pair in self._joined(home, f"{columns}, coalesce({explorer.MEANING}, false) AS meaning"):
            pairs[home[ends_of(pair)[0]]].append(pair)
        changes = explorer.changes(self._queries, [*heads])
        return [
            {
                "cluster": {**explorer.cluster_data(row), "changes": changes.get(row["cluster_id"], [])},
                "question": questions[row["cluster_id"]],
                "sources": sorted({pair["source"] for pair in pairs[row["cluster_id"]]}),
                "meaning": any(pair["meaning"] for pair in pairs[row["cluster_id"]]),
            }
            for row in rows
        ]

    def _read(self, cluster_id: str | None) -> _Cluster:
        order = "ORDER BY is_canonical DESC, site, question_id"
        members = self._among(f"{_MEMBERS} WHERE cluster_id", [cluster_id], order)
        if not members:
            raise RequestError("no such cluster")
        indices = {(row["site"], row["question_id"]): index for index, row in enumerate(members)}
        edges = self._joined(indices, "*", f"ORDER BY {explorer.LEAST_FIRST}")
        first = explorer.telling([row for row in edges if all(indices[end] < QUESTIONS_HELD for end in ends_of(row))])
        return members[0]["canonical_reason"], indices, first, [row for row in edges if row not in first]

    def _joined(self, keys: Collection[Key], columns: str, order: str = "") -> list[TableRow]:
        """Return the joined pairs whose left question is one of `keys`."""
        select = f"SELECT {columns} FROM pairs WHERE joined AND question_id_left"
        return [row for row in self._among(select, [number for _, number in keys], order) if ends_of(row)[0] in keys]

    def _questions(self, keys: Iterable[Key]) -> list[Shown]:
        """Return questions as the page shows them, without bodies; those gone from the archive are marked."""
        keys = list(keys)
        texts = self._texts(keys)
        return [self._shown(key, texts) for key in keys]

    def _texts(self, keys: Collection[Key], body: str = "''") -> dict[Key, Text]:
        """Return the texts of questions that are still in the archive; `body` is a column, or an SQL literal."""
        names = "site, question_id, title, score, tags, own_id, url"
        select = f"SELECT {names}, {body} AS body_html FROM questions WHERE question_id"
        return explorer.texts_of(self._among(select, [number for _, number in keys]))

    def _shown(self, key: Key, texts: Mapping[Key, Text]) -> Shown:
        return explorer.question_data(self._sites.index(key[0]), key[1], texts.get(key))

    def _among(self, select: str, values: Iterable[object], order: str = "") -> list[TableRow]:
        """Return the rows of a query that ends with a column's name, where the column is one of `values`."""
        distinct = list(dict.fromkeys(values))
        return self._queries.rows(f"{select} IN ({', '.join('?' * len(distinct)) or 'NULL'}) {order}", *distinct)

    def _with_ends(self, rows: list[TableRow], indices: Mapping[Key, int]) -> list[Shown]:
        """Return pairs with their questions, in the order of `indices`; a question without an index comes last."""
        ends = [{end: indices.get(end, len(indices)) for end in ends_of(row)} for row in rows]
        questions = iter(self._questions(key for both in ends for key in sorted(both, key=both.__getitem__)))
        return [
            {**explorer.pair_data(row, both), "joined": row["joined"], "questions": [next(questions), next(questions)]}
            for row, both in zip(rows, ends, strict=True)
        ]

    def _pair(self, parameters: Parameters) -> tuple[tuple[Key, Key], list[TableRow]]:
        """Return the two questions in the order of the request, and their row of `pairs`, if any."""
        ends = self._ends(parameters)
        columns = "site_left = ? AND question_id_left = ? AND site_right = ? AND question_id_right = ?"
        values = (value for key in sorted(ends) for value in key)
        return ends, self._queries.rows(f"SELECT * FROM pairs WHERE {columns} ORDER BY source LIMIT 1", *values)

    def _ends(self, parameters: Parameters) -> tuple[Key, Key]:
        return self._key(parameters.get("left", "")), self._key(parameters.get("right", ""))

    def _key(self, text: str) -> Key:
        """Return the question that the page calls SITE.ID, where SITE is the index of its site."""
        index, number = (_whole(digits or "0") for digits in text.partition(".")[::2])
        if index >= len(self._sites):
            raise RequestError("no such site")
        return self._sites[index], number


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise RequestError(f"{text[:50]!r}: a whole number expected")
    return int(text)


def _chosen(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise RequestError(f"{name[:50]!r}: {', '.join(values)} expected")
    return values[name]
