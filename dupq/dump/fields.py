"""Strict parsing of the values of a row's attributes. An empty attribute counts as an absent one."""

import datetime
import re
from collections.abc import Iterable, Mapping

from dupq.text.keys import MAXIMUM_ID

TAG_SEPARATORS = re.compile(r"[<>|]+")  # of both spellings of the dumps, `<a><b>` and `|a|b|`

_QUOTED_TAG = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_LONGEST_DATE = 40  # characters; of one that is longer `fromisoformat` may leave out what it does not understand
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


class BadField(ValueError):  # noqa: N818  # it is no failure of the program
    """An attribute makes its row unusable. The message is the reason that goes into `rejects`."""


def required(attributes: Mapping[str, str], name: str) -> str:
    """The text of an attribute. Raises BadField if there is none."""
    text = attributes.get(name)
    if not text:
        raise BadField(f"no {name}")
    return text


def text(attributes: Mapping[str, str], name: str, maximum: int) -> str:
    """The text of an attribute, "" if there is none. Raises BadField for more than `maximum` bytes of UTF-8."""
    found = attributes.get(name) or ""
    if len(found) * 4 > maximum and len(found.encode()) > maximum:
        raise BadField(f"{name} of more than {maximum:,} bytes")
    return found


def identifier(attributes: Mapping[str, str], name: str) -> int:
    """An id. Raises BadField if there is none, or it is not a number that fits into a key."""
    text = required(attributes, name)
    if _INTEGER.fullmatch(text) is None or not 0 <= int(text) <= MAXIMUM_ID:
        raise BadField(f"{name} not a number")
    return int(text)


def integer(attributes: Mapping[str, str], name: str, bits: int) -> int | None:
    """A number, None if there is none. Raises BadField for other text, and beyond signed `bits`."""
    text = attributes.get(name)
    if not text:
        return None
    if _INTEGER.fullmatch(text) is None or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise BadField(f"{name} not a number")
    return int(text)


def milliseconds(attributes: Mapping[str, str], name: str) -> int | None:
    """A time in milliseconds since 1970, None if there is none. Dumps write UTC, with or without fractions.

    BigQuery says so: `2012-03-06 19:06:05.667 UTC`.

    Raises BadField if it is no date.
    """
    text = attributes.get(name)
    if not text:
        return None
    if len(text) > _LONGEST_DATE:
        raise BadField(f"{name} not a date")
    if text.endswith(" UTC"):
        text = f"{text.removesuffix(' UTC')}Z"
    try:
        time = datetime.datetime.fromisoformat(text)
        time = time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # the latter for one that is before the year 1 in UTC, or after 9999
        raise BadField(f"{name} not a date") from None
    return (time - _EPOCH) // _MILLISECOND


def spelt_tags(text: str) -> str:
    """Return tags in the spelling of the dumps: of a list as Python or JSON writes it, or between commas or spaces."""
    if text.startswith(("<", "|")):
        return text
    if text.startswith("[") and text.endswith("]"):
        quoted = [single or double for single, double in _QUOTED_TAG.findall(text)]
        if quoted:
            return tags_of(quoted)
        text = text[1:-1]
    separator = next((mark for mark in ",;|" if mark in text), None)
    return tags_of(text.split(separator))


def tags_of(tags: Iterable[str]) -> str:
    """Return tags in the spelling of the dumps; in a tag, the signs of that spelling become spaces."""
    cleaned = (TAG_SEPARATORS.sub(" ", tag).strip() for tag in tags)
    return "".join([f"<{tag}>" for tag in cleaned if tag])
