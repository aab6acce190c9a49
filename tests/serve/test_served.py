"""`dupq serve` as a process: in a browser, by hand, and how it ends."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from explored_run import WORK, build_explored_run
from fabricated_run import CS, PAIR, TITLES
from made_clusters import build_many

from dupq import storage
from dupq.errors import TERMINATED
from dupq.evaluation.verdicts import last_verdicts
from dupq.runs.reader import open_run
from dupq.serve.server import Server, serve

COMMAND = [sys.executable, "-c", "from dupq.cli import command; command()", "serve"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Start a server of the explored run with its own temporary folder, and yield its address."""
    folder = tmp_path_factory.mktemp("served")
    run, work = build_explored_run(str(folder)), folder / "work"
    work.mkdir()
    command, env = [*COMMAND, "--run", run, "--port", "0"], {**os.environ, "TMPDIR": str(work)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())  # type: ignore[union-attr]
        assert address
        yield SimpleNamespace(run=run, address=address.group(), port=int(address.group(1)), process=process, work=work)
        process.kill()


@pytest.fixture
def opened(browser: Any, served: SimpleNamespace) -> Iterator[Any]:
    """Yield the page, then check that it had no errors and made requests only to the server."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: request.url.startswith((served.address, "blob:")) or wrong.append(request.url))
    page.goto(served.address)
    page.wait_for_selector("#cluster h3", timeout=20_000)
    yield page
    context.close()
    assert not wrong


def say(opened: Any, found: str) -> None:
    opened.locator("#found", has_text=found).wait_for(timeout=10_000)


FILTERS = [("size", "most", 1), ("evidence", "exact", 1), ("change", "any", 3), ("site", "2", 2)]


def test_the_explorer_searches_filters_opens_and_compares_by_asking_the_server(opened: Any) -> None:
    say(opened, "4 clusters found")
    for name, value, count in FILTERS:
        opened.select_option(f"select[name={name}]", value)
        say(opened, f"{count} cluster{'' if count == 1 else 's'} found")
        opened.click("#filters button[type=reset]")
        say(opened, "4 clusters found")
    opened.select_option("select[name=change]", "new")
    say(opened, "1 cluster found")
    shown = opened.locator("#cluster")
    shown.locator(f"ol a[href='https://{PAIR[0][0]}/questions/{PAIR[0][1]}']").wait_for()
    shown.locator(".evidence").wait_for()
    assert "titles share" in shown.locator(".evidence").inner_text()


def test_a_question_is_looked_up(opened: Any) -> None:
    opened.fill("#question input", f"{CS}/34")
    opened.click("#question button")
    opened.locator("#looked-up", has_text="in no cluster").wait_for()
    assert opened.locator("#looked-up td").all_inner_texts()[1:4] == ["0.790", "not joined", "Encoder"]
    odds = '{"odds": [["titles", 1.5], ["all else", -0.2]]}'
    opened.route("**/api/odds?*", lambda route: route.fulfill(body=odds, content_type="application/json"))
    opened.click("#looked-up button.pair")
    opened.locator("#looked-up .side").nth(1).wait_for()
    assert "titles: 1.50; all else: -0.20" in opened.locator("#looked-up .waterfall").get_attribute("aria-label")
    match = {"site": CS, "question_id": 31, "title": TITLES[(CS, 1)], "link": None}
    sure, unknown = {"probability": 0.5, "evidence": "<b>"}, {"title": None, "probability": None, "evidence": None}
    shown = json.dumps({"questions": [match | sure, match | unknown]})
    opened.route("**/similar?*", lambda route: route.fulfill(body=shown, content_type="application/json"))
    opened.focus("#new input")
    opened.keyboard.type("Is <b> text?")
    opened.keyboard.press("Enter")
    matches = opened.locator("#matches li")
    matches.nth(1).wait_for()
    assert matches.all_inner_texts()[0].split("\n")[0] == f"0.500 {TITLES[(CS, 1)]} Look up"
    assert "No longer in the archive" in matches.nth(1).inner_text()
    matches.first.locator("button").click()
    opened.locator("#looked-up", has_text="in a cluster of 3 questions").wait_for()


def test_the_worklist_is_judged_into_the_file_of_the_next_run(opened: Any, served: SimpleNamespace) -> None:
    opened.fill("input[name=search]", f"{CS}/34")
    say(opened, "0 clusters found, and 1 pair to judge")
    opened.click("#filters button[type=reset]")
    say(opened, "4 clusters found")
    opened.locator("#work-panel").focus()
    for key, count in (("d", "1 judged: 0 same, 1 different"), ("s", "2 judged: 1 same, 1 different")):
        opened.keyboard.press(key)
        opened.locator("#work-progress", has_text=count).wait_for()
    assert opened.locator("#work-export").count() == 0
    verdicts = [f"{Path(served.run).parent}/verdicts.tsv"]
    given = {(row[:2], row[2:4]): row[4] for row in last_verdicts(verdicts)[0]}
    assert given == {tuple(sorted(pair)): word for pair, word in zip(WORK, ["different", "same"], strict=False)}
    opened.keyboard.press("z")
    opened.locator("#work-progress", has_text="1 judged: 0 same, 1 different").wait_for()
    assert len(last_verdicts(verdicts)[0]) == 1
    opened.keyboard.press("s")
    opened.locator("#work-progress", has_text="2 judged").wait_for()
    opened.locator("#cluster [role=group] button", has_text="Different").click()  # a pair of the opened cluster
    opened.locator("#cluster [aria-pressed=true]", has_text="Different").wait_for()
    assert len(last_verdicts(verdicts)[0]) == 3
    opened.reload()  # what was judged is not asked again
    opened.locator("#work-progress", has_text="Pair 1 of 1. 0 judged").wait_for()
    opened.click("#work-decided summary")
    opened.locator("#work-decisions li", has_text="Same").get_by_text("Take back").click()
    opened.locator("#work-decided", has_text="Your 2 decisions").wait_for()
    assert [verdict.verdict for verdict in last_verdicts(verdicts)[0]] == ["different"] * 2


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a server in this process, of a run with more clusters than one page."""
    folder = tmp_path_factory.mktemp("many")
    run, listening = open_run(build_many(str(folder))), queue.Queue[Server]()
    thread = threading.Thread(target=serve, args=(run, "127.0.0.1", 0, listening.put))
    thread.start()
    many = listening.get(timeout=20)
    yield f"http://localhost:{many.server_port}/"
    many.shutdown()
    thread.join()


