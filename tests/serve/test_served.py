"""`dupq serve` as a process: in a browser, by hand, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from explored_run import ASKED, build_explored_run
from fabricated_run import BAD_SITE, CS, LARGE, PAIR, TITLES, TRAVEL
from made_clusters import build_many

from dupq import storage
from dupq.cli import main
from dupq.errors import TERMINATED
from dupq.evaluation.verdicts import parse_verdicts
from dupq.runs.reader import open_run
from dupq.serve import server

COMMAND = [sys.executable, "-c", "from dupq.cli.start import main; main()", "serve"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A server of the explored run that makes its index in a folder of temporary files; its address."""
    folder = tmp_path_factory.mktemp("served")
    run, work = build_explored_run(str(folder)), folder / "work"
    work.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "--run", run, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(work)},
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
    assert address, said
    yield SimpleNamespace(run=run, address=address.group(), port=int(address.group(1)), process=process, work=work)
    process.kill()
    process.wait()


@pytest.fixture
def opened(browser: Any, served: SimpleNamespace) -> Iterator[Any]:
    """The page. At its end nothing was complained of, and nobody but the server was asked."""
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


FILTERS = [
    *(("size", "most", 1), ("certainty", "sure", 2), ("evidence", "exact", 1), ("evidence", "known", 1)),
    *(("change", "any", 3), ("change", "merged", 1), ("change", "grown", 0)),
]


def test_the_explorer_searches_filters_opens_and_compares_by_asking_the_server(opened: Any) -> None:
    say(opened, "4 clusters found")
    for name, value, count in FILTERS:
        opened.select_option(f"select[name={name}]", value)
        say(opened, f"{count} cluster{'' if count == 1 else 's'} found")
        opened.select_option(f"select[name={name}]", "")
        say(opened, "4 clusters found")
    opened.select_option("select[name=site]", label=TRAVEL)
    say(opened, "2 clusters found")
    opened.click("button[type=reset]")
    say(opened, "4 clusters found")
    opened.select_option("select[name=change]", "new")
    say(opened, "1 cluster found")
    shown = opened.locator("#cluster")
    shown.locator(f"ol a[href='https://{PAIR[0][0]}/questions/{PAIR[0][1]}']").wait_for()
    shown.locator("svg.waterfall").wait_for()
    assert shown.locator("svg.waterfall .label").all_text_contents() == ["Vectors", "<b>bold</b>", "halt", "Score"]


def test_hostile_titles_are_text_and_lead_nowhere(opened: Any) -> None:
    opened.fill("input[name=search]", "<script>alert")
    say(opened, "1 cluster found")
    opened.locator("#cluster", has_text=TITLES[(CS, 1)]).wait_for()
    assert opened.locator("#cluster .members li").count() == len(LARGE)
    opened.fill("input[name=search]", "a copy")
    opened.locator("#cluster", has_text=BAD_SITE).wait_for()
    assert opened.locator("#cluster img, #cluster script, #cluster style, #cluster iframe").count() == 0
    addresses = opened.eval_on_selector_all("#cluster a[href]", "links => links.map(link => link.href)")
    assert not [address for address in addresses if not address.startswith("https://")]


def test_an_open_cluster_stays_while_it_is_found(opened: Any) -> None:
    opened.fill("input[name=search]", "مسألة")
    say(opened, "1 cluster found")
    chosen = opened.locator("#cluster button.pair").nth(2).locator("xpath=self::*[@aria-pressed='true']")
    opened.locator("#cluster button.pair").nth(2).click()
    chosen.wait_for()
    opened.click("button[type=reset]")
    say(opened, "4 clusters found")
    chosen.wait_for()


def test_verdicts_are_exported_as_the_next_run_reads_them(opened: Any, tmp_path: Path) -> None:
    opened.locator("#judge-panel").focus()
    for key in "sds":
        opened.keyboard.press(key)
    assert "4 judged: 2 same, 1 different, 1 unsure" in opened.inner_text("#judge-progress")
    with opened.expect_download() as download:
        opened.click("#judge-export")
    sheet = tmp_path / download.value.suggested_filename
    download.value.save_as(sheet)
    given = {((row[0], row[1]), (row[2], row[3])): row[4] for row in parse_verdicts(sheet.read_text(), str(sheet))}
    assert given == dict(zip(ASKED[::-1], ["same", "different", "same", "unsure"], strict=True))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, in this process, of a run with more than a page holds at once."""
    folder = tmp_path_factory.mktemp("many")
    run = open_run(build_many(str(folder)))
    with server.bound(0) as many, server.opened(run, str(folder / "index"), lambda *_: None) as index:
        many.answers = server.answers_of(run, index)
        thread = threading.Thread(target=many.serve_forever)
        thread.start()
        yield f"http://localhost:{many.server_port}/"
        many.shutdown()
        thread.join()


def test_the_rest_of_a_list_is_got_by_pressing_the_button(browser: Any, many: str, axe: Any) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(many)
    say(page, "300 clusters found")
    page.wait_for_selector("#cluster h3")
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
    faults = [fault for fault in axe.run(page).response["violations"] if fault["impact"] in ("serious", "critical")]
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
        ("HEAD / HTTP/1.1", 200),
        ("GET /../../../etc/passwd HTTP/1.1", 404),
        ("GET http://evil.example/ HTTP/1.1", 404),
        ("POST /api/clusters HTTP/1.1", 405),
        ("BREW / HTTP/1.1", 501),
        ("GET /" + "x" * 70_000 + " HTTP/1.1", 414),
        ("\x00\x01 nonsense HTTP/1.1 twice", 400),
        ("GET / HTTP/3.0", 505),
    ],
)
def test_requests_by_hand_are_answered_with_all_headers_and_without_an_echo(
    served: SimpleNamespace, request_line: str, status: int
) -> None:
    host = f"Host: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    head, _, body = asked(served.port, f"{request_line}\r\n{host}".encode()).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}".encode())
    for header in (b"Security-Policy: default-src 'none'", b"X-Content-Type-Options: nosniff", b"X-Frame-Options"):
        assert header in head
    assert b"evil" not in body
    assert b"Python" not in head
    assert (body == b"") == request_line.startswith("HEAD")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main.main(["serve", *arguments])
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return f"{end.value.code} {said.err}"


def test_errors_are_one_line(served: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = refused(capsys, "--run", served.run, "--port", str(served.port))
    assert taken == f"1 error: --port {served.port}: it is taken; give another one, or 0 for any that is free\n"
    assert "no run is here" in refused(capsys, "--run", str(tmp_path))
    assert refused(capsys, "--run", served.run, "--port", "70000").startswith("2 error: ")
    damaged = build_explored_run(str(tmp_path / "damaged"))
    storage.delete_folder(storage.join(damaged, "pairs"))
    assert "pairs: no such table" in refused(capsys, "--run", damaged, "--port", "0")
    storage.delete(storage.join(damaged, "_SUCCESS"))
    assert "not finished" in refused(capsys, "--run", damaged)


def test_it_ends_by_a_signal_and_leaves_nothing(served: SimpleNamespace) -> None:
    """The last test, as it ends the server."""
    assert list(served.work.iterdir())
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=20) == TERMINATED
    assert not list(served.work.iterdir())
