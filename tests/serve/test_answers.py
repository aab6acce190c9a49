"""What is answered to requests, without a network: who may ask, for what, and that texts stay texts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from explored_run import build_explored_run
from fabricated_run import CS, LARGE, TITLES, cluster_id
from lxml import html

from dupq import storage
from dupq.report import page as report
from dupq.runs.reader import open_run
from dupq.serve import server
from dupq.serve.answers import Answer, Answers

PORT = 8321
HOST = {"Host": f"127.0.0.1:{PORT}"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_explored_run(str(tmp_path_factory.mktemp("explored")))


@pytest.fixture(scope="module")
def answers(run: str) -> Iterator[Answers]:
    with server.opened(open_run(run), None, lambda *_: None) as index:
        yield server.answers_of(open_run(run), index)


def test_the_page_allows_its_own_script_and_server_and_holds_no_cluster(answers: Answers) -> None:
    page = answers.answer("GET", "/", HOST)
    parsed = html.fromstring(page.body)
    assert page.status == 200
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in page.policy
    assert "unsafe" not in page.policy
    held = json.loads(parsed.get_element_by_id("run-data").text)
    assert held["count"] == 4
    assert "clusters" not in held
    assert len(parsed.xpath("//script[@type='module']")) == len(parsed.xpath("//style")) == 1


def test_the_page_has_the_filters_and_the_sample_of_the_report(answers: Answers, run: str) -> None:
    served, reported = (html.fromstring(text) for text in (answers.answer("GET", "/", HOST).body, report.render(run)))
    for place in ("//form[@id='filters']//*[@name]/@name", "//form[@id='filters']//option/@value"):
        assert served.xpath(place) == reported.xpath(place)
    ours, theirs = (json.loads(parsed.get_element_by_id("run-data").text) for parsed in (served, reported))
    for place, (left, right, verdict) in enumerate(theirs["review"]):
        sides = [[held["questions"][end]["id"] for end in held["review"][place][:2]] for held in (ours, theirs)]
        assert sides[0] == sides[1] == [theirs["questions"][end]["id"] for end in (left, right)]
        assert ours["review"][place][2] == verdict


@pytest.mark.parametrize("name", [f"localhost:{PORT}", f"LOCALHOST:{PORT}", "[::1]", "127.0.0.1:9000"])
def test_loopback_names_are_answered(answers: Answers, name: str) -> None:
    assert answers.answer("GET", "/api/clusters", {"Host": name}).status == 200


@pytest.mark.parametrize(
    "name",
    [
        *("evil.example", f"evil.example:{PORT}", f"localhost.evil.example:{PORT}", "127.0.0.1:x", "localhost:", ""),
        *(f"127.0.0.1.nip.io:{PORT}", f"localhost:{PORT}@evil.example", f"0.0.0.0:{PORT}", f"localhost:{PORT}:{PORT}"),
    ],
)
@pytest.mark.parametrize("target", ["/", "/api/clusters", "/nothing"])
def test_other_hosts_are_refused(answers: Answers, name: str, target: str) -> None:
    refused = answers.answer("GET", target, {"Host": name})
    assert refused.status == 403
    assert TITLES[(CS, 1)].encode() not in refused.body


def test_a_request_without_a_host_is_refused(answers: Answers) -> None:
    assert answers.answer("GET", "/", {}).status == 403


FROM = [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]


@pytest.mark.parametrize(("site", "status"), FROM)
def test_what_another_page_asks_for_is_refused(answers: Answers, site: str, status: int) -> None:
    assert answers.answer("GET", "/api/clusters", {**HOST, "Sec-Fetch-Site": site}).status == status
    assert answers.answer("GET", "/", {**HOST, "Sec-Fetch-Site": site}).status == 200  # a link to the page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(answers: Answers, method: str) -> None:
    assert answers.answer(method, "/api/clusters", HOST).status == 405


@pytest.mark.parametrize(
    "target",
    [
        *(
            "/../manifest.json",
            "/..%2f..%2fetc/passwd",
            "//etc/passwd",
            "/etc/passwd",
            "/manifest.json",
            "/report.html",
        ),
        *(
            "/report.html",
            "http://127.0.0.1/",
            "*",
            "",
            "/api/",
            "/api/../",
            "/api/__init__",
            "/api/cluster/x",
            "/static/main.js",
        ),
    ],
)
def test_no_path_names_a_file(answers: Answers, target: str) -> None:
    found = answers.answer("GET", target, HOST)
    assert found.status == 404
    assert json.loads(found.body) == {"error": "nothing is here"}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("clusters?sort=id;DROP", "telling, largest, least, most expected"),
        ("clusters?size=huge", "two, few, many, most expected"),
        ("clusters?from=-1", "a whole number"),
        ("clusters?from=1e9", "a whole number"),
        ("clusters?site=' OR 1", "a whole number"),
        ("clusters?from=" + "9" * 30, "a whole number"),
        ("clusters?search=%ff", "utf-8"),
        ("cluster?id=nothing", "no such cluster"),
        ("cluster", "no such cluster"),
        ("pair?left=1.1", "a whole number"),
        ("pair?left=99.1&right=1.1", "a whole number"),
        ("pair?left=1.999999999999999999&right=1.1", "a whole number"),
        ("clusters?" + "&".join(["a=1"] * 40), "fields"),
    ],
)
def test_a_wrong_request_is_said_in_one_line(answers: Answers, target: str, says: str) -> None:
    refused = answers.answer("GET", f"/api/{target}", HOST)
    assert refused.status == 400
    assert says in json.loads(refused.body)["error"]
    assert b"\n" not in refused.body


@pytest.mark.parametrize(
    "target", ["clusters?search=alert", f"cluster?id={cluster_id(LARGE)}", "pair?left=1.1&right=1.2"]
)
def test_hostile_titles_leave_as_json_only(answers: Answers, target: str) -> None:
    answer = answers.answer("GET", f"/api/{target}", HOST)
    assert answer.kind == "application/json; charset=utf-8"
    assert answer.policy == "default-src 'none'; frame-ancestors 'none'"
    assert "alert" in json.dumps(json.loads(answer.body))
    page = answers.answer("GET", "/", HOST).body
    assert b"<script>alert" not in page


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    with server.opened(run, None, lambda *_: None) as index:
        answers = server.answers_of(run, index)
        for file in storage.list_files(run.manifest["inputs"]["questions"], ".parquet"):
            storage.write_bytes(file.uri, storage.read_bytes(file.uri)[:100])
        wrong: Answer = answers.answer("GET", "/api/pair?left=1.1&right=1.2", HOST)
    assert wrong.status == 500
    assert "not a readable Parquet file" in json.loads(wrong.body)["error"]
