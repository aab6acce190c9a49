"""The HTTP server of `dupq serve`: a thread for each of a few connections, and no log of requests.

On loopback it refuses requests that name another host, which is how DNS rebinding works; beyond, those without the
token. It always refuses requests from other pages.
"""

import base64
import hmac
import ipaddress
import json
import os
import re
import socket
import socketserver
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from dupq.errors import DupqError, SettingError
from dupq.report import explorer, page
from dupq.runs.reader import Run
from dupq.serve.contents import Contents

TOKEN = "DUPQ_TOKEN"  # a variable of the environment
_CONNECTIONS = 32  # at a time; more are refused at once
_REST = 32  # times 64 KB that are read of a request that is too long
_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)  # any port: a tunnel has its own
_FIELDS = 30  # of a request, at most
_NAMES = ("clusters", "cluster", "more", "pair", "odds", "question")
_ANSWERED = {  # by what of Contents
    ("GET", "/"): "page",
    ("GET", "/similar"): "similar",
    **{("GET", f"/api/{name}"): name for name in _NAMES},
    ("POST", "/api/verdict"): "verdict",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_BUSY = (
    b'HTTP/1.0 503 -\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\r\n{"error":"too many requests at once"}'
)
_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]  # a socket, but for other kinds of servers


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    body: bytes
    kind: str = "application/json; charset=utf-8"
    policy: str = "default-src 'none'"


class Door(NamedTuple):
    """Who is let in."""

    token: str = ""  # which each request must give; "": none
    is_local: bool = True  # whether only this machine can ask


def answer(contents: Contents, request: Mapping[str, Any], door: Door) -> Answer:
    """Answer a request (a WSGI environment). Errors are JSON with one line."""
    method, name = request["REQUEST_METHOD"], _ANSWERED.get((request["REQUEST_METHOD"], request["PATH_INFO"]))
    if door.is_local and not _HOST.fullmatch(request.get("HTTP_HOST", "")):
        return _json(403, {"error": "this server answers to loopback names only, such as localhost and 127.0.0.1"})
    if door.token and not _gives(request.get("HTTP_AUTHORIZATION", ""), door.token):
        return _json(401, {"error": "the token is missing or wrong"})
    if name is None:
        return _json(404, {"error": "nothing is here"})
    is_form = method == "POST" and request.get("CONTENT_TYPE") != "application/json"  # forms cannot send this type
    is_foreign = name != "page" and request.get("HTTP_SEC_FETCH_SITE", "none") not in ("same-origin", "none")
    if is_form or is_foreign:
        return _json(403, {"error": "another page may not ask for this"})
    try:
        parameters = dict(urllib.parse.parse_qsl(request["QUERY_STRING"], max_num_fields=_FIELDS, errors="strict"))
        if name != "page":
            return _json(200, getattr(contents, name)(parameters))
        html, policy = page.filled("served.html.jinja", contents.run, contents.page(), is_served=True)
        return Answer(200, html.encode(), "text/html; charset=utf-8", policy)
    except (DupqError, ValueError) as error:  # ValueError: not UTF-8, or too many fields
        status = getattr(error, "status", 500 if isinstance(error, DupqError) else 400)
        return _json(status, {"error": " ".join(str(error).split())})


def _gives(header: str, token: str) -> bool:
    """Return whether a header is a token's: as Bearer, or as the password of Basic, for which browsers ask."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    return kind.lower() in ("basic", "bearer") and hmac.compare_digest(value.encode(), token.encode())


def _json(status: int, value: Mapping[str, object]) -> Answer:
    return Answer(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """A WSGI server with a thread per connection, for _CONNECTIONS at a time."""

    daemon_threads, request_queue_size = True, 2 * _CONNECTIONS

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        """Listen at an address."""
        self.address_family, self._room = family, threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without http.server's look-up of this machine's name, which may wait for a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: _Request, client_address: object) -> None:
        """Answer in a new thread; refuse if there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        if isinstance(request, socket.socket):
            with suppress(OSError):
                request.sendall(_BUSY)
        self.close_request(request)

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def shutdown_request(self, request: _Request) -> None:
        """Close a connection, after what else it sends: without that its sender might not see the answer."""
        if isinstance(request, socket.socket):
            with suppress(OSError):
                request.shutdown(socket.SHUT_WR)
                request.settimeout(1.0)
                for _ in range(_REST):
                    if not request.recv(1 << 16):
                        break
        self.close_request(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Print what went wrong, unless the connection broke off or was idle."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = 20.0  # seconds until an idle connection is closed
    server_version, sys_version = "dupq", ""
    # the default format would echo the request
    error_message_format, error_content_type = '{"error":"not a request that is answered here"}', "application/json"

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: requests contain search terms."""


def serve(run: Run, host: str, port: int, ready: Callable[[Server], None]) -> None:
    """Serve `run` at `host` and `port` (0: any free one) until a signal ends the process.

    `ready` is called once it listens. Raises SettingError for a host that other machines reach if there is no token,
    and DupqError for an address that is taken or not this machine's, and for a table that is missing.
    """
    server, door = _open(host, port, os.environ.get(TOKEN, ""))
    with server, explorer.open_tables(run) as tables:
        contents = Contents(run, tables)

        def application(request: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
            sent = answer(contents, request, door)
            own = {"Content-Security-Policy": f"{sent.policy}; frame-ancestors 'none'", "Content-Type": sent.kind}
            own |= {"WWW-Authenticate": 'Basic realm="dupq"'} if sent.status == 401 else {}
            start(f"{sent.status} -", [*(_HEADERS | own).items()])
            return [sent.body]

        server.set_app(application)
        ready(server)
        server.serve_forever()


def _open(host: str, port: int, token: str) -> tuple[Server, Door]:
    """Return a server that listens, and whom it lets in."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = Door(token, ipaddress.ip_address(address[0]).is_loopback)
        if not (door.is_local or token):
            raise SettingError(f"--host {host}: other machines can reach it; set {TOKEN}, which they must then give")
        return Server((str(address[0]), int(address[1])), family), door
    except OSError as error:
        reason = f"{error.strerror}; give another one, or --port 0 for any that is free"
        raise DupqError(f"--host {host} --port {port}: {reason}") from error
