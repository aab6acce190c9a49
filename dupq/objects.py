"""Objects of S3, Google Cloud Storage and Azure, by obstore: each operation is patient, each error says what is wrong.

`s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`. Sessions and credentials of S3 are boto3's (profiles, SSO,
roles); the others take theirs from the environment or the machine.

All operations raise StorageError: no such bucket, no right, wrong key, expired token, not reachable, throttled,
damaged; and DupqError if there is no such file.
"""

import functools
import io
import math
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from dupq.errors import DupqError, SettingError, StorageError
from dupq.patience import Patience, code, patience, patiently
from dupq.system import side_by_side

if TYPE_CHECKING:
    from obstore import ObjectMeta

SCHEMES = ("s3", "gs", "az")
_WRITER = "dupqwriter"  # metadata of what `create` wrote: who it was
_TAIL = 1 << 16  # bytes: what pyarrow reads at the end of a Parquet file
_PAGE = 1000  # objects that one request lists
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")  # obstore panics at others, and at an endpoint that is no address
_processes: set[int] = set()  # that have asked for an object: this one, and one that it was forked from
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/.*)?")


class Info(NamedTuple):
    """An object's size in bytes, its ETag without quotes, and who created it."""

    size: int
    checksum: str
    writer: str


class Listed(NamedTuple):
    """An object's path below the folder that was listed, and its size in bytes."""

    relative: str
    size: int


def endpoint() -> str | None:
    """The address of S3 as the environment has it; None for that of AWS. Raises SettingError for what is none."""
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if address and not _ENDPOINT.fullmatch(address):
        raise SettingError(f"AWS_ENDPOINT_URL is {address!r}; an address like https://host:port expected")
    return address


def _place(uri: str) -> tuple[ObjectStore, str]:
    """The store of a bucket, and the key in it."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    _processes.add(os.getpid())
    if len(_processes) > 1:  # obstore's threads are gone here, and waiting for them would have no end
        raise StorageError(f"{uri}: this process was forked from one that has used object storage; start it by spawn")
    if not _BUCKET.fullmatch(bucket):
        raise DupqError(f"{uri}: not a valid address (a bucket has letters, digits, dots, hyphens and underscores)")
    return patiently(uri, "read", lambda: _store(scheme, bucket, endpoint(), patience())), key


@functools.cache
def _store(scheme: str, bucket: str, endpoint: str | None, patience: Patience) -> ObjectStore:
    """The store of this process. It tries once: trying again is up to `patiently`."""
    common: dict[str, Any] = {
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(0)},
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=patience.connect),
            "read_timeout": timedelta(seconds=patience.read),
            "timeout": timedelta(days=1),  # of a whole request, however large
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
    # asked again every five minutes, before the keys of a role end: boto3 renews those earlier
    keys = Boto3CredentialProvider(boto3.Session(botocore_session=session), ttl=timedelta(minutes=5))
    if endpoint:
        common["endpoint"] = endpoint
    return S3Store(bucket, region=_region(), disable_bulk_delete=True, credential_provider=keys, **common)


def _certificates() -> dict[str, bytes]:
    """Those that are trusted beside the system's."""
    bundle = os.environ.get("AWS_CA_BUNDLE")
    try:
        return {"root_certificate": Path(bundle).read_bytes()} if bundle else {}
    except OSError as error:
        raise SettingError(f"AWS_CA_BUNDLE is {bundle!r}, which cannot be read ({error.strerror})") from error


def _region() -> str:
    import boto3

    return os.environ.get("AWS_REGION") or boto3.Session().region_name or "us-east-1"


def filesystem(scheme: str) -> pafs.FileSystem:
    """A filesystem of pyarrow for Ray Train and open_run: as patient on S3, with errors in pyarrow's words."""
    if scheme == "gs":
        return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=patience().total))
    if scheme == "az":
        return pafs.AzureFileSystem(os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""))
    return _s3_filesystem(endpoint(), patience())


@functools.cache
def _s3_filesystem(endpoint: str | None, patience: Patience) -> pafs.S3FileSystem:
    scheme, _, address = (endpoint or "").rpartition("://")
    # AWS's SDK waits 25 ms, then each time twice as long; its strategy with jitter stops for good after 100 failures
    attempts = 1 + max(1, round(math.log2(1 + patience.total / 0.025)))
    return pafs.S3FileSystem(
        region=_region(),
        endpoint_override=address or None,
        scheme=scheme or "https",
        connect_timeout=patience.connect,
        request_timeout=patience.read,
        retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=attempts),
    )


def find(uri: str) -> Info | None:
    """The object, or None if there is no such object or bucket."""
    store, key = _place(uri)

    def ask() -> Info | None:
        try:
            answer = obstore.get(store, key, options={"head": True})
        except FileNotFoundError:
            return None
        except Exception as error:
            if code(error).startswith("4"):  # the answer to HEAD has no body, so only that to GET says what is wrong
                obstore.get(store, key, options={"range": (0, 1)})
            raise
        meta = answer.meta
        return Info(meta["size"], (meta["e_tag"] or "").strip('"'), answer.attributes.get(_WRITER, ""))

    return patiently(uri, "read", ask) if key else None


