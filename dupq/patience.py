"""Patience with object stores: what an error of obstore or boto3 means, and requests that are tried again.

A request is retried with growing waits. The environment says for how long, as it says where S3 is: every process of a
cluster needs it, and it is not part of a run's identity.

    DUPQ_S3_PATIENCE_SECONDS   600   from the first failure of an operation to giving up
    DUPQ_S3_CONNECT_SECONDS     10   for a connection
    DUPQ_S3_READ_SECONDS        60   without a byte of the answer
"""

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
_PATIENCE = {"DUPQ_S3_PATIENCE_SECONDS": "600", "DUPQ_S3_CONNECT_SECONDS": "10", "DUPQ_S3_READ_SECONDS": "60"}
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 20.0  # bounds in seconds
_WARN_AFTER, _WARN_EVERY = 10.0, 60.0  # seconds of failures before a warning, and between warnings
_RANDOM = random.Random()  # workers that fail together must not retry together
_warned = {"last": -math.inf}  # shared by all threads of a process
# the second is an answer within Azure's answer to several deletions
_STATUS = re.compile(r"(?:status code: |Bulk delete request failed .* \(code: )(\d+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
NO_BUCKET = "NoSuchBucket ContainerNotFound"
# The meanings of codes and statuses: of errors that may pass, and of those that last.
_PASSING, _LASTING = (
    {code: meaning for meaning, codes in meanings.items() for code in codes.split()}
    for meanings in (
        {
            "throttled": "SlowDown Throttling ThrottlingException RequestLimitExceeded ServiceUnavailable 429 503",
            "the server fails": "RequestTimeout OperationAborted ConditionalRequestConflict",
            "damaged on its way": "BadDigest IncompleteBody XAmzContentSHA256Mismatch XAmzContentChecksumMismatch",
        },
        {
            "wrong key ({code}); check {keys}": "401 SignatureDoesNotMatch InvalidAccessKeyId InvalidToken "
            "UnrecognizedClientException AuthenticationRequired AuthenticationFailed InvalidAuthenticationInfo",
            "expired token ({code}); get a new one, or give the machine a role": "TokenRefreshRequired ExpiredToken "
            "ExpiredTokenException",
            "no right to {doing} it ({code}); give the key or role that right": "403 AccessDenied AllAccessDisabled "
            "AuthorizationFailure AuthorizationPermissionMismatch",
            "wrong region ({code}); set AWS_REGION to that of the bucket": "301 AuthorizationHeaderMalformed "
            "PermanentRedirect IllegalLocationConstraintException",
            "damaged: it was replaced while it was read; start again": "412 416 PreconditionFailed ConditionNotMet "
            "InvalidRange",
            "no such bucket; correct the address or make the bucket": NO_BUCKET,
            "the clock of this machine is wrong ({code}); set it": "RequestTimeTooSkewed",
        },
    )
)
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class Patience(NamedTuple):
    """Timeouts in seconds: for an operation from its first failure on, for a connection, and for the next byte."""

    total: float
    connect: float
    read: float


def patience() -> Patience:
    """Return the timeouts in the environment. Raises SettingError for one that is not a number of seconds."""
    seconds = []
    for name, default in _PATIENCE.items():
        text = os.environ.get(name, default)
        try:
            seconds.append(float(text))
        except ValueError:
            seconds.append(math.nan)
        if not 0 < seconds[-1] < math.inf:
            raise SettingError(f"{name} is {text!r}; a number of seconds above 0 expected")
    return Patience(*seconds)


def patiently(uri: str, doing: Doing, work: Callable[[], Result]) -> Result:
    """Return the result of `work`, retried while its error may be temporary and patience lasts.

    Waits are drawn between zero and a bound that grows from 0.1 to 20 seconds (full jitter). `work` must be idempotent.
    Raises StorageError that says what is wrong, or DupqError if there is no such file.
    """
    started, longest = None, _FIRST_WAIT
    while True:
        try:
            return work()
        except DupqError:
            raise
        except Exception as error:  # those of obstore have no common base class
            trouble = _trouble(error, doing, _KEYS[uri.partition("://")[0]])
            now = time.monotonic()
            started = now if started is None else started
            left = started + patience().total - now
            if not trouble.may_pass or left <= 0:
                tried = f"; tried again for {now - started:.0f} s (DUPQ_S3_PATIENCE_SECONDS)"
                raise trouble.kind(f"{uri}: {trouble.text}{tried if trouble.may_pass else ''}") from error
        if now - started >= _WARN_AFTER and now - _warned["last"] >= _WARN_EVERY:
            _warned["last"] = now
            extra = {"is_progress": True, "waited": now - started}
            _log.warning(f"{uri}: {trouble.text}; trying again for {left:.0f} s", extra=extra)
        time.sleep(min(left, _RANDOM.uniform(0, longest)))
        longest = min(_LONGEST_WAIT, 2 * longest)


class _Trouble(NamedTuple):
    """What is wrong, whether a retry may help, and the class of the error to raise."""

    text: str
    may_pass: bool = False
    kind: type[DupqError] = StorageError


def code_of(error: Exception) -> str:
    """Return the server's name of the error, else its HTTP status, else an empty string."""
    match = _CODE.search(str(error)) or _STATUS.search(str(error))
    return match[1] if match else ""


def _trouble(error: Exception, doing: Doing, keys: str) -> _Trouble:
    """Return what an error of obstore or boto3 means. All statuses from 500 on may be temporary.

    `keys` are the environment variables for a key.
    """
    code, text = code_of(error), str(error)
    line = " ".join(text.partition("\n\nDebug source:")[0].split())
    match = _STATUS.search(text)
    status = match[1] if match else ""
    passing = _PASSING.get(code) or _PASSING.get(status) or ("the server fails" if status >= "500" else None)
    if passing:
        return _Trouble(f"{passing} ({code})", may_pass=True)
    address = re.search(r"performing [A-Z]+ ([^\s?]+)", line)
    if "Error performing token request" in line and address:  # not to the store: without a key, the machine is asked
        return _Trouble(f"no token from {address[1]} ({status or 'no answer'}); set {keys}", may_pass=not status)
    if code in _LASTING:
        return _Trouble(_LASTING[code].format(code=code, doing=doing, keys=keys))
    if isinstance(error, FileNotFoundError):
        return _Trouble("no such file", kind=DupqError)
    if "indicates an incorrectly configured region" in text:
        return _Trouble(_LASTING["301"].format(code="301"))
    if "body error" in line:
        return _Trouble(f"damaged or cut short on its way ({line})", may_pass=True)
    if "InvalidCertificate(" in text:
        return _Trouble("not reachable: its certificate is not trusted; check AWS_ENDPOINT_URL and AWS_CA_BUNDLE")
    if "HTTP error" in line or "MetadataRetrieval" in text or "CredentialRetrieval" in text:
        kinds = re.findall(r"kind: (\w+),", text)
        last = "Timeout" if "Timeout" in kinds else kinds[-1] if kinds else ""
        return _Trouble(f"not reachable ({f'{last} at {address[1]}' if address and last else line})", may_pass=True)
    if "get_credentials" in text or "Partial credentials" in text:
        line = line if "Partial" in text else "boto3 finds none"
        return _Trouble(f"no key ({line}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if "Account must be specified" in line or "Invalid Access Key" in line:
        return _Trouble(f"no key ({line}); set {keys}")
    if "Could not parse path" in line or "invalid path" in line:
        return _Trouble(f"not a valid address ({line})", kind=DupqError)
    return _Trouble(f"the server refuses to {doing} it ({line})" if code else f"cannot be used ({line})")
