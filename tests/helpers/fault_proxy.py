"""An HTTP proxy before an S3 server, for tests: it does the harm that networks and busy servers do.

    with FaultProxy("http://127.0.0.1:5000") as proxy:
        proxy.faults = [Fault("lost", method="PUT", times=1)]
        ...  # with AWS_ENDPOINT_URL=proxy.address
        assert [request.fault for request in proxy.requests] == ["lost", None]

Requests keep their Host, so a server that checks signatures accepts them. Bodies are held whole.
"""

import contextlib
import http.client
import http.server
import random
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self
from urllib.parse import urlsplit

Kind = Literal["status", "reset", "lost", "truncated", "slow"]
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>made by the proxy</Message></Error>'
_HOP_BY_HOP = {"connection", "content-length", "expect", "keep-alive", "transfer-encoding"}


@dataclass
class Fault:
    """What happens to some of the requests whose method and path (with the query) match.

    status: the answer is `status` with S3's error `code`, and the server sees nothing of the request.
    reset: the connection breaks before the server sees it. lost: the server does it, and the connection breaks.
    truncated: the connection breaks after half of the answer's body (answers without one pass).
    slow: the server does it, and the answer comes `seconds` late.
    """

    kind: Kind
    method: str = ""  # a regular expression, as is `path`
    path: str = ""
    after: int = 0  # so many matching requests pass first
    times: int | None = None  # then it happens so often; None: always
    share: float = 1.0  # to so many of these, drawn from the proxy's seed
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    seen: int = field(default=0, init=False)  # matching requests
    done: int = field(default=0, init=False)  # how often it happened

    def strikes(self, method: str, path: str, dice: random.Random) -> bool:
        """Whether this request is hit; it is counted."""
        if not re.search(self.method, method) or not re.search(self.path, path):
            return False
        self.seen += 1
        if self.seen <= self.after or self.done == self.times or dice.random() >= self.share:
            return False
        self.done += 1
        return True


class Request(NamedTuple):
    """A request that came, and the kind of fault that met it."""

    method: str
    path: str
    fault: Kind | None


class FaultProxy:
    """The proxy, in threads of this process; `faults` may be changed at any time, the first that strikes counts."""

    def __init__(self, backend: str, faults: list[Fault] | None = None, seed: int = 1) -> None:
        """`backend` is the address of the server; by `seed` shares hit the same numbers of requests each time."""
        self.backend = urlsplit(backend)
        self.faults = faults or []
        self.requests: list[Request] = []
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self.creating = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def count(self, method: str = "", path: str = "") -> int:
        """How many requests came that match."""
        with self._lock:
            return sum(bool(re.search(method, one.method) and re.search(path, one.path)) for one in self.requests)

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault that meets this request, which is kept in `requests`."""
        with self._lock:
            fault = next((one for one in self.faults if one.strikes(method, path, self._dice)), None)
            self.requests.append(Request(method, path, fault.kind if fault else None))
            return fault


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: FaultProxy

    def handle_error(self, *_: object) -> None:
        """A client that is gone is none of ours."""

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Close at once, so that a broken connection is a reset and not an end in good order."""
        self.close_request(request)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits until the head has been acknowledged, 40 ms later
    server: _Server

    def _meet(self) -> None:
        body = self._body()
        fault = self.server.proxy.fault_for(self.command, self.path)
        kind = fault.kind if fault else None
        if fault and kind == "status":
            self._answer(fault.status, {"Content-Type": "application/xml"}, _ERROR.format(fault.code).encode())
            return
        if kind == "reset":
            self._break()
            return
        status, headers, content = self._forwarded(body)
        if fault and kind == "slow":
            time.sleep(fault.seconds)
        if kind == "lost":
            self._break()
        elif kind == "truncated" and content and self.command != "HEAD":
            self._answer(status, headers, content, len(content) // 2)
            self._break()
        else:
            self._answer(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _meet  # noqa: N815

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        backend = self.server.proxy.backend
        connection = http.client.HTTPConnection(backend.hostname or "", backend.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        # moto looks whether there is such an object, and then writes: S3 does both at once.
        conditional = "If-None-Match" in self.headers and self.command == "PUT"
        with self.server.proxy.creating if conditional else contextlib.nullcontext():
            try:
                connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, status: int, headers: dict[str, str], content: bytes, cut: int | None = None) -> None:
        """Send `content`, or the first `cut` bytes of it; to a HEAD only how long it would be."""
        named = {name.lower(): value for name, value in headers.items()}
        has_body = self.command != "HEAD"
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)) if has_body else named.get("content-length", "0"))
        self.end_headers()
        self.wfile.write(content[:cut] if has_body else b"")
        self.wfile.flush()

    def _break(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *_: object) -> None:
        """Nothing: tests look at `requests`."""
