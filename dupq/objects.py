"""Objects of S3, Google Cloud Storage and Azure through obstore, with retries and clear errors.

`s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`. Sessions and credentials of S3 are boto3's (profiles, SSO,
roles); the others take theirs from the environment or the machine.

All operations raise DupqError if there is no such file, and StorageError for everything else: no such bucket, no
permission, wrong key, expired token, not reachable, throttled, damaged.

A request is retried with growing waits. The environment says for how long, as it says where S3 is: every process of a
cluster needs it, and it is not part of a run's identity.

    DUPQ_S3_PATIENCE_SECONDS   600   from the first failure of an operation to giving up
    DUPQ_S3_CONNECT_SECONDS     10   for a connection
    DUPQ_S3_READ_SECONDS        60   without a byte of the answer
"""

import functools
import io
import logging
import math
import os
import random
import re
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from dupq.errors import DupqError, SettingError, StorageError
from dupq.system import thread_map

if TYPE_CHECKING:
    from obstore import GetResult

_log = logging.getLogger(__name__)
Doing = Literal["read", "list", "write", "delete"]
Result = TypeVar("Result")

SCHEMES = ("s3", "gs", "az")
_WRITER = "dupqwriter"  # the metadata in which `create` leaves the name of the writer
_TAIL = 1 << 16  # bytes that pyarrow reads at the end of a Parquet file
_PAGE = 1000  # objects per list request
_DELETES_AT_ONCE = 64
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")  # obstore panics at others, and at an invalid endpoint
_processes: set[int] = set()  # that used obstore: this one, and one that it was forked from
_PATIENCE = {"DUPQ_S3_PATIENCE_SECONDS": "600", "DUPQ_S3_CONNECT_SECONDS": "10", "DUPQ_S3_READ_SECONDS": "60"}
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/.*)?")
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 20.0  # bounds in seconds
_WARN_AFTER, _WARN_EVERY = 10.0, 60.0  # seconds of failures before a warning, and between warnings
_RANDOM = random.Random()  # workers that fail together must not retry together
_warned = {"last": -math.inf}  # shared by all threads of a process
# the second is an answer within Azure's answer to several deletions
_STATUS = re.compile(r"(?:status code: |Bulk delete request failed .* \(code: )(\d+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = "NoSuchBucket ContainerNotFound"
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
            "no such bucket; correct the address or make the bucket": _NO_BUCKET,
            "the clock of this machine is wrong ({code}); set it": "RequestTimeTooSkewed",
        },
    )
)
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class Info(NamedTuple):
    """An object's size in bytes, its ETag without quotes, and the writer that created it."""

    size: int
    checksum: str
    writer: str


class Patience(NamedTuple):
    """Timeouts in seconds: for an operation from its first failure on, for a connection, and for the next byte."""

    total: float
    connect: float
    read: float


def endpoint() -> str | None:
    """Return the address of S3 in the environment; None for AWS. Raises SettingError for an invalid one."""
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    try:
        if address and not (_ENDPOINT.fullmatch(address) and urllib.parse.urlsplit(address).port != 0):
            raise ValueError
    except ValueError:  # also of a port that is no number, or too high
        raise SettingError(f"AWS_ENDPOINT_URL is {address!r}; an address like https://host:port expected") from None
    return address


def _store_of(uri: str) -> tuple[ObjectStore, str]:
    """Return the store of a bucket, and the key in it."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    _processes.add(os.getpid())
    if len(_processes) > 1:  # obstore's threads do not survive a fork, and a request would hang
        raise StorageError(f"{uri}: this process was forked from one that has used object storage; start it by spawn")
    if not _BUCKET.fullmatch(bucket):
        raise DupqError(f"{uri}: not a valid address (a bucket has letters, digits, dots, hyphens and underscores)")
    return patiently(uri, "read", lambda: _store(scheme, bucket, endpoint(), patience())), key


@functools.cache
def _store(scheme: str, bucket: str, endpoint: str | None, patience: Patience) -> ObjectStore:
    """Return a store that tries each request once: `patiently` retries."""
    common: dict[str, Any] = {
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(0)},
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=patience.connect),
            "read_timeout": timedelta(seconds=patience.read),
            "timeout": timedelta(days=1),  # for a whole request of any size
            **_certificates(),
        },
    }
    if scheme == "gs":
        return GCSStore(bucket, **common)
    if scheme == "az":
        return AzureStore(bucket, **common)
    import boto3
    import botocore.session
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = botocore.session.Session()
    session.set_config_variable("metadata_service_num_attempts", 5)  # all workers of a machine ask at once
    # asked again every five minutes; boto3 renews the keys of a role before they expire
    keys = Boto3CredentialProvider(boto3.Session(botocore_session=session), ttl=timedelta(minutes=5))
    if endpoint:
        common["endpoint"] = endpoint
    return S3Store(bucket, region=_region(), disable_bulk_delete=True, credential_provider=keys, **common)


def _certificates() -> dict[str, bytes]:
    """Return the option for certificates that are trusted in addition to the system's."""
    bundle = os.environ.get("AWS_CA_BUNDLE")
    try:
        return {"root_certificate": Path(bundle).read_bytes()} if bundle else {}
    except OSError as error:
        raise SettingError(f"AWS_CA_BUNDLE is {bundle!r}, which cannot be read ({error.strerror})") from error


