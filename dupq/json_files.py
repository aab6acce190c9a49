"""Reading back the JSON files that dupq wrote: what a reader needs of one is declared as a TypedDict, and checked."""

import functools
import json
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from dupq import storage
from dupq.errors import DupqError, StorageError

Shape = TypeVar("Shape")
_MARGIN = timedelta(days=366)  # so that adding a duration to a time cannot overflow


def _checked_time(text: str) -> str:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    if not datetime.min + _MARGIN < time.replace(tzinfo=None) < datetime.max - _MARGIN:
        raise ValueError("a time too close to the first or the last year")
    return text


Time = Annotated[str, AfterValidator(_checked_time)]  # in ISO 8601, with its zone


def read_as(uri: str, shape: type[Shape], remedy: str) -> Shape:
    """The JSON in a file, which holds at least what `shape` declares.

    Raises DupqError that names the file, the first entry that is missing or wrong, and the remedy.
    """
    return checked(storage.read_json(uri), shape, uri, remedy)


def read_whole(uri: str, shape: type[Shape]) -> Shape | None:
    """As `read_as`, but None for a file that is missing, damaged or of another shape."""
    try:
        return read_as(uri, shape, "")
    except StorageError:
        raise
    except DupqError:
        return None


def checked(value: object, shape: type[Shape], place: str, remedy: str) -> Shape:
    """`value` itself, if it holds at least what `shape` declares; raises DupqError as `read_as` does."""
    try:
        _adapter(cast(Any, shape)).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise DupqError(f"{place}: {_said(error.errors()[0])}; {remedy}") from None
    return cast(Shape, value)  # what pydantic returns lacks the entries that are not declared


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _said(found: ErrorDetails) -> str:
    """An error of pydantic: which entry, and what is wrong with it."""
    entry = ".".join(map(str, found["loc"]))
    if found["type"] == "missing":
        return f"'{entry}' is missing"
    there = repr(found["input"])
    shown = there if len(there) <= 50 else f"{there[:50]}…"
    what = f"'{entry}' is {shown}" if entry else f"it holds {shown}"
    return f"{what}; {found['msg'][0].lower()}{found['msg'][1:]}"
