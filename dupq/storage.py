"""Files on the local disk or in an object store, by URI.

A URI is a local path, `file://…`, or the address of an object (`dupq.objects`): `s3://`, `gs://`, `az://`. Every write
is atomic: a reader sees the whole file or none. `create` is the conditional write for markers: one of many racers wins.

All functions, and reads of an open file, raise DupqError if there is no such file, and StorageError if the disk or the
server fails. A server is retried for minutes first.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash
from pydantic import AfterValidator, TypeAdapter, ValidationError

from dupq import local_files, objects, system
from dupq.errors import DupqError, StorageError
from dupq.system import Written
from dupq.tables import conform, with_nulls

Shape = TypeVar("Shape")
_MARGIN = timedelta(days=366)  # from the first and last year, so that adding a duration to a time cannot overflow
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")  # a Path has made one slash of two
_SINCE = "since this run was opened; run the same command again, for a run over what is there now"
CHANGED = f"has changed {_SINCE}"
_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


class File(NamedTuple):
    """A file: its URI, its path below the folder that was listed, and its size in bytes."""

    uri: str
    relative: str
    size: int


def absolute(uri: str | os.PathLike[str]) -> str:
    """Return `uri` in its one spelling: addresses such as `s3://…` as they are, local paths absolute.

    Raises DupqError for an impossible file name, and for an address of a scheme that is not supported.
    """
    original, uri = uri, os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(uri, str):
        raise DupqError(f"{uri!r}: {type(uri).__name__}, no path or URI; a str or a pathlib.Path expected")
    if "\0" in uri or uri.encode(errors="ignore").decode() != uri:
        raise DupqError(f"{uri!r}: no name of a file or folder; UTF-8 without a zero byte expected")
    if is_remote(uri):
        if not is_remote(uri.rstrip("/")):  # "s3:" would be a local folder
            raise DupqError(f"{uri}: no bucket is named; BUCKET/KEY expected")
        return uri.rstrip("/")
    address = _ADDRESS.match(uri)
    if address and not uri.startswith("file://"):
        raise DupqError(_not_read(uri, address["scheme"].lower(), isinstance(original, os.PathLike)))
    return os.path.abspath(os.path.expanduser(uri.removeprefix("file://")))


def _not_read(uri: str, scheme: str, is_path: bool) -> str:
    """Return the error message for an address that is not supported."""
    if is_path:
        return f"{uri}: a pathlib.Path cannot hold an address; give it as a str, such as '{scheme}://…'"
    if scheme in ("http", "https"):
        return f"{uri}: an address of the web, which dupq does not read; download it first: curl -LO {shlex.quote(uri)}"
    if scheme in (*objects.SCHEMES, "file"):
        return f"{uri}: begin it with {scheme}://, in small letters and with two slashes"
    return f"{uri}: {scheme}: is not read; copy it to a local path, file:///PATH, s3://, gs:// or az://BUCKET/KEY"


def join(uri: str, *names: str) -> str:
    """Return the URI of a file or folder below `uri`."""
    return "/".join([uri.rstrip("/"), *names])


def parent(uri: str) -> str:
    """Return the folder of `uri`."""
    return uri.rstrip("/").rsplit("/", 1)[0]


def name(uri: str) -> str:
    """Return the last component of `uri`."""
    return uri.rstrip("/").rsplit("/", 1)[-1]


def is_remote(uri: str) -> bool:
    """Return whether `uri` is in an object store, where requests are slow and files cannot be mapped."""
    return uri.startswith(tuple(f"{scheme}://" for scheme in objects.SCHEMES))


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the pyarrow filesystem of `uri` and the path inside it."""
    if is_remote(uri):
        scheme, _, path = uri.partition("://")
        return objects.filesystem(scheme), path
    return pafs.LocalFileSystem(), absolute(uri)


def kind(uri: str) -> str:
    """Return `file`, `folder` or `missing`."""
    if is_remote(uri):
        if objects.find(uri):
            return "file"
        return "folder" if objects.has_below(uri) else "missing"
    with local_files.errors(uri, "read"):
        info = pafs.LocalFileSystem().get_file_info(absolute(uri))
    kinds = {pafs.FileType.File: "file", pafs.FileType.Directory: "folder"}
    return kinds.get(info.type, "missing")


def exists(uri: str) -> bool:
    """Return whether there is a file or folder at `uri`."""
    return kind(uri) != "missing"