def _region() -> str:
    import boto3

    return os.environ.get("AWS_REGION") or boto3.Session().region_name or "us-east-1"


def filesystem(scheme: str) -> pafs.FileSystem:
    """Return a pyarrow filesystem for Ray Train and open_run: equally patient on S3, with errors of pyarrow.

    It is one of pyarrow's own, as with one in Python an error in a query of DuckDB waits for Python's lock forever.
    """
    if scheme == "gs":
        return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=patience().total))
    if scheme == "az":
        return _azure_filesystem(os.environ)
    return _s3_filesystem(endpoint(), patience())


def _azure_filesystem(environment: Mapping[str, str]) -> pafs.AzureFileSystem:
    """Return pyarrow's filesystem, which is told the key and the address that obstore reads by itself.

    Not a signature (SAS): pyarrow's errors would show it.
    """
    account = environment.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    scheme, _, rest = environment.get("AZURE_STORAGE_ENDPOINT", "").rpartition("://")
    host = rest.partition("/")[0]
    blob = host.removeprefix(account) if host.startswith(f"{account}.") else host  # pyarrow adds the account
    return pafs.AzureFileSystem(
        account,
        account_key=environment.get("AZURE_STORAGE_ACCOUNT_KEY"),
        blob_storage_authority=blob or None,
        dfs_storage_authority=blob.replace(".blob.", ".dfs.") or None,
        blob_storage_scheme=scheme or None,
        dfs_storage_scheme=scheme or None,
    )


def is_of_server(error: Exception) -> bool:
    """Return whether an error of pyarrow came from an object store, and not from what is in a file."""
    return any(prefix in str(error) for prefix in ("AWS Error", "Azure Error", "google::cloud::Status"))


@functools.cache
def _s3_filesystem(endpoint: str | None, patience: Patience) -> pafs.S3FileSystem:
    scheme, _, address = (endpoint or "").rpartition("://")
    # AWS's SDK waits 25 ms and doubles each wait; its strategy with jitter stops after 100 failures
    attempts = 1 + max(1, round(math.log2(1 + patience.total / 0.025)))
    region, scheme = _region(), scheme or "https"
    host = urllib.parse.urlsplit(endpoint or f"https://s3.{region}.amazonaws.com").netloc
    proxies = {} if urllib.request.proxy_bypass(host) else urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy and not proxy.startswith(("http://", "https://")):
        raise SettingError(f"{proxy}: pyarrow reads S3 only through proxies of http:// and https://")
    return pafs.S3FileSystem(  # it reads neither the proxy nor the certificates from the environment, as obstore does
        region=region,
        endpoint_override=address or None,
        scheme=scheme,
        proxy_options=proxy,
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE") or None,
        connect_timeout=patience.connect,
        request_timeout=patience.read,
        retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=attempts),
    )


def find(uri: str) -> Info | None:
    """Return the object, or None if there is no such object or bucket."""
    store, key = _store_of(uri)

    def ask() -> Info | None:
        try:
            answer = obstore.get(store, key, options={"head": True})
        except FileNotFoundError:
            return None
        except Exception as error:
            if _code(error).startswith("4"):  # an answer to HEAD has no body; the one to GET says what is wrong
                obstore.get(store, key, options={"range": (0, 1)})
            raise
        meta = answer.meta
        return Info(meta["size"], (meta["e_tag"] or "").strip('"'), answer.attributes.get(_WRITER, ""))

    return patiently(uri, "read", ask) if key else None


def info(uri: str) -> Info:
    """Return the object. Raises DupqError if there is none."""
    entry = find(uri)
    if entry is None:
        has_below(uri)  # raises if the bucket does not exist either
        raise DupqError(f"{uri}: no such file")
    return entry


def has_below(uri: str) -> bool:
    """Return whether there are objects below the folder `uri`; True for any bucket."""
    store, key = _store_of(uri)
    return bool(patiently(uri, "list", lambda: next(obstore.list(store, key or None), []))) or not key


def listed(uri: str) -> list[tuple[str, int]]:
    """Return all objects at any depth below the folder `uri`: relative path, and size in bytes."""
    store, key = _store_of(uri)
    entries = patiently(uri, "list", lambda: obstore.list(store, key or None, chunk_size=_PAGE).collect())
    # S3's console creates an empty object for a folder
    return [(path.removeprefix(f"{key}/"), entry["size"]) for entry in entries if (path := entry["path"]) != key]


