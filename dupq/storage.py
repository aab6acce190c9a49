"""Files on the local disk or on S3, by URI.

A URI is a local path, `file://…` or `s3://bucket/key`. The endpoint and the keys of S3 come from the usual
AWS environment (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, …). Every write is atomic: a reader sees the whole
file or none. `create` is the conditional write that runs are marked with: one of many racers wins.
"""

import contextlib
import functools
import json
import os
import pathlib
import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from dupq.errors import DupqError
from dupq.tables import conform

if TYPE_CHECKING:
    from botocore.client import BaseClient

_COUNTS = b"dupq.counts"


class File(NamedTuple):
    """One file: its URI, its path below the folder that was listed, and its size in bytes."""

    uri: str
    relative: str
    size: int


def absolute(uri: str) -> str:
    """`uri` in the one spelling used everywhere: `s3://…` as it is, local paths absolute."""
    if uri.startswith("s3://"):
        return uri.rstrip("/")
    return os.path.abspath(os.path.expanduser(uri.removeprefix("file://")))


def join(uri: str, *parts: str) -> str:
    """The URI of something below `uri`."""
    return "/".join([uri.rstrip("/"), *parts])


def parent(uri: str) -> str:
    """The folder that `uri` is in."""
    return uri.rstrip("/").rsplit("/", 1)[0]


def name(uri: str) -> str:
    """The last part of `uri`."""
    return uri.rstrip("/").rsplit("/", 1)[-1]


def is_s3(uri: str) -> bool:
    """Whether `uri` is on S3."""
    return uri.startswith("s3://")


@functools.cache
def _s3_filesystem(endpoint: str | None) -> pafs.S3FileSystem:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if endpoint is None:
        return pafs.S3FileSystem(region=region)
    scheme, _, address = endpoint.rpartition("://")
    return pafs.S3FileSystem(endpoint_override=address, scheme=scheme or "https", region=region)


@functools.cache
def _s3_client(endpoint: str | None) -> "BaseClient":
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The pyarrow filesystem of `uri` and the path inside it."""
    if is_s3(uri):
        return _s3_filesystem(_endpoint()), uri.removeprefix("s3://")
    return pafs.LocalFileSystem(), absolute(uri)


def kind(uri: str) -> str:
    """`file`, `folder` or `missing`."""
    files, path = filesystem(uri)
    try:
        info = files.get_file_info(path)
    except OSError as error:
        raise DupqError(f"{uri}: cannot be reached ({error})") from error
    kinds = {pafs.FileType.File: "file", pafs.FileType.Directory: "folder"}
    return kinds.get(info.type, "missing")


def exists(uri: str) -> bool:
    """Whether there is a file or folder at `uri`."""
    return kind(uri) != "missing"


def list_files(uri: str, suffix: str = "") -> list[File]:
    """All files at any depth below the folder `uri` that end in `suffix`, sorted by path.

    Names that open with `.` or `_` are left out, the way Parquet readers do. Empty if there is no folder.
    """
    files, path = filesystem(uri)
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    found = []
    for info in files.get_file_info(selector):
        relative = info.path[len(path) :].lstrip("/")
        hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
        if info.type == pafs.FileType.File and relative.endswith(suffix) and not hidden:
            found.append(File(join(uri, relative), relative, info.size))
    return sorted(found, key=lambda file: file.relative)


def read_bytes(uri: str) -> bytes:
    """The content of a file. Raises DupqError if it is not there."""
    with open_input(uri) as stream:
        return stream.read()


def open_input(uri: str) -> pa.NativeFile:
    """A seekable binary file. Raises DupqError if it is not there."""
    files, path = filesystem(uri)
    try:
        return files.open_input_file(path)
    except OSError as error:
        raise DupqError(f"{uri}: no such file, or it cannot be read ({error})") from error


def open_mapped(uri: str) -> pa.NativeFile:
    """Like `open_input`; a local file's pages are used in place, not copied."""
    if is_s3(uri):
        return open_input(uri)
    try:
        return pa.memory_map(absolute(uri))
    except OSError as error:
        raise DupqError(f"{uri}: no such file, or it cannot be read ({error})") from error


def size(uri: str) -> int:
    """The size of a file in bytes. Raises DupqError if it is not there."""
    with open_input(uri) as stream:
        return stream.size()


