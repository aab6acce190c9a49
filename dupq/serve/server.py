"""The server of `dupq serve`: on 127.0.0.1 only, a thread a connection, and nothing of a request is logged."""

import contextlib
import errno
import logging
import os
import socketserver
import sys
import tempfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dupq.errors import DupqError
from dupq.runs.reader import Run
from dupq.serve import index
from dupq.serve.answers import HEADERS, Answer, Answers, refused
from dupq.serve.clusters import Clusters
from dupq.serve.contents import Contents
from dupq.serve.index import Told
from dupq.serve.page import page_of
from dupq.serve.queries import Queries

_log = logging.getLogger(__name__)
ADDRESS = "127.0.0.1"
_IDLE_SECONDS = 60.0  # until a connection that asks for nothing is closed


class Server(ThreadingHTTPServer):
    """Listens, and has a thread for each connection."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"
    answers: Answers | None = None

    def server_bind(self) -> None:
        """Without http.server's look-up of this machine's name, which may wait for a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """What is wrong in one connection: nothing where the browser has gone, else a fault, which is said."""
        if not isinstance(sys.exception(), OSError):
            _log.error("a request was not answered: this is a fault of dupq; please report it", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Sends what Answers says."""

    server: Server
    protocol_version = default_request_version = "HTTP/1.1"  # what cannot be read is answered with headers too
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Any request that can be read."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read
        assert self.server.answers is not None
        self._send(self.server.answers.answer(self.command, self.path, dict(self.headers.items())))

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself, without repeating any of the request."""
        self.close_connection = True
        self._send(refused(int(code), "not a request that is answered here"))

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("Content-Type", answer.kind)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and answer.status != 204:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: what is searched for is nobody's."""


def serve(run: Run, port: int, kept: str | None, tell: Told, ready: Callable[[str], None]) -> None:
    """Serve `run` at `port` (0: any free one) until a signal ends the process.

    The index is made in the file `kept`, or is there from before; None: in a temporary one that is removed at the end.
    `ready` gets the address. Raises DupqError for a port that is taken, and for what `index.build` does.
    """
    with bound(port) as server, opened(run, kept, tell) as index:
        server.answers = answers_of(run, index)
        ready(f"http://{ADDRESS}:{server.server_port}/")
        server.serve_forever()


def answers_of(run: Run, queries: Queries) -> Answers:
    """The answers of the server of a run with its index."""
    contents = Contents(queries, run)
    lists = {
        "clusters": Clusters(queries).page,
        "cluster": contents.cluster,
        "questions": contents.questions,
        "pairs": contents.pairs,
        "pair": contents.pair,
    }
    return Answers(page_of(run, queries, contents), lists)


def bound(port: int) -> Server:
    """A server at `port` that is yet to get its answers. Raises DupqError if it is taken."""
    try:
        return Server((ADDRESS, port), _Handler)
    except OSError as error:
        taken = "it is taken" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        raise DupqError(f"--port {port}: {taken}; give another one, or 0 for any that is free") from error


@contextlib.contextmanager
def opened(run: Run, kept: str | None, tell: Told) -> Iterator[Queries]:
    """The index of a run, which is made if it is not there; `kept` as in `serve`."""
    with contextlib.ExitStack() as stack:
        path = kept or os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="dupq-serve-")), "index")
        meta = index.read_meta(path, run)
        if meta is None:
            index.build(run, path, tell)
            meta = index.read_meta(path, run)
        if meta is None:
            raise DupqError(f"{run.uri}: has changed while its index was made; start again")
        yield Queries(path, meta)
