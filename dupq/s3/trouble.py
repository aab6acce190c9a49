"""What an error of S3 means: which one it is, in words, and whether it may pass by itself."""

from typing import Literal, NamedTuple

from botocore import exceptions
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from dupq.errors import DupqError, StorageError

Doing = Literal["read", "list", "write", "delete"]
# all that a request may raise; of the library below boto3, where the answer's body is read
ERRORS = (exceptions.BotoCoreError, exceptions.ClientError, ResponseParserError, HTTPError)
MISSING = {"NoSuchKey", "404"}  # the answer to HEAD has no body, so its code is the status

_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable"}
_PASSING = {"RequestTimeout", "OperationAborted", "ConditionalRequestConflict"}
_DAMAGED = {"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"}
_WRONG_KEY = {"SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidToken", "UnrecognizedClientException", "401"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_NO_RIGHT = {"AccessDenied", "AllAccessDisabled", "403"}
_WRONG_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "301"}
_REMEDIES = {
    **dict.fromkeys(_WRONG_KEY, "wrong key ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    **dict.fromkeys(_EXPIRED, "expired token ({code}); get a new one, or give the machine a role"),
    **dict.fromkeys(_NO_RIGHT, "no right to {doing} it ({code}); give the key or role that right"),
    **dict.fromkeys(_WRONG_REGION, "wrong region ({code}); set AWS_REGION to that of the bucket"),
    "NoSuchBucket": "no such bucket; correct the address or make the bucket",
    "RequestTimeTooSkewed": "the clock of this machine is wrong ({code}); set it",
    "PreconditionFailed": "damaged: it was replaced while it was read; start again",
    "InvalidRange": "damaged: it was replaced while it was read; start again",
}

_CONNECTIONS = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.MetadataRetrievalError,
    exceptions.CredentialRetrievalError,
)
_CUT_SHORT = (exceptions.IncompleteReadError, exceptions.ResponseStreamingError, exceptions.ChecksumError)
_NO_KEY = (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)


class Trouble(NamedTuple):
    """What is wrong, and whether another try may help; `kind` is the class of errors that it belongs to."""

    text: str
    may_pass: bool = False
    kind: type[DupqError] = StorageError


def trouble(error: Exception, doing: Doing) -> Trouble:
    """What `error`, one of ERRORS, means for what was being done."""
    if isinstance(error, exceptions.ClientError):
        return _of_answer(code(error), status(error), _one_line(error), doing)
    if isinstance(error, _CUT_SHORT):
        return Trouble(f"damaged or cut short on its way ({_one_line(error)})", may_pass=True)
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Trouble(f"not reachable ({_one_line(error)}); check AWS_ENDPOINT_URL and AWS_CA_BUNDLE")
    if isinstance(error, _CONNECTIONS):
        return Trouble(f"not reachable ({_one_line(error)})", may_pass=True)
    if isinstance(error, HTTPError):  # after those of boto3, of which some are also such errors
        return Trouble(f"cut short on its way ({_one_line(error)})", may_pass=True)
    if isinstance(error, _NO_KEY):
        return Trouble(f"no key ({_one_line(error)}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if isinstance(error, ResponseParserError):
        return Trouble(f"an answer that is not of S3 ({_one_line(error)})", may_pass=True)
    if isinstance(error, exceptions.ParamValidationError):
        return Trouble(f"not a valid address ({_one_line(error)})", kind=DupqError)
    return Trouble(f"S3 cannot be used ({_one_line(error)})")


def code(error: exceptions.ClientError) -> str:
    """What S3 calls the error; the status where it gave no name."""
    return str(error.response.get("Error", {}).get("Code", status(error)))


def status(error: exceptions.ClientError) -> int:
    """The HTTP status of the answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _of_answer(code: str, status: int, said: str, doing: Doing) -> Trouble:
    if code in MISSING:
        return Trouble("no such file", kind=DupqError)
    if code in _DAMAGED:
        return Trouble(f"damaged on its way ({code})", may_pass=True)
    if code in _THROTTLED or status in (429, 503):
        return Trouble(f"throttled ({code})", may_pass=True)
    if code in _PASSING or status >= 500:
        return Trouble(f"S3 fails ({code})", may_pass=True)
    if code in _REMEDIES:
        return Trouble(_REMEDIES[code].format(code=code, doing=doing))
    if status == 412:
        return Trouble(_REMEDIES["PreconditionFailed"])
    return Trouble(f"S3 refuses to {doing} it ({said})")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