def write_bytes(uri: str, content: bytes) -> None:
    """Write a file whole or not at all; an older file of that name is replaced."""
    if is_s3(uri):
        _put(uri, content)
        return
    with _local_temporary(uri) as temporary:
        _write_local(temporary, content)
        os.replace(temporary, uri)


def _put(uri: str, content: bytes | IO[bytes]) -> None:
    """Write bytes, or a seekable file, to S3."""
    bucket, key = _s3_place(uri)
    with _s3_errors(uri):
        _s3_client(_endpoint()).put_object(Bucket=bucket, Key=key, Body=content)


def _s3_place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def move(source: str, target: str) -> None:
    """Give a file another name on the same disk or in the same S3; an older file of that name is replaced."""
    if is_s3(target):
        (bucket, key), (to_bucket, to_key) = _s3_place(source), _s3_place(target)
        client = _s3_client(_endpoint())
        with _s3_errors(target):
            client.copy_object(CopySource={"Bucket": bucket, "Key": key}, Bucket=to_bucket, Key=to_key)
            client.delete_object(Bucket=bucket, Key=key)
        return
    try:
        os.makedirs(parent(target), exist_ok=True)
        os.replace(source, target)
    except OSError as error:
        raise DupqError(f"{target}: cannot be written ({error.strerror})") from error


def create(uri: str, content: bytes) -> bool:
    """Write a file only if there is none of that name; True for the one writer that created it."""
    if is_s3(uri):
        bucket, key = _s3_place(uri)
        client = _s3_client(_endpoint())
        with _s3_errors(uri):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
            except client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in (
                    "PreconditionFailed",
                    "ConditionalRequestConflict",
                    "412",
                ):
                    return False
                raise
        return True
    with _local_temporary(uri) as temporary:
        _write_local(temporary, content)
        try:
            os.link(temporary, uri)
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _local_temporary(path: str) -> Iterator[str]:
    """A temporary name beside `path` to write to first; removed if it still exists at the end."""
    folder, file_name = os.path.split(path)
    temporary = os.path.join(folder, f".{file_name}.{uuid.uuid4().hex}.tmp")
    try:
        os.makedirs(folder, exist_ok=True)
        yield temporary
    except OSError as error:
        raise DupqError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(OSError):  # never made, or its name is too long: the first error says so
            os.unlink(temporary)


def _write_local(path: str, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)
    _make_durable(path)


