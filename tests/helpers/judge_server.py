"""A chat endpoint on this machine that answers as a test wants, and counts what it was asked."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

Reply = Callable[["Call"], Any]


class Call(NamedTuple):
    """A request to the server."""

    number: int  # from 0
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def questions(self) -> dict[str, dict[str, str]]:
        """A and B as they were sent."""
        return dict(json.loads(self.body["messages"][1]["content"]))

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(sorted(question["title"] for question in self.questions.values()))


class Refusal(NamedTuple):
    """An answer with another status than 200, after which the connection may be cut."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b'{"error": {"message": "no"}}'


CUT = "cut"  # the connection ends without an answer


class JudgeServer:
    """A running server. `reply` returns a reply's content, a whole reply, a Refusal or CUT."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.calls, self.lock = reply, list[Call](), threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with server.lock:
                    call = Call(len(server.calls), body, {k.lower(): v for k, v in self.headers.items()})
                    server.calls.append(call)
                answer = server.reply(call)
                if answer == CUT:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                if isinstance(answer, Refusal):
                    self._send(answer.status, answer.body, answer.headers)
                    return
                whole = answer if isinstance(answer, dict) and "choices" in answer else reply_of(answer, body["model"])
                self._send(200, json.dumps(whole).encode(), {})

            def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def judge_server(reply: Reply) -> Iterator[JudgeServer]:
    server = JudgeServer(reply)
    with server.http:
        threading.Thread(target=server.http.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.http.shutdown()


def answer_text(same: int, differs: str = "", covers: str = "none", odd: bool = False) -> str:
    """An answer as the schema wants it."""
    fields = {"differs": differs, "changes_answer": same < 50, "covers": covers, "same": same, "odd": odd}
    return json.dumps(fields)


def reply_of(content: Any, model: str, finish: str = "stop", used: tuple[int, int] = (100, 20)) -> dict[str, Any]:
    """A chat completion with this content."""
    message = {"role": "assistant", "content": content} if not isinstance(content, dict) else content
    usage = {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}
