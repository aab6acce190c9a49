"""Objects of S3, Google Cloud Storage and Azure through obstore, with retries and clear errors.

`s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`. Sessions and credentials of S3 are boto3's (profiles, SSO,
roles); the others take theirs from the environment or the machine.

All operations raise DupqError if there is no such file, and StorageError for everything else: no such bucket, no
permission, wrong key, expired token, not reachable, throttled, damaged.
"""

import functools
import io
import math
import os
import re
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from dupq.errors import DupqError, SettingError, StorageError
from dupq.patience import NO_BUCKET, Patience, code_of, patience, patiently
from dupq.system import thread_map

if TYPE_CHECKING:
    from obstore import GetResult


SCHEMES = ("s3", "gs", "az")
_WRITER = "dupqwriter"  # the metadata in which `create` leaves the name of the writer
_TAIL = 1 << 16  # bytes that pyarrow reads at the end of a Parquet file
_PAGE = 1000  # objects per list request
_DELETES_AT_ONCE = 64
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")  # obstore panics at others, and at an invalid endpoint
_processes: set[int] = set()  # that used obstore: this one, and one that it was forked from
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/.*)?")


class Info(NamedTuple):
    """An object's size in bytes, its ETag without quotes, and the writer that created it."""

    size: int
    checksum: str
    writer: str


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
    return pafs.S3FileSystem(
        region=_region(),
        endpoint_override=address or None,
        scheme=scheme or "https",
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE") or None,  # it doesn't read them from the environment itself
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
            if code_of(error).startswith("4"):  # an answer to HEAD has no body; the one to GET says what is wrong
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
            if code_of(error) == "ConditionalRequestConflict":  # another write is in progress, and may fail
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
            if code_of(error) in NO_BUCKET.split():
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
            if code_of(error) != "InvalidRange" and "non-partial response" not in str(error):
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
