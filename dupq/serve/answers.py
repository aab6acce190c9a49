"""What is answered to a request, without the network: the page, and the JSON that its scripts ask for.

Texts of questions leave as JSON or escaped, never as markup, and no path of a request names a file. Requests that name
another host than loopback are refused, as a page elsewhere whose name is made to mean this machine would send them (DNS
rebinding), and so are those that another page makes.
"""

import json
import re
import sqlite3
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dupq.errors import DupqError, StorageError
from dupq.serve.asked import RequestError
from dupq.serve.page import Page

_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)  # any port: a tunnel has its own
_LONGEST, _FIELDS = 20_000, 30  # characters of a request's target, and what it asks for, at most
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
Ask = Callable[[dict[str, str]], dict[str, object]]


class Answer(NamedTuple):
    """An answer as it is sent, but for its length."""

    status: int
    kind: str  # content type
    body: bytes
    policy: str = _NOTHING


class Answers:
    """The answers of a server."""

    def __init__(self, page: Page, lists: Mapping[str, Ask]) -> None:
        """`lists` are what the scripts ask for, by the name behind `/api/`."""
        self._page, self._lists = page, lists

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a request; errors too are one line."""
        if not _HOST.fullmatch(headers.get("Host") or ""):
            return refused(403, "this server answers to loopback names only, such as localhost and 127.0.0.1")
        if method not in ("GET", "HEAD"):
            return refused(405, "only GET and HEAD are answered")
        if len(target) > _LONGEST:
            return refused(414, "the address is too long")
        path, _, query = target.partition("?")
        if path == "/":
            return Answer(200, "text/html; charset=utf-8", self._page.html.encode(), self._page.policy)
        if path == "/favicon.ico":
            return Answer(204, "text/plain", b"")
        ask = self._lists.get(path.removeprefix("/api/")) if path.startswith("/api/") else None
        if ask is None:
            return refused(404, "nothing is here")
        if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return refused(403, "another page may not ask for this")
        return _listed(ask, query)


def _listed(ask: Ask, query: str) -> Answer:
    try:
        asked = dict(urllib.parse.parse_qsl(query, max_num_fields=_FIELDS, errors="strict"))
    except ValueError as error:  # not UTF-8, or too many fields
        return refused(400, str(error))
    try:
        return _json(200, ask(asked))
    except RequestError as error:
        return refused(400, str(error))
    except (DupqError, sqlite3.Error) as error:
        return refused(503 if isinstance(error, StorageError) else 500, str(error))


def refused(status: int, why: str) -> Answer:
    """An answer that says in one line why there is no other."""
    return _json(status, {"error": " ".join(why.split())})


def _json(status: int, value: Mapping[str, object]) -> Answer:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Answer(status, "application/json; charset=utf-8", body.encode("utf-8", "replace"))