def list_files(uri: str, suffix: str = "") -> list[File]:
    """Return all files at any depth below the folder `uri` that end in `suffix`, sorted by path.

    Names that begin with `.` or `_` are left out, as Parquet readers do. Empty if there is no such folder.
    """
    files = [
        File(join(uri, relative), relative, size)
        for relative, size in (objects.listed(uri) if is_remote(uri) else _walk(uri))
        if size is not None
        and relative.endswith(suffix)
        and not any(name.startswith((".", "_")) for name in relative.split("/"))
    ]
    folders = {file.relative.rpartition("/")[0] for file in files}  # S3's console makes an empty object of each
    return sorted((file for file in files if file.relative not in folders), key=lambda file: file.relative)


def names_in(uri: str) -> list[str]:
    """Return the names of the files directly in the folder `uri`, including hidden ones."""
    if is_remote(uri):
        return objects.names_in(uri)
    with local_files.errors(uri, "read"):
        infos = pafs.LocalFileSystem().get_file_info(pafs.FileSelector(absolute(uri)))
    return [info.base_name for info in infos if info.type == pafs.FileType.File]


def _walk(uri: str) -> Iterator[tuple[str, int | None]]:
    with local_files.errors(uri, "read"):
        yield from local_files.walk(absolute(uri))


def broken_links(uri: str) -> list[str]:
    """Return the links at any depth below the folder `uri` that are broken or circular; none in an object store."""
    return [] if is_remote(uri) else [join(uri, path) for path, size in _walk(uri) if size is None]


def read_bytes(uri: str) -> bytes:
    """Return the content of a file. Raises DupqError if it is missing."""
    if is_remote(uri):
        return objects.read(uri)
    with open_input(uri) as stream, local_files.errors(uri, "read"):
        return stream.read()


def open_input(uri: str) -> pa.NativeFile:
    """Return a seekable binary file. Raises DupqError if it is missing."""
    if is_remote(uri):
        return objects.open_object(uri)
    with local_files.errors(uri, "read"):
        return pafs.LocalFileSystem().open_input_file(absolute(uri))


def open_mapped(uri: str) -> pa.NativeFile:
    """Return a file like `open_input`; a local one is memory-mapped."""
    if is_remote(uri):
        return objects.open_object(uri)
    with local_files.errors(uri, "read"):
        return pa.memory_map(absolute(uri))


def size(uri: str) -> int:
    """Return the size of a file in bytes. Raises DupqError if it is missing."""
    if is_remote(uri):
        return objects.info(uri).size
    with open_input(uri) as stream:
        return stream.size()


def write_bytes(uri: str, content: bytes) -> None:
    """Write a file atomically; an existing one is replaced."""
    if is_remote(uri):  # without the copy in memory that `open_output` makes
        system.note({uri: Written(size=len(content), checksum=objects.write(uri, content))})
        return
    with open_output(uri) as sink:
        sink.write(content)


def move(source: str, target: str) -> None:
    """Rename a file on the same disk or in the same bucket; an existing `target` is replaced."""
    if is_remote(target):
        objects.move(source, target)
        return
    with local_files.errors(target, "written"):
        os.makedirs(parent(target), exist_ok=True)
        os.replace(source, target)


def create(uri: str, content: bytes) -> bool:
    """Write a file only if none of that name exists; return True for the one writer that created it."""
    if is_remote(uri):
        return objects.create(uri, content)
    with local_files.temporary(uri) as temporary:
        pathlib.Path(temporary).write_bytes(content)
        local_files.make_durable(temporary)
        try:
            os.link(temporary, uri)
        except FileExistsError:
            return False
    return True


def delete(uri: str) -> None:
    """Remove a file if it exists."""
    system.forget(uri)
    if is_remote(uri):
        objects.delete(uri)
        return
    with local_files.errors(uri, "written"), contextlib.suppress(FileNotFoundError):
        os.unlink(absolute(uri))


def clear(folder: str, kept: Collection[str] = ()) -> None:
    """Remove all Parquet, JSON and temporary files below a folder, except those of the URIs `kept`."""
    for file in list_files(folder):
        if file.relative.endswith((".parquet", ".json")) and file.uri not in kept:
            delete(file.uri)
    if is_remote(folder):
        return
    with local_files.errors(folder, "written"):
        for path in pathlib.Path(absolute(folder)).rglob(".*.tmp"):
            path.unlink(missing_ok=True)


def delete_folder(uri: str) -> None:
    """Remove a folder and its content if it exists."""
    system.forget(uri)
    if is_remote(uri):
        objects.delete_below(uri)
    elif kind(uri) == "folder":
        with local_files.errors(uri, "written"):
            pafs.LocalFileSystem().delete_dir(absolute(uri))


