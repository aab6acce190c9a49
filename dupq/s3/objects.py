"""Operations on the objects of S3, each patient (see `patience`) and each with errors that say what is wrong.

All of them raise StorageError: no such bucket, no right, wrong key, expired token, not reachable, throttled, damaged.
"""

import functools
import math
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
from botocore.exceptions import ClientError, IncompleteReadError

from dupq.errors import DupqError, SettingError
from dupq.s3.patience import Patience, patience, patiently
from dupq.s3.trouble import MISSING, code, status
from dupq.side_by_side import side_by_side

if TYPE_CHECKING:
    from botocore.client import BaseClient

_CONNECTIONS = 32  # that are kept open
_WRITER = "dupq-writer"  # metadata of what `create` wrote: who it was
_LOST_RACE = ("PreconditionFailed", "412")


class Info(NamedTuple):
    """An object's size in bytes, its ETag, and who created it."""

    size: int
    etag: str
    writer: str

    @property
    def checksum(self) -> str:
        """The ETag without its quotes."""
        return self.etag.strip('"')


class Tail(NamedTuple):
    """The last bytes of an object, its size in bytes, and its ETag."""

    content: bytes
    size: int
    etag: str


class Listed(NamedTuple):
    """An object's path below the folder that was listed, and its size in bytes."""

    relative: str
    size: int


def endpoint() -> str | None:
    """The address of S3 as the environment has it; None for that of AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def client() -> "BaseClient":
    """The boto3 client of this process. It tries once: trying again is up to `patiently`."""
    _, connect, read = patience()
    return _client(endpoint(), connect, read)


@functools.cache
def _client(endpoint: str | None, connect_seconds: float, read_seconds: float) -> "BaseClient":
    import boto3
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    session.set_config_variable("metadata_service_num_attempts", 5)  # all workers of a machine ask at once
    config = Config(
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
    )
    try:
        return boto3.Session(botocore_session=session).client("s3", endpoint_url=endpoint, config=config)
    except ValueError as error:
        raise SettingError(f"AWS_ENDPOINT_URL is {endpoint!r}; an address like https://host:port expected") from error


def filesystem() -> pafs.S3FileSystem:
    """S3 for libraries that want a filesystem of pyarrow: as patient, with errors in pyarrow's words."""
    return _filesystem(endpoint(), patience())


@functools.cache
def _filesystem(endpoint: str | None, patience: Patience) -> pafs.S3FileSystem:
    scheme, _, address = (endpoint or "").rpartition("://")
    return pafs.S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        endpoint_override=address or None,
        scheme=scheme or "https",
        connect_timeout=patience.connect,
        request_timeout=patience.read,
        retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=_attempts(patience.total)),
    )


def _attempts(seconds: float) -> int:
    """How often AWS's SDK tries in so many seconds: it waits 25 ms, and then each time twice as long.

    Its other strategy, with jitter, stops for good after a hundred failures of one filesystem.
    """
    return 1 + max(1, round(math.log2(1 + seconds / 0.025)))


def find(uri: str) -> Info | None:
    """The object, or None if there is no such object or bucket."""
    bucket, key = _place(uri)

    def ask() -> Info | None:
        try:
            answer = client().head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if code(error) in MISSING:
                return None
            if status(error) < 500:  # the answer to HEAD has no body, so only that to GET says what is wrong
                client().get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
            raise
        return Info(answer["ContentLength"], answer["ETag"], answer["Metadata"].get(_WRITER, ""))

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
    bucket, key = _place(uri)
    prefix = f"{key}/" if key else ""
    page = patiently(uri, "list", lambda: client().list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1))
    return not key or bool(page.get("Contents"))


