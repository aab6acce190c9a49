"""Tell the author of a new GitHub issue which earlier issues are like it, and post the digest of a run.

    duplicates.py comment NUMBER     at most one comment on an issue, whatever happens to it later
    duplicates.py download FILE      all issues as JSON, for `dupq from-dump`
    duplicates.py post FILE          an issue with the digest that `dupq export --to digest` wrote, at most one a day

It closes nothing. GitHub Actions sets the token, the repository and the address in its environment (duplicates.yml).
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dupq

MARK = "<!-- dupq -->"  # in all that is posted here
SHOWN = 3  # issues that a comment names
LONGEST = 65_000  # characters of an issue's text; GitHub takes 65,536
_NEXT = re.compile(r'<([^>]+)>; rel="next"')
Issue = dict[str, Any]


def comment(number: int) -> str:
    """Comment on an open issue that has no comment of this script; return what was done."""
    issue = _call(f"issues/{number}")[0]
    if "pull_request" in issue or issue["state"] != "open" or MARK in (issue["body"] or ""):
        return f"#{number} is no open issue: no comment"
    if any(MARK in (one["body"] or "") for one in _pages(f"issues/{number}/comments?per_page=100")):
        return f"#{number} has its comment already"
    likely = _like(issue, [one for one in _issues() if one["number"] < number])
    if not likely:
        return f"#{number} is like no earlier issue"
    # GitHub shows the title of an issue that an item of a list names
    lines = [f"- #{other} (probability {probability:.2f})" for other, probability in likely]
    _call(f"issues/{number}/comments", {"body": "\n".join([MARK, "These issues may be about the same:", "", *lines])})
    return f"#{number} got a comment that names {len(likely)}"


def _like(issue: Issue, earlier: list[Issue]) -> list[tuple[int, float]]:
    """Return the number and the probability of the earlier issues that are most likely the same, at most SHOWN."""
    texts = [{"id": one["number"], "title": one["title"], "body": one["body"] or ""} for one in (*earlier, issue)]
    least = float(os.environ.get("PROBABILITY", "0.5"))
    pairs = dupq.find_duplicates(texts).pairs.arrow(["left", "right", "probability"]).to_pylist()
    found = [
        (pair["left"] if pair["right"] == issue["number"] else pair["right"], pair["probability"])
        for pair in pairs  # the most probable first
        if issue["number"] in (pair["left"], pair["right"]) and pair["probability"] >= least
    ]
    return found[:SHOWN]


def download(file: str) -> str:
    """Write all issues into a file, without those that this script has posted; return what was done."""
    issues = list(_issues())
    Path(file).write_text(json.dumps(issues))
    return f"{file}: {len(issues)} issues"


def post(file: str) -> str:
    """Post a digest as an issue, unless today's is there already; return what was done."""
    title, text = f"Duplicate issues, {datetime.now(UTC):%Y-%m-%d}", Path(file).read_text()
    if len(text) > LONGEST:
        text = text[:LONGEST].rpartition("\n## ")[0]
    for one in _call("issues?state=all&per_page=100")[0]:  # the newest
        if one["title"] == title and MARK in (one["body"] or ""):
            return f"#{one['number']} is today's digest already"
    return f"#{_call('issues', {'title': title, 'body': f'{MARK}{chr(10)}{text}'})[0]['number']} is the digest"


def _issues() -> Iterator[Issue]:
    for one in _pages("issues?state=all&per_page=100"):
        if "pull_request" not in one and MARK not in (one["body"] or ""):
            yield one


def _pages(path: str) -> Iterator[Issue]:
    address: str | None = path
    while address:
        page, address = _call(address)
        yield from page


def _call(path: str, posted: Issue | None = None) -> tuple[Any, str | None]:
    """Return GitHub's answer, and the address of its next page. Ends the program with one line if it refuses."""
    environment = os.environ
    address = path
    if not path.startswith("http"):
        api = environment.get("GITHUB_API_URL", "https://api.github.com")
        address = f"{api}/repos/{environment['GITHUB_REPOSITORY']}/{path}"
    headers = {"Authorization": f"Bearer {environment['GITHUB_TOKEN']}", "Accept": "application/vnd.github+json"}
    data = None if posted is None else json.dumps(posted).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as answer:
            following = _NEXT.search(answer.headers.get("Link", ""))
            return json.load(answer), following and following[1]
    except urllib.error.HTTPError as error:
        sys.exit(f"GitHub refuses {'to post ' * (data is not None)}{path}: {_why(error)}")
    except OSError as error:
        sys.exit(f"GitHub is not reached: {error}")


def _why(error: urllib.error.HTTPError) -> str:
    headers = error.headers
    if error.code in (403, 429) and (headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers):
        seconds = int(headers.get("retry-after") or int(headers["x-ratelimit-reset"]) - datetime.now(UTC).timestamp())
        return f"its rate limit is reached; run it again in {max(1, -(-seconds // 60))} minutes"
    if error.code in (401, 403, 404):
        return f"{error.code} {error.reason}; give the job `permissions: issues: write`, and its token"
    return f"{error.code} {error.reason}"


if __name__ == "__main__":
    commands = {"comment": lambda number: comment(int(number)), "download": download, "post": post}
    print(commands[sys.argv[1]](sys.argv[2]))
