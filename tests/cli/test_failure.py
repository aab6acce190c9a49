"""Whoever is to be told of a failure is told, and no failing hook hides the error: the jobs as a user starts them."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Hook(HTTPServer):
    """Takes one webhook after the other."""

    answer = 204
    got: list[bytes]


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.got.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook(("127.0.0.1", 0), _Handler) as server:
        server.got = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def failing(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A job whose dump is missing."""
    command = [sys.executable, str(ROOT / "jobs/ingest.py"), "--dump", f"{folder}/none.7z", "--output", f"{folder}/out"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_a_failure_is_told_to_the_command_and_to_the_webhook(tmp_path: Path, hook: Hook) -> None:
    took = tmp_path / "took.json"
    command = f"{sys.executable} -c \"import sys; open('{took}', 'w').write(sys.stdin.read())\""
    url = f"http://127.0.0.1:{hook.server_port}/secret"
    ended = failing(tmp_path, "--on-failure", command, "--webhook", url)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    told = json.loads(took.read_text())
    assert (told["job"], told["run"], told["exit_code"]) == ("ingest", None, 1)
    assert ended.stderr == f"error: {told['error']}\n"
    assert [json.loads(content) for content in hook.got] == [told]


def test_hooks_that_fail_are_warnings_and_do_not_hide_the_error(tmp_path: Path, hook: Hook) -> None:
    hook.answer = 500
    url = f"http://127.0.0.1:{hook.server_port}/secret"
    ended = failing(tmp_path, "--on-failure", "/nowhere/command", "--webhook", url, "--log", "json")
    assert ended.returncode == 1
    (error,) = [json.loads(line) for line in ended.stderr.splitlines()]
    assert error["level"] == "error"
    assert "none.7z" in error["message"]
    warnings = [json.loads(line)["message"] for line in ended.stdout.splitlines()]
    assert [message.split(":")[0] for message in warnings] == ["--on-failure /nowhere/command", "--webhook 127.0.0.1"]
    assert "secret" not in ended.stdout


class _NoHttp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1 << 16)
        self.request.sendall(b"no line of a protocol\r\n\r\n")


def test_an_answer_that_is_no_http_is_a_warning_too(tmp_path: Path) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _NoHttp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ended = failing(tmp_path, "--webhook", f"http://127.0.0.1:{server.server_address[1]}/secret")
        server.shutdown()
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == "warning: --webhook 127.0.0.1: BadStatusLine\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--on-failure", ""),
        ("--on-failure", " "),
        ("--on-failure", "mail 'ops"),
        ("--webhook", "http:///secret"),
        ("--webhook", "http://host:port/secret"),
        ("--webhook", "http://[::1/secret"),
        ("--webhook", "http://me:secret@host/"),
        ("--webhook", "http://host/a secret"),
        ("--webhook", "http://host/secret\u00e9"),
    ],
)
def test_a_hook_that_cannot_be_used_is_refused_before_any_work(options: tuple[str, str], tmp_path: Path) -> None:
    ended = failing(tmp_path, *options)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: argument {options[0]}: ")
    assert ended.stderr.count("\n") == 1
    assert "secret" not in ended.stderr


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    ended = failing(tmp_path, "--webhook", "file:///etc/passwd")
    assert ended.returncode == 2
    assert "an address that begins with http:// or https:// expected" in ended.stderr
