"""The server of `dupq serve`: on 127.0.0.1 only, a thread a connection, and nothing of a request is logged.

Refused is what names another host, as DNS rebinding makes a page elsewhere do, and what another page asks for.
"""

import json
import re
import socketserver
import threading
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pyarrow as pa
from markupsafe import Markup

from dupq.archive import table_files
from dupq.clusters.identity import KINDS
from dupq.errors import DupqError
from dupq.report import explorer, page, summary
from dupq.report.counts import at_thresholds, counted
from dupq.report.explorer import QUESTIONS_HELD, Evidence, Text, excerpt, least_probable, script_text, telling
from dupq.report.page import environment
from dupq.runs import queries
from dupq.runs.queries import Queries, open_queries
from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.tables import QUESTIONS

PAGE = 100  # clusters, as SHOWN in static/list.js; further questions and pairs
_WORDS = 32  # of a search, at most
_MEMBERS = "SELECT cluster_id, site, question_id, is_canonical, canonical_reason FROM clusters"
_OF = "cluster_id IN (SELECT cluster_id FROM clusters {} WHERE cluster_size > 1 AND {})"
_SAID = "contains(lower(title), ?) OR question_id::VARCHAR = ? OR concat(site, '/', question_id) = ?"
_TITLED = _OF.format("JOIN questions USING (site, question_id)", f"({_SAID})")
_PAIRED = _OF.format("JOIN pairs ON site = site_left AND question_id = question_id_left", "joined AND {}")
_CHANGED = "cluster_id IN (SELECT cluster_id FROM changes WHERE {})"
_MEANING = f"source = 'encoder' AND title_overlap < {explorer.TITLE_OVERLAP} AND text_overlap < {explorer.TEXT_OVERLAP}"
FILTERS: dict[str, dict[str, str]] = {  # of the explorer's form: conditions on `cluster_stats`
    "size": {"two": "size = 2", "few": "size BETWEEN 3 AND 5", "many": "size BETWEEN 6 AND 20", "most": "size > 20"},
    "certainty": {
        name: f"weakest_link >= {low} AND weakest_link < {high}"
        for name, low, high in (("sure", 0.9, 2), ("likely", 0.7, 0.9), ("fair", 0.5, 0.7), ("doubtful", 0, 0.5))
    },
    "evidence": {name: _PAIRED.format(f"source = '{name}'") for name in ("exact", "near_duplicate", "encoder")},
    "change": {"any": _CHANGED.format("true"), **{kind: _CHANGED.format(f"kind = '{kind}'") for kind in KINDS}},
    "meaning": {"true": _PAIRED.format(_MEANING)},
}
FILTERS["evidence"]["known"] = _PAIRED.format("known_link")
_BY = ("size DESC, cluster_id", "weakest_link, cluster_id", "weakest_link DESC, cluster_id")
_IN_TURN = ", ".join(f"3 * row_number() OVER (ORDER BY {order}) + {place}" for place, order in enumerate(_BY))
ORDERS = dict(zip(("telling", "largest", "least", "most"), (f"least({_IN_TURN})", *_BY), strict=True))
Asked = Mapping[str, str]
Shown = dict[str, object]
# Why the canonical question is that; the places of the questions, that one first; the most telling of the pairs between
# the first of them; and the other pairs that join, the least probable first.
_Cluster = tuple[str | None, dict[Key, int], list[TableRow], list[TableRow]]


class RequestError(DupqError):
    """A request that the scripts never make, or for what is not there."""