def _make_durable(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _s3_errors(uri: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise DupqError(f"{uri}: cannot be written ({error})") from error


def delete(uri: str) -> None:
    """Remove a file, if there is one."""
    files, path = filesystem(uri)
    with contextlib.suppress(FileNotFoundError):
        files.delete_file(path)


def clear(folder: str, kept: Collection[str] = ()) -> None:
    """Remove all Parquet and JSON files below a folder but those of the URIs `kept`; unfinished files too."""
    for suffix in (".parquet", ".json"):
        for file in list_files(folder, suffix):
            if file.uri not in kept:
                delete(file.uri)
    if not is_s3(folder):
        for path in pathlib.Path(absolute(folder)).rglob(".*.tmp"):
            path.unlink(missing_ok=True)


def delete_if_empty(uri: str) -> None:
    """Remove a folder if it is empty; S3 has no empty folders."""
    if not is_s3(uri):
        with contextlib.suppress(OSError):
            os.rmdir(absolute(uri))


def delete_folder(uri: str) -> None:
    """Remove a folder with all that is in it, if there is one."""
    files, path = filesystem(uri)
    if kind(uri) == "folder":
        files.delete_dir(path)


def read_json(uri: str) -> Any:
    """The JSON in a file. Raises DupqError if it is missing or damaged."""
    try:
        return json.loads(read_bytes(uri))
    except ValueError as error:
        raise DupqError(f"{uri}: not valid JSON ({error})") from error


def json_bytes(value: object) -> bytes:
    """JSON as in all of dupq's files: sorted keys, an indent of two spaces, a newline at the end."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(uri: str, value: object) -> None:
    """Write `value` as JSON, whole or not at all."""
    write_bytes(uri, json_bytes(value))


def read_table(uri: str, schema: pa.Schema | None = None, columns: list[str] | None = None) -> pa.Table:
    """One Parquet file; checked against `schema` if given. Raises DupqError for a missing or damaged file."""
    with open_input(uri) as stream:
        try:
            table = pq.read_table(stream, columns=columns)
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{uri}: not a readable Parquet file ({error})") from error
    if schema is None:
        return table
    wanted = schema if columns is None else pa.schema([schema.field(column) for column in columns])
    return conform(table, wanted, uri)


def read_schema(uri: str) -> pa.Schema:
    """The schema of a Parquet file; of its rows nothing is read. Raises DupqError for a missing or damaged file."""
    with open_input(uri) as stream:
        try:
            return pq.read_schema(stream)
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{uri}: not a readable Parquet file ({error})") from error


def read_pieces(uri: str, schema: pa.Schema, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in order, at most `rows` at once; checked against `schema`. Memory: a few pieces.

    Raises DupqError for a missing or damaged file.
    """
    wanted = pa.schema([schema.field(column) for column in columns])
    with open_input(uri) as stream:
        try:
            file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
            for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                yield from conform(pa.table(batch), wanted, uri).to_batches()
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{uri}: not a readable Parquet file ({error})") from error


def write_table(uri: str, table: pa.Table, schema: pa.Schema, counts: dict[str, int] | None = None) -> None:
    """Write one Parquet file (zstd) of exactly `schema`, whole or not at all.

    The same rows give the same bytes. `counts` (what the making of the file counted) are kept in its footer,
    so that a rerun that skips the file still knows them. Lists of fractions have their bytes sorted by place and
    neither a dictionary nor statistics: embeddings are a tenth smaller so, and read four times as fast.
    """
    checked = conform(table, schema, uri).combine_chunks()
    checked = checked.replace_schema_metadata({_COUNTS: json.dumps(counts or {}, sort_keys=True)})
    fractions = [leaf for leaf, field in zip(_leaves(schema), schema, strict=True) if _is_list_of_fractions(field.type)]
    others = [leaf for leaf in _leaves(schema) if leaf not in fractions]
    with open_output(uri) as sink:
        pq.write_table(
            checked,
            sink,
            compression="zstd",
            row_group_size=65_536,
            use_dictionary=others,
            write_statistics=others,
            column_encoding=dict.fromkeys(fractions, "BYTE_STREAM_SPLIT") or None,
        )


def write_row_groups(uri: str, groups: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write one Parquet file like `write_table`, each of `groups` a row group; memory: one of them,
    on S3 also the file.

    Texts have neither a dictionary nor statistics, which take time and gain nothing.
    """
    texts = [field.name for field in schema if field.name in ("title", "body_html")]
    short = [name for name in _leaves(schema) if name not in texts]
    options = {"use_dictionary": short, "write_statistics": short}
    with (
        open_output(uri) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd", **options) as writer,
    ):
        for group in groups:
            writer.write_table(conform(group, schema, uri), row_group_size=max(1, len(group)))


@contextlib.contextmanager
def open_output(uri: str, is_durable: bool = True) -> Iterator[pa.NativeFile]:
    """A sink whose content is the file `uri` once all went well; in memory on S3 until then.

    With `is_durable`, it would survive a loss of power then, not only of the process.
    """
    if is_s3(uri):
        buffer = pa.BufferOutputStream()
        yield buffer
        _put(uri, pa.BufferReader(buffer.getvalue()))  # not a copy of it
        return
    with _local_temporary(uri) as temporary:
        with pa.OSFile(temporary, "wb") as sink:
            yield sink
        if is_durable:
            _make_durable(temporary)
        os.replace(temporary, uri)


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns as Parquet calls them."""
    return [f"{field.name}.list.element" if _is_list(field.type) else field.name for field in schema]


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_list_of_fractions(kind: pa.DataType) -> bool:
    return _is_list(kind) and pa.types.is_floating(kind.value_type)


def read_counts(uri: str) -> dict[str, int]:
    """The counts that `write_table` kept with a file, and its number of rows as `rows_out`."""
    with open_input(uri) as stream:
        try:
            footer = pq.read_metadata(stream)
        except (pa.ArrowInvalid, OSError) as error:
            raise DupqError(f"{uri}: not a readable Parquet file ({error})") from error
    kept = (footer.metadata or {}).get(_COUNTS, b"{}")
    return {**json.loads(kept), "rows_out": footer.num_rows}


def checksum(uri: str) -> str:
    """What tells one version of a file from another: xxh3 of the content, or S3's ETag (nothing is read)."""
    if is_s3(uri):
        bucket, key = _s3_place(uri)
        with _s3_errors(uri):
            return _s3_client(_endpoint()).head_object(Bucket=bucket, Key=key)["ETag"].strip('"')
    digest = xxhash.xxh3_128()
    with open_input(uri) as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
