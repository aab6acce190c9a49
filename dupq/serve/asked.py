"""What the explorer's filters ask for, as the condition of a query on the index."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from dupq.clusters.identity import KINDS
from dupq.errors import DupqError
from dupq.serve.staging import SOURCES

SIZES = {"two": (2, 2), "few": (3, 5), "many": (6, 20), "most": (21, None)}  # as in static/local.js
CERTAINTIES = {"sure": (0.9, 1.1), "likely": (0.7, 0.9), "fair": (0.5, 0.7), "doubtful": (0.0, 0.5)}
ORDERS = {
    "telling": "place",
    "largest": "size DESC, place",
    "least": "weakest_link, place",
    "most": "weakest_link DESC, place",
}
_SHORTEST = 3  # characters: what a trigram finds
_WORDS = 32  # of a search, at most; so many characters of each
_LETTERS = 300
Value = TypeVar("Value")


class RequestError(DupqError):
    """A request that the explorer's scripts never make."""


class Condition(NamedTuple):
    """A condition on the rows of `cluster`, and its parameters."""

    sql: str
    values: tuple[object, ...]


def condition_of(asked: dict[str, str]) -> Condition:
    """The clusters that the parameters of a request ask for. Raises RequestError for unknown values."""
    parts = [*map(_has_word, _words(asked.get("search", "")))]
    if site := asked.get("site"):
        parts.append(Condition("place IN (SELECT place FROM in_site WHERE site = ?)", (whole(site, 1 << 15),)))
    if size := asked.get("size"):
        low, high = _chosen(SIZES, size)
        parts.append(Condition("size >= ?", (low,)))
        parts += [] if high is None else [Condition("size <= ?", (high,))]
    if certainty := asked.get("certainty"):
        parts.append(Condition("weakest_link >= ? AND weakest_link < ?", _chosen(CERTAINTIES, certainty)))
    if evidence := asked.get("evidence"):
        parts.append(_of_evidence(evidence))
    if change := asked.get("change"):
        bits = -1 if change == "any" else 1 << _chosen({kind: bit for bit, kind in enumerate(KINDS)}, change)
        parts.append(Condition("changes & ?", (bits,)))
    if asked.get("meaning"):
        parts.append(Condition("meaning", ()))
    return joined(parts)


def order_of(asked: dict[str, str]) -> str:
    """The order that is asked for, as SQL."""
    return _chosen(ORDERS, asked.get("sort") or "telling")


def start_of(asked: dict[str, str]) -> int:
    """From which row on a list is asked for."""
    return whole(asked.get("from", "0"), 1 << 40)


def joined(parts: list[Condition]) -> Condition:
    """All of the conditions."""
    values = tuple(value for part in parts for value in part.values)
    return Condition(" AND ".join(f"({part.sql})" for part in parts) or "1", values)


def whole(text: str, limit: int) -> int:
    """A whole number below `limit`. Raises RequestError for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < limit):
        raise RequestError(f"{text[:50]!r}: a whole number below {limit} expected")
    return int(text)


def _of_evidence(evidence: str) -> Condition:
    if evidence == "known":
        return Condition("known", ())
    return Condition("sources & ?", (1 << _chosen({name: bit for bit, name in enumerate(SOURCES)}, evidence),))


def _words(search: str) -> list[str]:
    words = search.replace("\0", " ").lower().split()
    return list(dict.fromkeys(word[:_LETTERS] for word in words[:_WORDS]))


def _has_word(word: str) -> Condition:
    """The clusters with a title that `word` is in, anywhere."""
    if len(word) >= _SHORTEST:
        phrase = '"' + word.replace('"', '""') + '"'
        return Condition("place IN (SELECT rowid FROM search WHERE search MATCH ?)", (phrase,))
    return Condition("place IN (SELECT rowid FROM search WHERE instr(titles, ?))", (word,))


def _chosen(values: Mapping[str, Value], name: str) -> Value:
    if name not in values:
        raise RequestError(f"{name[:50]!r}: {', '.join(values)} expected")
    return values[name]