def names_in(uri: str) -> list[str]:
    """Return the names of the objects directly in the folder `uri`."""
    store, key = _store_of(uri)
    listing = patiently(uri, "list", lambda: obstore.list_with_delimiter(store, key or None))
    return [path.rpartition("/")[2] for entry in listing["objects"] if (path := entry["path"]) != key]


def read(uri: str) -> bytes:
    """Return the content of an object, from one version of it. Raises DupqError if there is none."""
    store, key = _store_of(uri)
    return patiently(uri, "read", lambda: obstore.get(store, key).bytes().to_bytes())


def write(uri: str, content: bytes | pa.Buffer) -> str:
    """Write an object atomically, replacing an existing one. Return its ETag."""
    store, key = _store_of(uri)
    view = memoryview(content).cast("B")
    put = patiently(uri, "write", lambda: obstore.put(store, key, view, use_multipart=False))
    return (put["e_tag"] or "").strip('"')


def create(uri: str, content: bytes) -> bool:
    """Write an object only if none of that name exists; return True for the one writer that created it.

    An answer may get lost, and the retry then meets the object of the first attempt. So each writer leaves its name.
    """
    store, key = _store_of(uri)
    writer = uuid.uuid4().hex

    def put() -> bool:
        try:
            obstore.put(store, key, content, attributes={_WRITER: writer}, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            if _code(error) == "ConditionalRequestConflict":  # another write is in progress, and may fail
                raise
            return False
        return True

    if patiently(uri, "write", put):
        return True
    entry = find(uri)
    return entry is not None and entry.writer == writer


def move(source: str, target: str) -> None:
    """Rename an object within its bucket, replacing an existing one. Raises DupqError if there is no `source`."""
    (store, key), (_, to_key) = _store_of(source), _store_of(target)
    if source.startswith("az://"):  # Azure may copy later, and would find no source
        write(target, read(source))
    else:
        patiently(f"{source} (to become {target})", "write", lambda: obstore.copy(store, key, to_key))
    delete(source)


def delete(uri: str) -> None:
    """Remove an object if it exists."""
    store, key = _store_of(uri)

    def remove() -> None:
        try:
            obstore.delete(store, key)
        except FileNotFoundError as error:
            if _code(error) in _NO_BUCKET.split():
                raise

    patiently(uri, "delete", remove)


def delete_below(uri: str) -> None:
    """Remove all objects below the folder `uri`, one request each, as some servers have no bulk delete."""
    thread_map(lambda entry: delete(f"{uri}/{entry[0]}"), listed(uri), _DELETES_AT_ONCE)


def open_object(uri: str) -> pa.PythonFile:
    """Return the object as an Arrow file. Raises DupqError if there is none; its reads raise StorageError."""
    return pa.PythonFile(_Object(uri), mode="r")


class _Object:
    """The file interface that `pa.PythonFile` needs: each read is a retried request for a range of one version.

    Opening it reads its last 64 KiB, where Parquet and Arrow files have their footers: a request costs more than these
    bytes, and a small file needs no other. Arrow passes its exceptions on unchanged.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._store, self._key = _store_of(uri)
        self._position = 0
        self.closed = False
        if not self._key:
            raise DupqError(f"{uri}: no such file")
        self._tail, self._size, self._etag = patiently(uri, "read", self._read_tail)

    def _read_tail(self) -> tuple[bytes, int, str]:
        get: Callable[..., GetResult] = functools.partial(obstore.get, self._store, self._key)
        from_end = not self._uri.startswith("az://")  # Azure has no ranges from the end
        try:
            answer = get(options={"range": {"suffix": _TAIL} if from_end else (0, _TAIL)})
        except Exception as error:
            if _code(error) != "InvalidRange" and "non-partial response" not in str(error):
                raise
            answer = get()  # an empty object has no last byte
        size, etag = answer.meta["size"], answer.meta["e_tag"] or ""
        if not from_end and size > _TAIL:
            answer = get(options={"range": (size - _TAIL, size), "if_match": etag})
        return answer.bytes().to_bytes(), size, etag

    def read(self, count: int = -1) -> bytes:
        start, tail_from = self._position, self._size - len(self._tail)
        end = max(start, self._size if count < 0 else min(start + count, self._size))
        content, stop = b"", min(end, tail_from)
        if start < stop:
            options: Any = {"range": (start, stop), "if_match": self._etag}
            ask = functools.partial(obstore.get, self._store, self._key, options=options)
            content = patiently(self._uri, "read", lambda: ask().bytes().to_bytes())
        self._position = end
        return content + self._tail[max(0, start - tail_from) : max(0, end - tail_from)]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True


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


def _code(error: Exception) -> str:
    """Return the server's name of the error, else its HTTP status, else an empty string."""
    match = _CODE.search(str(error)) or _STATUS.search(str(error))
    return match[1] if match else ""


def _trouble(error: Exception, doing: Doing, keys: str) -> _Trouble:
    """Return what an error of obstore or boto3 means. All statuses from 500 on may be temporary.

    `keys` are the environment variables for a key.
    """
    code, text = _code(error), str(error)
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
