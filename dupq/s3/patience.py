"""How long S3 is tried: every request again and again, with growing waits, until it succeeds or patience ends.

The environment says how long, as it says where S3 is, since each process of a cluster has to know: it is part of no
run's identity.

    DUPQ_S3_PATIENCE_SECONDS   600   from the first failure of an operation to giving up
    DUPQ_S3_CONNECT_SECONDS     10   for a connection
    DUPQ_S3_READ_SECONDS        60   without a byte of the answer
"""

import itertools
import logging
import math
import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from dupq.errors import DupqError, SettingError
from dupq.s3.trouble import ERRORS, Doing, Trouble, trouble

_log = logging.getLogger(__name__)
Result = TypeVar("Result")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 20.0  # seconds: what the first and the last wait are at most
_DOUBLINGS = 8  # from the one to the other
_TOLD_AFTER = 10.0  # seconds that something fails before the log says so
_CHANCE = random.Random()  # many workers that fail together must not try again together


class Patience(NamedTuple):
    """In seconds: for an operation from its first failure on, for a connection, and for the next byte."""

    total: float
    connect: float
    read: float


def patience() -> Patience:
    """As the environment has it. Raises SettingError for what is no number of seconds."""
    return Patience(
        _seconds("DUPQ_S3_PATIENCE_SECONDS", 600),
        _seconds("DUPQ_S3_CONNECT_SECONDS", 10),
        _seconds("DUPQ_S3_READ_SECONDS", 60),
    )


def patiently(uri: str, doing: Doing, work: Callable[[], Result]) -> Result:
    """What `work` gives, tried again while its error may pass by itself and patience lasts.

    Waits grow from 0.1 to 20 seconds and are drawn from all between nothing and that (full jitter). `work` must be
    one that may be done twice. Raises StorageError that says what is wrong, or DupqError if there is no such file.
    """
    started = None
    for attempt in itertools.count():
        try:
            return work()
        except ERRORS as error:
            found = trouble(error, doing)
            now = time.monotonic()
            started = now if started is None else started
            left = started + patience().total - now
            if not found.may_pass or left <= 0:
                raise _final(uri, found, now - started) from error
        _tell(uri, found, now - started, left)
        longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(attempt, _DOUBLINGS))
        time.sleep(min(left, _CHANCE.uniform(0, longest)))
    raise AssertionError("never reached: the loop has no end")


def _final(uri: str, found: Trouble, waited: float) -> DupqError:
    if not found.may_pass:
        return found.kind(f"{uri}: {found.text}")
    return found.kind(f"{uri}: {found.text}; tried again for {waited:.0f} s (DUPQ_S3_PATIENCE_SECONDS)")


class _Told:
    """When the log was told last, once for all threads and files of a process."""

    last = -math.inf


def _tell(uri: str, found: Trouble, waited: float, left: float) -> None:
    """Say at most once a minute that something is being waited for, where it is not a moment's matter."""
    now = time.monotonic()
    if waited >= _TOLD_AFTER and now - _Told.last >= 60:
        _Told.last = now
        extra = {"is_progress": True, "waited": waited}
        _log.warning(f"{uri}: {found.text}; trying again for {left:.0f} s", extra=extra)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SettingError(f"{name} is {text!r}; a number of seconds above 0 expected")
    return seconds