class Contents:
    """The contents of a run. Each public method answers the request of its name."""

    def __init__(self, run: Run, found: Queries) -> None:
        """`found` has pairs, clusters, cluster_stats and questions, and changes if the run has them."""
        self.run, self._found, self._judging = run, found, threading.Lock()
        sites = run.metrics.get("sites") or [row["site"] for row in found.rows("SELECT DISTINCT site FROM clusters")]
        self._sites = sorted(sites)
        self._cluster, self._evidence = lru_cache(16)(self._read), Evidence(run)

    def clusters(self, asked: Asked) -> Shown:
        """The clusters from `from` on, how many there are, and whether the one that is open is among them."""
        words = asked.get("search", "").lower().split()[:_WORDS]
        parts, values = ["size > 1", *[_TITLED] * len(words)], [value for word in words for value in 3 * [word]]
        parts += [_chosen(conditions, asked[name]) for name, conditions in FILTERS.items() if asked.get(name)]
        if asked.get("site"):
            parts.append(_OF.format("", "site = ?"))
            values.append(self._key(asked["site"])[0])
        where, start = " AND ".join(parts), _whole(asked.get("from", "0"))
        order = _chosen(ORDERS, asked.get("sort") or "telling")
        told = "count(*) OVER () AS total, bool_or(cluster_id = ?) OVER () AS is_open"
        sql = f"SELECT *, {told} FROM cluster_stats WHERE {where} ORDER BY {order} LIMIT {PAGE} OFFSET {start}"
        rows = self._found.rows(sql, asked.get("open", ""), *values)
        first = rows[0] if rows else {"total": 0, "is_open": False}
        return {"total": first["total"], "entries": self._entries(rows), "isOpenFound": first["is_open"]}

    def cluster(self, asked: Asked) -> Shown:
        """The first questions of a cluster, and the most telling of the pairs between these."""
        reason, places, first, _ = self._cluster(asked.get("id"))
        pairs = [explorer.pair_data(pair, places) for pair in first]
        return {"reason": reason, "questions": self._questions([*places][:QUESTIONS_HELD]), "pairs": pairs}

    def more(self, asked: Asked) -> Shown:
        """The questions of a cluster from `from` on, and of its pairs those that `cluster` does not show."""
        start, (_, places, _, others) = _whole(asked.get("from", "0")), self._cluster(asked.get("id"))
        pairs = self._with_ends(others[start : start + PAGE], places)
        return {"questions": self._questions([*places][start : start + PAGE]), "pairs": pairs}

    def pair(self, asked: Asked) -> Shown:
        """Two questions with their texts, and what speaks for the pair, if they are one."""
        (left, right), rows = self._pair(asked)
        texts = self._texts((left, right), "body_html")
        sides = {"left": self._shown(left, texts), "right": self._shown(right, texts)}
        return {**sides, "evidence": self._evidence.of(rows[0], texts) if rows else ""}

    def odds(self, asked: Asked) -> Shown:
        """What each kind of evidence adds to the log-odds of a pair of the encoder; nothing of another one."""
        _, rows = self._pair(asked)
        return next(iter(explorer.odds_of(self.run, rows).values()), {})

    def question(self, asked: Asked) -> Shown:
        """A question by SITE/ID, or by its id, its cluster, and its likeliest pairs with their probabilities."""
        site, _, number = asked.get("id", "").strip().rpartition("/")
        columns = "site, question_id, cluster_id AS cluster, cluster_size AS size"
        found = self._found.rows(f"SELECT {columns} FROM clusters WHERE question_id = ?", _whole(number))
        if len(rows := [row for row in found if site in ("", row["site"])]) != 1:
            raise RequestError("several sites have it: give SITE/ID" if rows else "no such question is in this run")
        key = (rows[0]["site"], rows[0]["question_id"])
        ends = [f"SELECT * FROM pairs WHERE site_{side} = ? AND question_id_{side} = ?" for side in ("left", "right")]
        order = "ORDER BY probability DESC, question_id_left, question_id_right, source"
        pairs = self._found.rows(f"{' UNION ALL '.join(ends)} {order} LIMIT {PAGE}", *key, *key)
        return {**rows[0], "question": self._questions([key])[0], "pairs": self._with_ends(pairs, {key: 0})}

    def steps(self, _: Asked) -> Shown:
        """What the slider shows. All pairs are read."""
        return {"steps": at_thresholds(self.run, counted(self.run))}

    def verdict(self, asked: Asked) -> Shown:
        """Write a verdict on two questions, as `dupq review` does."""
        keys = self._ends(asked)
        texts = self._texts(keys)
        with self._judging:
            titles = {key: texts[key].title if key in texts else None for key in keys}
            queries.judge(self.run, titles, asked.get("verdict", ""))
        return {}

    def page(self) -> Shown:
        """What the page itself holds: the run, its sites, and the pairs to be judged, without texts."""
        review, work = queries.asked(self.run), queries.unjudged(self.run)
        keys = dict.fromkeys(key for ends in (*(pair[:2] for pair in review), *map(ends_of, work)) for key in ends)
        places = {key: place for place, key in enumerate(keys)}
        return {
            **explorer.run_data(self.run),
            "count": len(self.run.cluster_stats),
            "sites": [explorer.site_data(site) for site in self._sites],
            "questions": self._questions(keys),
            "review": [[places[pair.left], places[pair.right], pair.verdict] for pair in review],
            "worklist": [explorer.to_judge(row, places.__getitem__) for row in work],
            "verdicts": queries.verdicts_file(self.run),
        }

    def _entries(self, rows: list[TableRow]) -> list[Shown]:
        """What the list shows of clusters: as in static/local.js."""
        members = self._among(f"{_MEMBERS} WHERE cluster_id", [row["cluster_id"] for row in rows])
        home = {(row["site"], row["question_id"]): row["cluster_id"] for row in members}
        heads = {row["cluster_id"]: (row["site"], row["question_id"]) for row in members if row["is_canonical"]}
        questions = dict(zip(heads, self._questions(heads.values()), strict=True))
        pairs: dict[str, list[TableRow]] = {cluster_id: [] for cluster_id in heads}
        columns = "site_left, question_id_left, site_right, question_id_right, source"
        for pair in self._joined(home, f"{columns}, coalesce({_MEANING}, false) AS meaning"):
            pairs[home[ends_of(pair)[0]]].append(pair)
        changes = explorer.changes(self.run, [*heads])
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
        places = {(row["site"], row["question_id"]): place for place, row in enumerate(members)}
        edges = least_probable(self._joined(places, "*"))
        first = telling([row for row in edges if all(places[end] < QUESTIONS_HELD for end in ends_of(row))])
        return members[0]["canonical_reason"], places, first, [row for row in edges if row not in first]

    def _joined(self, keys: Collection[Key], columns: str) -> list[TableRow]:
        """The pairs that join some questions, by their left ends."""
        select = f"SELECT {columns} FROM pairs WHERE joined AND question_id_left"
        return [row for row in self._among(select, [number for _, number in keys]) if ends_of(row)[0] in keys]

    def _questions(self, keys: Iterable[Key]) -> list[Shown]:
        """What is shown of questions without their bodies; what is gone from the archive is said to be."""
        keys = list(keys)
        texts = self._texts(keys)
        return [self._shown(key, texts) for key in keys]

    def _texts(self, keys: Collection[Key], body: str = "''") -> dict[Key, Text]:
        """The texts of questions that are in the archive still, with the column `body`."""
        select = f"SELECT site, question_id, title, score, tags, {body} AS body FROM questions WHERE question_id"
        return {
            (row["site"], row["question_id"]): Text(row["title"], excerpt(row["body"]), row["score"], row["tags"] or [])
            for row in self._among(select, [number for _, number in keys])
        }

    def _shown(self, key: Key, texts: Mapping[Key, Text]) -> Shown:
        return explorer.question_data(self._sites.index(key[0]), key[1], texts.get(key))

    def _among(self, select: str, values: Iterable[object], order: str = "") -> list[TableRow]:
        """The rows of a query that ends with a column, where that is one of `values`."""
        own = list(dict.fromkeys(values))
        return self._found.rows(f"{select} IN ({', '.join('?' * len(own)) or 'NULL'}) {order}", *own)

    def _with_ends(self, rows: list[TableRow], places: Mapping[Key, int]) -> list[Shown]:
        """Pairs with their questions, in the order of `places`; a question without a place comes last."""
        known = [{end: places.get(end, len(places)) for end in ends_of(row)} for row in rows]
        questions = iter(self._questions(key for own in known for key in sorted(own, key=own.__getitem__)))
        return [
            {
                **explorer.pair_data(row, own),
                "joined": row["joined"],
                "questions": [next(questions), next(questions)],
            }
            for row, own in zip(rows, known, strict=True)
        ]

    def _pair(self, asked: Asked) -> tuple[tuple[Key, Key], list[TableRow]]:
        """Return the two questions as they were asked for, and their row of `pairs`, if there is one."""
        ends = self._ends(asked)
        columns = "site_left = ? AND question_id_left = ? AND site_right = ? AND question_id_right = ?"
        values = (value for key in sorted(ends) for value in key)
        return ends, self._found.rows(f"SELECT * FROM pairs WHERE {columns} ORDER BY source LIMIT 1", *values)

    def _ends(self, asked: Asked) -> tuple[Key, Key]:
        return self._key(asked.get("left", "")), self._key(asked.get("right", ""))

    def _key(self, text: str) -> Key:
        """What the scripts call a question by: the place of its site, a dot, and its id."""
        place, number = (_whole(part or "0") for part in text.partition(".")[::2])
        if place >= len(self._sites):
            raise RequestError("no such site")
        return self._sites[place], number


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise RequestError(f"{text[:50]!r}: a whole number expected")
    return int(text)


