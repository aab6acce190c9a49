"""The example for GitHub, with a server that answers as its API does, on a made repository of 300 issues."""

import json
import re
import runpy
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import yaml
from inline import without_ray
from shown_commands import ROOT, job_of

from dupq.export import DIGEST, export
from dupq.pipelines.arguments import FromDumpJob
from dupq.pipelines.train import from_dump
from examples.sample.archive import Dice, Language, body_html, plant
from examples.sample.questions import _ODD, _SHARES, answer, compose, meanings

FOLDER = ROOT / "examples/github"
QUICK = ("title_body.epochs=1", "training.epochs=1", "calibration.precision=0.5")
PAGE = "https://github.com/made/repository/issues"
TOKEN = "a-token"
Issue = dict[str, Any]


class Repository:
    """300 issues, the later ones duplicates of earlier ones, and all that is posted."""

    def __init__(self) -> None:
        planted = plant(Language(_SHARES, _ODD, meanings, compose, answer), 300, Dice(3))
        self.original = {number: one.original + 1 for number, one in enumerate(planted, 1) if one.original >= 0}
        self.issues: dict[int, Issue] = {}
        self.comments: dict[int, list[Issue]] = {}
        self.refused: tuple[int, dict[str, str]] | None = None  # status and headers of all answers
        for one in planted:
            self.add(one.title, body_html(one.blocks, "usual"))

    def add(self, title: str, body: str | None) -> int:
        number = len(self.issues) + 1
        address = {"html_url": f"{PAGE}/{number}", "url": f"https://api.github.com/x/{number}"}
        fixed = {"state": "open", "comments": 0, "labels": [{"name": "bug"}], "user": {"login": "somebody"}}
        created = {"created_at": f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"}
        self.issues[number] = {"number": number, "title": title, "body": body, **address, **fixed, **created}
        return number

    def answer(self, path: str, query: dict[str, list[str]], posted: Issue | None) -> Any:
        number, part = re.fullmatch(r"/repos/made/repository/issues(?:/(\d+))?(/comments)?", path).groups()  # type: ignore[union-attr]
        if part:
            comments = self.comments.setdefault(int(number), [])
            return comments if posted is None else comments.append(posted) or posted
        if number:
            return self.issues[int(number)]
        if posted is not None:
            return self.issues[self.add(**posted)]
        assert query["state"] == ["all"]
        return [*self.issues.values()][::-1]


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    repository = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            posted = json.loads(self.rfile.read(size)) if size else None
            status, headers = repository.refused or (200, {})
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status = 401
            found: Any = {"message": "refused"}
            if status == 200:
                address = urlparse(self.path)
                query = parse_qs(address.query)
                found = repository.answer(address.path, query, posted)
                if isinstance(found, list):
                    page, size = int(query.get("page", ["1"])[-1]), int(query["per_page"][0])
                    if len(found) > page * size:
                        following = f"http://{self.headers['Host']}{address.path}?{address.query}&page={page + 1}"
                        headers = {"Link": f'<{following}>; rel="next", <{following}>; rel="last"'}
                    found = found[(page - 1) * size : page * size]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("GITHUB_REPOSITORY", "made/repository")
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("PROBABILITY", "0.2")
        yield repository
        server.shutdown()


@pytest.fixture(scope="module")
def script() -> dict[str, Callable[[Any], str]]:
    return runpy.run_path(str(FOLDER / "duplicates.py"))


def test_a_new_issue_gets_one_comment_that_names_earlier_ones(
    github: Repository, script: dict[str, Callable[[Any], str]]
) -> None:
    duplicate = max(github.original)
    assert script["comment"](duplicate).startswith(f"#{duplicate} got a comment")
    ((only,),) = github.comments.values()
    named = [int(number) for number in re.findall(r"^- #(\d+) \(probability [01]\.\d\d\)$", only["body"], re.MULTILINE)]
    assert 1 <= len(named) <= 3
    assert github.original[duplicate] in named
    assert max(named) < duplicate
    github.issues[duplicate] |= {"title": "edited", "body": None}
    for _ in range(2):
        assert "already" in script["comment"](duplicate)
    assert len(github.comments[duplicate]) == 1

    unlike = github.add("zzz qqq", None)
    assert script["comment"](unlike) == f"#{unlike} is like no earlier issue"
    github.issues[unlike]["state"] = "closed"
    assert "no open issue" in script["comment"](unlike)
    assert github.comments[unlike] == []
    assert all(issue["state"] == "open" for number, issue in github.issues.items() if number != unlike)


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}, "rate limit is reached; run it again in 1 min"),
        (429, {"retry-after": "90"}, "rate limit is reached; run it again in 2 min"),
        (403, {"x-ratelimit-remaining": "7"}, "403 Forbidden; give the job `permissions: issues: write`"),
        (502, {}, "502 Bad Gateway"),
    ],
)
def test_what_github_refuses_is_one_line(
    status: int, headers: dict[str, str], said: str, github: Repository, script: dict[str, Callable[[Any], str]]
) -> None:
    github.refused = status, headers
    with pytest.raises(SystemExit) as ended:
        script["comment"](300)
    assert said in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
    assert github.comments == {}


def test_the_digest_of_all_issues_is_one_issue(
    github: Repository, script: dict[str, Callable[[Any], str]], tmp_path: Path
) -> None:
    assert script["download"](str(tmp_path / "issues.json")).endswith(": 300 issues")
    with without_ray():
        run = from_dump(FromDumpJob((str(tmp_path / "issues.json"),), str(tmp_path / "out"), "dupq", None, QUICK))
    export(run.uri, "digest", str(tmp_path / "digest"))
    assert script["post"](str(tmp_path / "digest" / DIGEST)) == "#301 is the digest"
    assert script["post"](str(tmp_path / "digest" / DIGEST)) == "#301 is today's digest already"
    digest = github.issues[301]["body"]
    assert "of 300 questions are in" in digest
    named = [[int(number) for number in re.findall(rf"\({PAGE}/(\d+)\)", group)] for group in digest.split("\n## ")[1:]]
    assert len(named) == 10
    alike = [len({github.original.get(number, number) for number in group}) == 1 for group in named]
    assert sum(alike) >= 9, named
    assert script["download"](str(tmp_path / "issues.json")).endswith(": 300 issues")  # not the digest


def test_the_workflow_calls_what_is_there_with_no_more_rights_than_it_needs() -> None:
    workflow = yaml.safe_load((FOLDER / "duplicates.yml").read_text())
    assert workflow[True]["issues"] == {"types": ["opened"]}  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read", "issues": "write"}
    lines = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    calls = [line.split()[2] for line in lines if "duplicates.py" in line]
    assert calls == ["comment", "download", "post"]
    assert all(job_of(re.sub(r"\$\(.*\)", "", line)) for line in lines if line.startswith("dupq "))
    assert not any("${{" in line for line in lines)  # what others write never becomes a part of a command
