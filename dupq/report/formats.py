"""Values as a reader sees them. An absent value is a dash: a run may not have measured everything."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

ABSENT = "–"
Shown = TypeVar("Shown")


def _or_dash(show: Callable[[Shown], str]) -> Callable[[Shown | None], str]:
    @wraps(show)
    def shown(value: Shown | None) -> str:
        return ABSENT if value is None else show(value)

    return shown


@_or_dash
def number(value: int) -> str:
    """A count: 6,118."""
    return f"{value:,}"


def counted(count: int, noun: str) -> str:
    """A count of things: 1 pair, 6,118 pairs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@_or_dash
def share(value: float) -> str:
    """A share of one: 12.3 %."""
    return f"{value:.1%}".replace("%", " %")


@_or_dash
def score(value: float) -> str:
    """A similarity, a Jaccard coefficient or a probability: 0.873."""
    return f"{value:.3f}"


@_or_dash
def duration(seconds: float) -> str:
    """A time in two units at most: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


@_or_dash
def memory(megabytes: float) -> str:
    """An amount of memory: 512 MB, 1.5 GB."""
    return f"{megabytes:,.0f} MB" if megabytes < 1_000 else f"{megabytes / 1_000:,.1f} GB"


@_or_dash
def words(name: str) -> str:
    """A name of the program as words: near_duplicates is "Near duplicates"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]
