"""The server of `dupq serve`: on 127.0.0.1 only, a thread a connection, and nothing of a request is logged.

Refused is what names another host, as DNS rebinding makes a page elsewhere do, and what another page asks for.
"""

import json
import re
import socketserver
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pyarrow as pa
from markupsafe import Markup

from dupq.archive import table_files
from dupq.errors import DupqError
from dupq.report import assets, commands
from dupq.report.explorer import choice
from dupq.report.explorer.data import script_text
from dupq.report.page import environment
from dupq.runs.queries import queries
from dupq.runs.reader import Run
from dupq.serve.contents import Contents, RequestError
from dupq.tables import QUESTIONS

ADDRESS = "127.0.0.1"
_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)  # any port: a tunnel has its own
_FIELDS = 30  # of a request, at most
_ANSWERED = {("GET", name) for name in ("page", "clusters", "cluster", "more", "pair", "question", "steps")}
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
    script, css = assets.script("served/remote"), assets.styles()
    policy = assets.policy(script, css, also="; connect-src 'self'")
    safe = {"script": Markup(script), "css": Markup(css), "data": Markup(script_text(held)), "policy": policy}
    said = {"explorer": held, "links_found": None, "verdicts_command": commands.with_verdicts(run)}
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
    names = ["pairs", "clusters", "cluster_stats", *["changes"] * choice.is_compared(run)]
    views: dict[str, Any] = {name: getattr(run, name).dataset for name in names}
    views["questions"] = QUESTIONS.append(pa.field("site", pa.string())).empty_table()
    if table_files(run.manifest["inputs"]["questions"]):  # else all questions are shown as gone
        views["questions"] = run.questions.dataset
    try:
        server = Server((ADDRESS, port), _Handler)
    except OSError as error:
        raise DupqError(f"--port {port}: {error.strerror}; give another one, or 0 for any that is free") from error
    with server, queries(run, views) as found:
        contents = Contents(run, found)

        def application(request: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
            made = answer(contents, request)
            own = {"Content-Security-Policy": f"{made.policy}; frame-ancestors 'none'", "Content-Type": made.kind}
            start(f"{made.status} -", [*(_HEADERS | own).items()])
            return [made.body]

        server.set_app(application)
        ready(server)
        server.serve_forever()