def _chosen(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise RequestError(f"{name[:50]!r}: {', '.join(values)} expected")
    return values[name]


ADDRESS = "127.0.0.1"
_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)  # any port: a tunnel has its own
_FIELDS = 30  # of a request, at most
_ANSWERED = {("GET", name) for name in ("page", "clusters", "cluster", "more", "pair", "odds", "question", "steps")}
_ANSWERED |= {("POST", "verdict")}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """An answer as it is sent."""

    status: int
    body: bytes
    kind: str = "application/json; charset=utf-8"
    policy: str = "default-src 'none'"


def answer(contents: Contents, request: Mapping[str, Any]) -> Answer:
    """Answer a request (a WSGI environment); errors too are one line."""
    method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
    if not _HOST.fullmatch(request.get("HTTP_HOST", "")):
        return _json(403, {"error": "this server answers to loopback names only, such as localhost and 127.0.0.1"})
    name = "page" if path == "/" else path.removeprefix("/api/") if path.startswith("/api/") else ""
    if (method, name) not in _ANSWERED:
        return _json(404, {"error": "nothing is here"})
    is_form = method == "POST" and request.get("CONTENT_TYPE") != "application/json"  # which a form cannot be
    is_theirs = name != "page" and request.get("HTTP_SEC_FETCH_SITE", "none") not in ("same-origin", "none")
    if is_form or is_theirs:
        return _json(403, {"error": "another page may not ask for this"})
    try:
        asked = dict(urllib.parse.parse_qsl(request["QUERY_STRING"], max_num_fields=_FIELDS, errors="strict"))
        return page_of(contents) if name == "page" else _json(200, getattr(contents, name)(asked))
    except (DupqError, ValueError) as error:  # also no UTF-8, or too many fields
        is_ours = isinstance(error, DupqError) and not isinstance(error, RequestError)
        return _json(500 if is_ours else 400, {"error": " ".join(str(error).split())})