def info(uri: str) -> Info:
    """The object. Raises DupqError if there is none."""
    found = find(uri)
    if found is None:
        has_below(uri)  # says so if there is no such bucket either
        raise DupqError(f"{uri}: no such file")
    return found


def has_below(uri: str) -> bool:
    """Whether there are objects below the folder `uri`; a bucket counts without any."""
    store, key = _place(uri)
    return bool(patiently(uri, "list", lambda: _page(store, key, None))) or not key


def listed(uri: str) -> Iterator[Listed]:
    """All objects below the folder `uri` at any depth, page after page."""
    store, key = _place(uri)
    last = None
    while page := patiently(uri, "list", functools.partial(_page, store, key, last)):
        for entry in page:
            if entry["path"] != key:  # S3's console makes an empty object of a folder
                yield Listed(entry["path"].removeprefix(f"{key}/"), entry["size"])
        if len(page) < _PAGE:
            return
        last = page[-1]["path"]


def _page(store: ObjectStore, key: str, last: str | None) -> "Sequence[ObjectMeta]":
    return next(obstore.list(store, key or None, offset=last, chunk_size=_PAGE), [])


def names_in(uri: str) -> list[str]:
    """The names of the objects right in the folder `uri`."""
    store, key = _place(uri)
    found = patiently(uri, "list", lambda: obstore.list_with_delimiter(store, key or None))
    return [path.rpartition("/")[2] for entry in found["objects"] if (path := entry["path"]) != key]


def read(uri: str) -> bytes:
    """All of an object, of one version of it. Raises DupqError if there is none."""
    store, key = _place(uri)
    return patiently(uri, "read", lambda: obstore.get(store, key).bytes().to_bytes())


def write(uri: str, content: bytes | pa.Buffer) -> str:
    """Write an object whole or not at all; an older one is replaced. Returns the ETag."""
    store, key = _place(uri)
    view = memoryview(content).cast("B")
    put = patiently(uri, "write", lambda: obstore.put(store, key, view, use_multipart=False))
    return (put["e_tag"] or "").strip('"')


def create(uri: str, content: bytes) -> bool:
    """Write an object only if there is none of that name; True for the one writer that created it.

    An answer may get lost, and the next attempt then meets what the first one wrote: so each writer leaves its name.
    """
    store, key = _place(uri)
    writer = uuid.uuid4().hex

    def put() -> bool:
        try:
            obstore.put(store, key, content, attributes={_WRITER: writer}, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            if code(error) == "ConditionalRequestConflict":  # another is being written, which may still fail
                raise
            return False
        return True

    if patiently(uri, "write", put):
        return True
    found = find(uri)
    return found is not None and found.writer == writer


def move(source: str, target: str) -> None:
    """Give an object another name in its bucket; an older one is replaced. Raises DupqError if there is no `source`."""
    (store, key), (_, to_key) = _place(source), _place(target)
    patiently(f"{source} (to become {target})", "write", lambda: obstore.copy(store, key, to_key))
    delete(source)


def delete(uri: str) -> None:
    """Remove an object, if there is one."""
    store, key = _place(uri)

    def remove() -> None:
        try:
            obstore.delete(store, key)
        except FileNotFoundError as error:
            if code(error) == "NoSuchBucket":
                raise

    patiently(uri, "delete", remove)


def delete_below(uri: str) -> None:
    """Remove all objects below the folder `uri`, with a request each: some servers know no other."""
    side_by_side(lambda entry: delete(f"{uri}/{entry.relative}"), listed(uri))


def open_object(uri: str) -> pa.PythonFile:
    """The object as a file of Arrow. Raises DupqError if there is none; a read raises StorageError."""
    return pa.PythonFile(_Object(uri), mode="r")


class _Object:
    """What `pa.PythonFile` needs of a file: each read is a patient request for those bytes, and of one version.

    Opening it brings its last 64 KiB, where Parquet and Arrow have their tables of contents: a request costs more
    than these bytes, and a small file takes no other. Its errors come out of Arrow as they went in.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._store, self._key = _place(uri)
        self._position = 0
        self.closed = False
        if not self._key:
            raise DupqError(f"{uri}: no such file")
        self._tail, self._size, self._etag = patiently(uri, "read", self._read_tail)

    def _read_tail(self) -> tuple[bytes, int, str]:
        try:
            answer = obstore.get(self._store, self._key, options={"range": {"suffix": _TAIL}})
        except Exception as error:
            if code(error) != "InvalidRange" and "non-partial response" not in str(error):
                raise
            answer = obstore.get(self._store, self._key)  # an empty object has no last byte
        return answer.bytes().to_bytes(), answer.meta["size"], answer.meta["e_tag"] or ""

    def read(self, count: int = -1) -> bytes:
        start = self._position
        end = self._size if count < 0 else min(start + count, self._size)
        if end <= start:
            return b""
        tail_from = self._size - len(self._tail)
        parts = []
        if start < tail_from:
            stop = min(end, tail_from)
            options: Any = {"range": (start, stop), "if_match": self._etag}
            ask = functools.partial(obstore.get, self._store, self._key, options=options)
            parts.append(patiently(self._uri, "read", lambda: ask().bytes().to_bytes()))
        if end > tail_from:
            parts.append(self._tail[max(0, start - tail_from) : end - tail_from])
        self._position = end
        return b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True