def test_the_rest_of_a_list_is_got_by_pressing_the_button(browser: Any, many: str, axe: Any) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(many)
    say(page, "300 clusters found")
    page.wait_for_selector("#cluster h3")
    page.locator("#cluster [role=group] button", has_text="Unsure").wait_for()  # though no pair of a worklist is left
    assert page.locator("#cluster .members li").count() == 40
    page.click("#cluster .members button")
    page.locator("#cluster .members li").nth(59).wait_for()
    assert page.locator("#cluster .members button").count() == 0
    shown = page.locator("#cluster button.pair").count()
    page.click("#cluster .pairs-box > button")
    page.locator("#cluster button.pair").nth(shown).wait_for()
    page.locator("#cluster button.pair").last.click()
    page.locator("#cluster .side .excerpt", has_text="Body").nth(1).wait_for()
    for count in (200, 300):
        page.click("#cluster-list .more")
        page.locator("#cluster-list .cluster").nth(count - 1).wait_for()
    assert page.locator("#cluster-list .more").count() == 0
    faults = axe.run(page).response["violations"]
    page.close()
    assert not [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in faults]


def asked(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /api/clusters HTTP/1.1", 200),
        ("GET /../../../etc/passwd HTTP/1.1", 404),
        ("GET http://evil.example/ HTTP/1.1", 404),
        ("POST /api/clusters HTTP/1.1", 404),
        ("GET /similar?title=" + "x" * 30_000 + " HTTP/1.1", 413),
        ("\x00\x01 nonsense HTTP/1.1 twice", 0),  # no version of HTTP: an answer without a head
    ],
)
def test_requests_by_hand_are_answered_without_an_echo(served: SimpleNamespace, request_line: str, status: int) -> None:
    host = f"Host: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    head, _, body = asked(served.port, f"{request_line}\r\n{host}".encode()).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.0 {status}".encode() if status else b'{"error":')
    assert not status or status == 200 or set(json.loads(body)) == {"error"}
    assert b"evil" not in body
    assert b"nonsense" not in head + body
    if status in (200, 404):
        assert b"Security-Policy: default-src 'none'; frame-ancestors 'none'" in head
        assert b"X-Content-Type-Options: nosniff" in head


def test_errors_are_one_line(
    served: SimpleNamespace, tmp_path: Path, dupq: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUPQ_TOKEN", raising=False)
    damaged = build_explored_run(str(tmp_path / "damaged"))
    storage.delete_folder(storage.join(damaged, "pairs"))
    taken = f"--host 127.0.0.1 --port {served.port}: Address already in use; give another one"
    for words, code, said in (
        ((served.run, "--port", served.port), 1, taken),
        ((served.run, "--host", "0.0.0.0"), 2, "--host 0.0.0.0: other machines can reach it; set DUPQ_TOKEN"),
        ((served.run, "--host", "no.such.name.invalid"), 1, "--host no.such.name.invalid"),
        ((served.run, "--port", "70000"), 2, ""),
        ((damaged, "--port", "0"), 1, "pairs: no such table"),
    ):
        ended, out, error = dupq("serve", "--run", *words)
        assert (ended, out, error.count("\n")) == (code, "", 1)
        assert error.startswith("error: ")
        assert said in error


def test_it_ends_by_a_signal_and_leaves_nothing(served: SimpleNamespace) -> None:
    """One of the last tests, since it ends the server."""
    assert list(served.work.iterdir())
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=20) == TERMINATED
    assert not list(served.work.iterdir())


def test_ctrl_c_ends_it_without_an_error(served: SimpleNamespace) -> None:
    command, pipe = [*COMMAND, "--run", served.run, "--port", "0"], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all its processes get it
        said, wrong = process.communicate(timeout=20)
    assert (said, wrong, process.returncode) == ("server ended\n", "", 0)