def listed(uri: str, is_deep: bool = True) -> Iterator[Listed]:
    """All objects below the folder `uri`, at any depth or only right below it, page after page."""
    bucket, key = _place(uri)
    prefix = f"{key}/" if key else ""
    following = {} if is_deep else {"Delimiter": "/"}
    while True:
        ask = functools.partial(client().list_objects_v2, Bucket=bucket, Prefix=prefix, **following)
        page = patiently(uri, "list", ask)
        for entry in page.get("Contents", ()):
            yield Listed(entry["Key"].removeprefix(prefix), entry["Size"])
        if not page.get("IsTruncated"):
            return
        following |= {"ContinuationToken": page["NextContinuationToken"]}


def read(uri: str) -> bytes:
    """All of an object, of one version of it. Raises DupqError if there is none."""
    bucket, key = _place(uri)
    return patiently(uri, "read", lambda: client().get_object(Bucket=bucket, Key=key)["Body"].read())


def read_tail(uri: str, count: int) -> Tail:
    """The last `count` bytes of an object, or all if it has fewer. Raises DupqError if there is none.

    One request tells what HEAD would, and has what readers of Parquet and Arrow ask for first.
    """
    bucket, key = _place(uri)

    def ask() -> Tail:
        try:
            answer = client().get_object(Bucket=bucket, Key=key, Range=f"bytes=-{count}")
        except ClientError as error:
            if code(error) == "InvalidRange":  # an empty object has no last byte
                return Tail(b"", 0, "")
            raise
        content = answer["Body"].read()
        if len(content) != answer["ContentLength"]:
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=answer["ContentLength"])
        size = answer.get("ContentRange", f"/{len(content)}").rpartition("/")[2]  # all of it, where ranges are unknown
        return Tail(content, int(size), answer["ETag"])

    if not key:
        raise DupqError(f"{uri}: no such file")
    return patiently(uri, "read", ask)


def read_range(uri: str, start: int, stop: int, etag: str) -> bytes:
    """Bytes `start` to `stop` of the version `etag` of an object; StorageError if there is another one now."""
    bucket, key = _place(uri)

    def ask() -> bytes:
        span = f"bytes={start}-{stop - 1}"
        content = client().get_object(Bucket=bucket, Key=key, Range=span, IfMatch=etag)["Body"].read()
        if len(content) != stop - start:
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=stop - start)
        return content

    return patiently(uri, "read", ask)


def write(uri: str, content: bytes | pa.Buffer) -> str:
    """Write an object whole or not at all; an older one is replaced. Returns the ETag."""
    bucket, key = _place(uri)

    def put() -> str:
        return str(client().put_object(Bucket=bucket, Key=key, Body=pa.BufferReader(content))["ETag"])

    return patiently(uri, "write", put).strip('"')


def create(uri: str, content: bytes) -> bool:
    """Write an object only if there is none of that name; True for the one writer that created it.

    An answer may get lost, and the next attempt then meets what the first one wrote: so each writer leaves its name.
    """
    bucket, key = _place(uri)
    writer = uuid.uuid4().hex

    def put() -> bool:
        try:
            client().put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*", Metadata={_WRITER: writer})
        except ClientError as error:
            if code(error) in _LOST_RACE:
                return False
            raise
        return True

    if patiently(uri, "write", put):
        return True
    found = find(uri)
    return found is not None and found.writer == writer


def copy(source: str, target: str) -> None:
    """Copy an object within S3; an older one is replaced. Raises DupqError if there is no `source`."""
    (bucket, key), (to_bucket, to_key) = _place(source), _place(target)
    origin = {"Bucket": bucket, "Key": key}
    both = f"{source} (to become {target})"
    patiently(both, "write", lambda: client().copy_object(CopySource=origin, Bucket=to_bucket, Key=to_key))


def delete(uri: str) -> None:
    """Remove an object, if there is one."""
    bucket, key = _place(uri)

    def remove() -> None:
        try:
            client().delete_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if code(error) not in MISSING:
                raise

    patiently(uri, "delete", remove)


def delete_below(uri: str) -> None:
    """Remove all objects below the folder `uri`.

    One request each: some servers do not have the one that deletes many, and its failures come object by object.
    """
    side_by_side(lambda entry: delete(f"{uri}/{entry.relative}"), listed(uri))


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