def _json(status: int, value: Mapping[str, object]) -> Answer:
    return Answer(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def page_of(contents: Contents) -> Answer:
    """The page, which asks this server for clusters, and nobody else for anything."""
    run, held = contents.run, contents.page()
    script, css = page.page_script("served/remote"), page.page_styles()
    policy = page.policy(script, css, also="; connect-src 'self'")
    safe = {"script": Markup(script), "css": Markup(css), "data": Markup(script_text(held)), "policy": policy}
    said = {"explorer": held, "links_found": None, "verdicts_command": summary.with_verdicts(run)}
    html = environment().get_template("served.html.jinja").render(run=run, **safe, **said)
    return Answer(200, html.encode(), "text/html; charset=utf-8", policy)


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Listens, and has a thread for each connection."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Without http.server's look-up of this machine's name, which may wait for a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = 60.0  # seconds until a connection that asks for nothing is closed
    server_version, sys_version = "dupq", ""
    error_message_format, error_content_type = "not a request that is answered here", "text/plain"  # and not an echo

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: requests hold what is searched for."""


def serve(run: Run, port: int, ready: Callable[[Server], None]) -> None:
    """Serve `run` at `port` (0: any free one) until a signal ends the process; `ready` is called once it listens.

    Raises DupqError for a port that is taken, and for a table that is missing.
    """
    names = ["pairs", "clusters", "cluster_stats", *["changes"] * explorer.is_compared(run)]
    views: dict[str, Any] = {name: getattr(run, name).dataset for name in names}
    views["questions"] = QUESTIONS.append(pa.field("site", pa.string())).empty_table()
    if table_files(run.manifest["inputs"]["questions"]):  # else all questions are shown as gone
        views["questions"] = run.questions.dataset
    try:
        server = Server((ADDRESS, port), _Handler)
    except OSError as error:
        raise DupqError(f"--port {port}: {error.strerror}; give another one, or 0 for any that is free") from error
    with server, open_queries(run, views) as found:
        contents = Contents(run, found)

        def application(request: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
            made = answer(contents, request)
            own = {"Content-Security-Policy": f"{made.policy}; frame-ancestors 'none'", "Content-Type": made.kind}
            start(f"{made.status} -", [*(_HEADERS | own).items()])
            return [made.body]

        server.set_app(application)
        ready(server)
        server.serve_forever()
