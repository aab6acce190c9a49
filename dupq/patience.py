"""How long a server of objects is tried: every request again and again, with growing waits, until patience ends.

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
import re
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from dupq.errors import DupqError, SettingError, StorageError

_log = logging.getLogger(__name__)
Doing = Literal["read", "list", "write", "delete"]
Result = TypeVar("Result")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 20.0  # seconds: what the first and the last wait are at most
_DOUBLINGS = 8  # from the one to the other
_TOLD_AFTER = 10.0  # seconds that something fails before the log says so
_CHANCE = random.Random()  # many workers that fail together must not try again together

_STATUS, _CODE = re.compile(r"status code: (\d+)"), re.compile(r"<Code>(\w+)</Code>")
_THROTTLED = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "429",
    "503",
}
_PASSING = {"RequestTimeout", "OperationAborted", "ConditionalRequestConflict"}
_DAMAGED = {"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"}
_WRONG_KEY = {"SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidToken", "UnrecognizedClientException", "401"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_NO_RIGHT = {"AccessDenied", "AllAccessDisabled", "403"}
_WRONG_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "301"}
_REPLACED = {"PreconditionFailed", "412", "InvalidRange", "416"}
_REMEDIES = {
    **dict.fromkeys(_WRONG_KEY, "wrong key ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    **dict.fromkeys(_EXPIRED, "expired token ({code}); get a new one, or give the machine a role"),
    **dict.fromkeys(_NO_RIGHT, "no right to {doing} it ({code}); give the key or role that right"),
    **dict.fromkeys(_WRONG_REGION, "wrong region ({code}); set AWS_REGION to that of the bucket"),
    **dict.fromkeys(_REPLACED, "damaged: it was replaced while it was read; start again"),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound"), "no such bucket; correct the address or make the bucket"),
    "RequestTimeTooSkewed": "the clock of this machine is wrong ({code}); set it",
}


class Patience(NamedTuple):
    """In seconds: for an operation from its first failure on, for a connection, and for the next byte."""

    total: float
    connect: float
    read: float


class Trouble(NamedTuple):
    """What is wrong, and whether another try may help; `kind` is the class of errors that it belongs to."""

    text: str
    may_pass: bool = False
    kind: type[DupqError] = StorageError


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
        except DupqError:
            raise
        except Exception as error:  # obstore's have no base of their own
            found = trouble(error, doing)
            now = time.monotonic()
            started = now if started is None else started
            left = started + patience().total - now
            if not found.may_pass:
                raise found.kind(f"{uri}: {found.text}") from error
            if left <= 0:
                tried = f"tried again for {now - started:.0f} s (DUPQ_S3_PATIENCE_SECONDS)"
                raise found.kind(f"{uri}: {found.text}; {tried}") from error
        _tell(uri, found, now - started, left)
        longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(attempt, _DOUBLINGS))
        time.sleep(min(left, _CHANCE.uniform(0, longest)))
    raise AssertionError("never reached: the loop has no end")


def code(error: Exception) -> str:
    """What the server calls the error, the HTTP status if it gave no name, "" for an error that is none of its own."""
    found = _CODE.search(str(error)) or _STATUS.search(str(error))
    return found[1] if found else ""


def trouble(error: Exception, doing: Doing) -> Trouble:
    """What an error of obstore or boto3 means for what was being done."""
    name, text = code(error), str(error)
    said = " ".join(text.partition("\n\nDebug source:")[0].split())
    status = _STATUS.search(text)
    if name in _DAMAGED:
        return Trouble(f"damaged on its way ({name})", may_pass=True)
    if name in _THROTTLED or (status and status[1] in _THROTTLED):
        return Trouble(f"throttled ({name})", may_pass=True)
    if name in _PASSING or (status and status[1] >= "500"):
        return Trouble(f"the server fails ({name})", may_pass=True)
    if name in _REMEDIES:
        return Trouble(_REMEDIES[name].format(code=name, doing=doing))
    if isinstance(error, FileNotFoundError):
        return Trouble("no such file", kind=DupqError)
    if "indicates an incorrectly configured region" in text:
        return Trouble(_REMEDIES["301"].format(code="301"))
    if "body error" in said:
        return Trouble(f"damaged or cut short on its way ({said})", may_pass=True)
    if "InvalidCertificate(" in text:
        return Trouble("not reachable: its certificate is not trusted; check AWS_ENDPOINT_URL and AWS_CA_BUNDLE")
    if "HTTP error" in said or "MetadataRetrieval" in text or "CredentialRetrieval" in text:
        return Trouble(f"not reachable ({_cause(text) or said})", may_pass=True)
    if "get_credentials" in text or "Partial credentials" in text:
        said = said if "Partial" in text else "boto3 finds none"
        return Trouble(f"no key ({said}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if "Could not parse path" in said or "invalid path" in said:
        return Trouble(f"not a valid address ({said})", kind=DupqError)
    return Trouble(f"the server refuses to {doing} it ({said})" if name else f"cannot be used ({said})")


def _cause(text: str) -> str:
    """Which address did not answer, and why: the end of a chain of errors."""
    address, kinds = re.search(r"performing \w+ (\S+)", text), re.findall(r"kind: (\w+),", text)
    return f"{kinds[-1] if 'Timeout' not in kinds else 'Timeout'} at {address[1]}" if address and kinds else ""


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