def read_json(uri: str) -> Any:
    """Return the content of a JSON file. Raises DupqError if it is missing or damaged."""
    try:
        return json.loads(read_bytes(uri))
    except (ValueError, RecursionError) as error:
        raise DupqError(f"{uri}: not valid JSON ({error})") from error


def json_bytes(value: object) -> bytes:
    """Return JSON in the form of all files of dupq: sorted keys, an indent of two spaces, a final newline."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(uri: str, value: object) -> None:
    """Write `value` as JSON, atomically."""
    write_bytes(uri, json_bytes(value))


def read_as(uri: str, shape: type[Shape], remedy: str) -> Shape:
    """Return the content of one of dupq's JSON files, which holds at least what the TypedDict `shape` declares.

    Raises DupqError that names the file, the first entry that is missing or wrong, and the remedy.
    """
    return checked(read_json(uri), shape, uri, remedy)


def read_or_none(uri: str, shape: type[Shape]) -> Shape | None:
    """Return the same as `read_as`, but None for a file that is missing, damaged or of another shape."""
    try:
        return read_as(uri, shape, "")
    except StorageError:
        raise
    except DupqError:
        return None


def checked(value: object, shape: type[Shape], source: str, remedy: str) -> Shape:
    """Return `value` if it holds at least what `shape` declares; raise DupqError as `read_as` does."""
    try:
        _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise DupqError(f"{source}: {_first_fault(error)}; {remedy}") from None
    return cast(Shape, value)  # pydantic's own result lacks undeclared entries


def _first_fault(error: ValidationError) -> str:
    """Return which entry is wrong, and how."""
    fault = error.errors()[0]
    entry, value = ".".join(map(str, fault["loc"])), repr(fault["input"])
    if fault["type"] == "missing":
        return f"'{entry}' is missing"
    shown = value if len(value) <= 50 else f"{value[:50]}…"
    what = f"'{entry}' is {shown}" if entry else f"it holds {shown}"
    return f"{what}; {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _checked_time(text: str) -> str:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    if not datetime.min + _MARGIN < time.replace(tzinfo=None) < datetime.max - _MARGIN:
        raise ValueError("a time too close to the first or the last year")
    return text


Time = Annotated[str, AfterValidator(_checked_time)]  # in ISO 8601, with its zone


@contextlib.contextmanager
def reading(uri: str, form: str) -> Iterator[None]:
    """Raise errors of Arrow, for an open file of the form "Parquet" or "Arrow", as DupqError or StorageError."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise local_files.error_of(uri, error, "read") from error
        raise DupqError(f"{uri}: not a readable {form} file ({' '.join(str(error).split())})") from error


def read_table(uri: str, schema: pa.Schema | None = None, columns: list[str] | None = None) -> pa.Table:
    """Return a Parquet file, checked against `schema` if given. Raises DupqError if it is missing or damaged."""
    with open_input(uri) as stream, reading(uri, "Parquet"):
        # pq.read_table would import pandas; pyarrow 23 needs pre_buffer, or each column is a request of its own
        table = pq.ParquetFile(stream, pre_buffer=True).read(columns)
    if schema is None:
        return table
    expected = schema if columns is None else pa.schema([schema.field(column) for column in columns])
    return conform(with_nulls(table, expected), expected, uri)


def read_footer(uri: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file, without reading rows. Raises DupqError if it is missing or damaged."""
    with open_input(uri) as stream, reading(uri, "Parquet"):
        return pq.read_metadata(stream)


def read_schema(uri: str) -> pa.Schema:
    """Return the schema of a Parquet file, from its footer."""
    return read_footer(uri).schema.to_arrow_schema()


def key_span(uri: str) -> tuple[int, int] | None:
    """Return the smallest and the largest key of a table, its first column, from the footer; None if it has no rows."""
    footer = read_footer(uri)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    spans = [group.column(0).statistics for group in groups if group.num_rows]
    return (min(span.min for span in spans), max(span.max for span in spans)) if spans else None


def mean_length(uri: str, column: str) -> float:
    """Return the mean length of a column of lists in a Parquet file, from its footer; 0 if it has no such column.

    An empty list counts as one value.
    """
    footer = read_footer(uri)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    leaves = [group.column(number) for group in groups for number in range(group.num_columns)]
    values = sum(leaf.num_values for leaf in leaves if leaf.path_in_schema.split(".")[0] == column)
    return values / max(1, footer.num_rows)


def read_batches(uri: str, schema: pa.Schema, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file in order, at most `rows` per batch, checked against `schema`.

    Memory: a few batches. Raises DupqError if the file is missing or damaged.
    """
    expected = pa.schema([schema.field(column) for column in columns])
    with open_input(uri) as stream, reading(uri, "Parquet"):
        file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
        for batch in file.iter_batches(rows, columns=columns, use_threads=False):
            yield from conform(with_nulls(pa.table(batch), expected), expected, uri).to_batches()


def write_table(uri: str, table: pa.Table, schema: pa.Schema) -> None:
    """Write a Parquet file (zstd) of exactly `schema`, atomically.

    The same rows give the same bytes. Lists of floats are written as byte streams, without a dictionary or statistics:
    embeddings become a tenth smaller and are read four times as fast.
    """
    checked = conform(table, schema, uri).combine_chunks().replace_schema_metadata(None)
    floats = [_leaf(field) for field in schema if _is_list(field.type) and pa.types.is_floating(field.type.value_type)]
    others = [leaf for leaf in map(_leaf, schema) if leaf not in floats]
    with open_output(uri) as sink:
        pq.write_table(
            checked,
            sink,
            compression="zstd",
            row_group_size=65_536,
            use_dictionary=others,
            write_statistics=others,
            column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT") or None,
        )


def write_row_groups(uri: str, groups: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write a Parquet file like `write_table`, with each of `groups` as a row group, and return the number of rows.

    Memory: a group, and in an object store the file. Texts have neither a dictionary nor statistics, which cost time
    and save nothing.
    """
    rows = 0
    short = [_leaf(field) for field in schema if field.name not in ("title", "body_html")]
    options = {"use_dictionary": short, "write_statistics": short}
    with open_output(uri) as sink, pq.ParquetWriter(sink, schema, compression="zstd", **options) as writer:
        for group in groups:
            writer.write_table(conform(group, schema, uri), row_group_size=max(1, len(group)))
            rows += len(group)
    return rows


@contextlib.contextmanager
def open_output(uri: str) -> Iterator[pa.NativeFile]:
    """Yield a sink whose content becomes the file `uri` at the end of the block if it raises nothing.

    In an object store the content is in memory until then. The file survives a loss of power.
    """
    if is_remote(uri):
        buffer = pa.BufferOutputStream()
        yield buffer
        content = buffer.getvalue()
        system.note({uri: Written(size=content.size, checksum=objects.write(uri, content))})
        return
    with local_files.temporary(uri) as temporary:
        with pa.OSFile(temporary, "wb") as sink:
            yield sink
        local_files.make_durable(temporary)
        if system.is_recording():
            system.note({uri: Written(size=os.path.getsize(temporary), checksum=checksum(temporary))})
        os.replace(temporary, uri)


def _leaf(field: pa.Field) -> str:
    """Return the Parquet path of a column."""
    return f"{field.name}.list.element" if _is_list(field.type) else field.name


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def is_unchanged(uri: str, written: Written) -> bool:
    """Return whether there is a file of that size and checksum."""
    if is_remote(uri):
        info = objects.find(uri)
        return info is not None and (info.size, info.checksum) == (written["size"], written["checksum"])
    return kind(uri) == "file" and size(uri) == written["size"] and checksum(uri) == written["checksum"]


@contextlib.contextmanager
def unchanged(uri: str, now: Callable[[], bool]) -> Iterator[None]:
    """Raise DupqError if an input of a run, read in the block, is gone or changed since the run was opened.

    `now` returns whether it is unchanged; it is called after the block.
    """
    try:
        yield
        is_unchanged = now()
    except StorageError:
        raise
    except DupqError:
        if exists(uri):
            raise
        raise DupqError(f"{uri}: is gone {_SINCE}") from None
    if not is_unchanged:
        raise DupqError(f"{uri}: {CHANGED}")


def version(uri: str) -> str:
    """Return a value that changes when a file does, without reading it: its ETag, or its size, ctime and inode."""
    if is_remote(uri):
        return checksum(uri)
    with local_files.errors(uri, "read"):
        status = os.stat(absolute(uri))
    return f"{status.st_size}-{status.st_ctime_ns}-{status.st_ino}"


def checksum(uri: str) -> str:
    """Return a file's xxh3 checksum, or an object's ETag, for which nothing is read."""
    if is_remote(uri):
        return objects.info(uri).checksum
    digest = xxhash.xxh3_128()
    with open_input(uri) as stream, local_files.errors(uri, "read"):
        while content := stream.read(1 << 20):
            digest.update(content)
    return digest.hexdigest()
