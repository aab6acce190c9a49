"""Streams of the unpacked bytes of a dump's files. No file is held in memory as a whole, or unpacked to disk."""

import bz2
import codecs
import contextlib
import io
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import IO, Any, cast

import py7zr
import pyarrow as pa
from py7zr.exceptions import PasswordRequired

from dupq import storage
from dupq.dump.files import COMPRESSIONS, Member
from dupq.errors import DupqError, StorageError

MAXIMUM_RATIO = 200.0  # unpacked bytes per packed byte; dumps have 5 to 10, and more is taken for a bomb
HARMLESS = 64 << 20  # unpacked bytes that do no harm at any ratio

_LOCAL_BUFFER = 1 << 20  # bytes of a local file that are read or written at a time
_BUFFER = 8 << 20  # bytes; from S3 each refill is a request
_XZ_MEMORY = 256 << 20  # bytes that decoding may take; `xz -9` needs 65 MiB

# Neither a table nor XML begins so.
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9]"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
}
_HEAD = 6  # bytes

_Decoder = bz2.BZ2Decompressor | lzma.LZMADecompressor
_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY),
}


class UnpackedStream:
    """The unpacked bytes of one file."""

    def __init__(
        self,
        name: str,
        source: "io.RawIOBase | io.BufferedIOBase | _DecodedSource",
        packed_bytes: int,
        share: Callable[[int], float],
    ) -> None:
        """`name` is for errors. `share` returns from the position which share of the file was read."""
        self.packed_bytes = packed_bytes
        self.position = 0  # unpacked bytes read
        self.at_end = False  # whether a read returned fewer bytes than requested
        self._name = name
        self._source = source
        self._share = share

    @property
    def share(self) -> float:
        """The share of the file that was read, from 0 to 1. Only known while the stream is open."""
        return min(1.0, self._share(self.position))

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end.

        Raises DupqError if the file is damaged, cut short or a decompression bomb.
        """
        content, filled = memoryview(bytearray(size)), 0
        try:
            while filled < size and (count := self._source.readinto(content[filled:])):
                filled += count
        except DupqError:
            raise
        except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
            raise DupqError(f"{self._name}: damaged or cut short ({error})") from error
        self.position += filled
        _check_ratio(self._name, self.position, self.packed_bytes)
        self.at_end = filled < size
        return bytes(content[:filled])


def _check_ratio(source: str, unpacked: int, packed: int) -> None:
    """Raise DupqError naming `source` if `packed` bytes unpack to suspiciously many."""
    if unpacked > HARMLESS and unpacked > MAXIMUM_RATIO * packed:
        raise DupqError(
            f"{source}: stopped: {packed:,} bytes unpack to {unpacked:,} or more; allowed are {MAXIMUM_RATIO:g} times "
            "that; if it is to be trusted, unpack it first"
        )


def open_member(member: Member) -> AbstractContextManager[UnpackedStream]:
    """Open the unpacked bytes of `member`. Memory: a few buffers.

    A reader may stop early, which stops the unpacking. Raises DupqError if the file is missing, has a password or is a
    decompression bomb. Some damage to an archive is only known at its end: if the reader got there, a DupqError is
    raised on leaving, in place of any error that the reader had with the broken bytes.
    """
    if member.name is None:
        return _open_file(member.uri, member.compression)
    opened = _open_zipped if member.uri.lower().endswith(".zip") else _open_archived
    return opened(member.uri, member.name, member.source)


def names_in_zip(uri: str) -> list[str]:
    """Return the names of the files in a .zip archive. Raises DupqError if it is missing, damaged or has a password."""
    with _zip(uri) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
    if any(entry.flag_bits & 1 for entry in entries):
        raise DupqError(f"{uri}: has a password; unpack it first")
    return [entry.filename for entry in entries]


@contextlib.contextmanager
def local_copy(member: Member) -> Iterator[str]:
    """Yield the path of a temporary local file with the unpacked bytes of `member`.

    For a plain local file it is a link, because DuckDB would take some characters in its own name for a pattern.
    """
    with tempfile.TemporaryDirectory(prefix="dupq-") as folder:
        path = os.path.join(folder, "table")
        head = b"" if member.is_packed else _head(member)
        if not (member.is_packed or storage.is_remote(member.uri) or head.startswith(codecs.BOM_UTF8)):
            os.symlink(member.uri, path)
        else:
            with open_member(member) as stream, open(path, "wb") as copy:
                try:
                    # of JSON with the mark, DuckDB would lose the first row
                    content = stream.read(_LOCAL_BUFFER).removeprefix(codecs.BOM_UTF8)
                    while content:
                        copy.write(content)
                        content = stream.read(_LOCAL_BUFFER)
                except OSError as error:
                    remedy = "TMPDIR names another folder"
                    raise DupqError(f"{folder}: cannot hold {member.source} ({error.strerror}); {remedy}") from error
        yield path


def _head(member: Member) -> bytes:
    """Return the first bytes of a file that by its name is not packed. Raises DupqError if it is."""
    with storage.open_input(member.uri) as file:
        head = bytes(file.read(_HEAD))
    if head.startswith(b"PK\3\4") and member.form != "parquet":
        raise DupqError(f"{member.uri}: a .zip or a workbook of Excel; rename it to end in .zip, or save it as CSV")
    for codec, magic in _MAGIC.items():
        if magic.match(head):
            suffix = next(suffix for suffix, named in COMPRESSIONS.items() if named == codec)
            raise DupqError(f"{member.uri}: packed by {codec}; rename it to end in {suffix}")
    return head


@contextlib.contextmanager
def _zip(uri: str) -> Iterator[zipfile.ZipFile]:
    with storage.open_input(uri) as stream:
        try:
            with zipfile.ZipFile(stream) as opened:
                yield opened
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise DupqError(
                f"{uri}: damaged, or packed in a format that is not read; unpack it first ({error})"
            ) from error


@contextlib.contextmanager
def _open_zipped(uri: str, name: str, source: str) -> Iterator[UnpackedStream]:
    with _zip(uri) as opened, opened.open(name) as packed:
        size = max(1, opened.getinfo(name).file_size)
        unpacked = cast(io.BufferedIOBase, packed)
        yield UnpackedStream(source, unpacked, storage.size(uri), lambda position: position / size)


@contextlib.contextmanager
def _open_archived(uri: str, name: str, source: str) -> Iterator[UnpackedStream]:
    sizes = read_header(uri)
    if name not in sizes:
        raise DupqError(f"{source}: no such file in the archive")
    size, packed_bytes = sizes[name], storage.size(uri)
    # other files may have to be unpacked before this one, so the check is of the whole archive, before it is read
    _check_ratio(uri, sum(sizes.values()), packed_bytes)
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    unpacking = _from_py7zr(uri, name, source)
    if program is not None and not storage.is_remote(uri):
        # -spd takes names literally, and -i! keeps a name like @x from being read as a list of names
        command = [program, "e", "-so", "-spd", "-ssc", f"-i!{name}", "--", storage.absolute(uri)]
        unpacking = _from_program(command, source)
    with unpacking as pipe:
        stream = UnpackedStream(source, pipe, packed_bytes, lambda position: position / max(1, size))
        try:
            yield stream
        finally:
            # programs silently find nothing for some odd names
            if stream.at_end and stream.position != size:
                raise DupqError(f"{source}: damaged or cut short (unpacks to {stream.position:,} of {size:,} bytes)")


@contextlib.contextmanager
def _open_file(uri: str, codec: str | None) -> Iterator[UnpackedStream]:
    with storage.open_input(uri) as packed:
        packed_bytes = packed.size()
        if codec and not packed_bytes:
            raise DupqError(f"{uri}: damaged or cut short (an empty file)")
        source = buffered = pa.BufferedInputStream(packed, _BUFFER if storage.is_remote(uri) else _LOCAL_BUFFER)
        if codec in _DECODERS:
            source = _DecodedSource(buffered, _DECODERS[codec])
        elif codec:
            source = pa.CompressedInputStream(buffered, codec)
        try:
            yield UnpackedStream(uri, source, packed_bytes, lambda _: packed.tell() / max(1, packed_bytes))
        except DupqError as error:
            packed.seek(0)
            head = bytes(packed.read(_HEAD))
            if codec and len(head) == _HEAD and not _MAGIC[codec].match(head):
                raise DupqError(f"{uri}: not packed by {codec}, as its name says; rename it") from error
            raise


class _DecodedSource:
    """The unpacked bytes of a file of one or more xz or bz2 streams.

    pyarrow has no xz, and its bz2 fails after an empty stream, which parallel packers may write.
    """

    def __init__(self, packed: pa.NativeFile, new_decoder: Callable[[], _Decoder]) -> None:
        self._packed = packed
        self._new_decoder = new_decoder
        self._decoder = new_decoder()

    def readinto(self, buffer: memoryview, /) -> int:
        """Read at least one byte into `buffer`, or none at the end of the file.

        Raises EOFError, OSError or LZMAError if the file is cut short, damaged, or needs more than _XZ_MEMORY.
        """
        while True:
            packed = b""
            if self._decoder.eof:
                packed = self._decoder.unused_data.lstrip(b"\0")  # streams may be padded
                while not packed:
                    if not (more := self._packed.read(_LOCAL_BUFFER)):
                        return 0
                    packed = more.lstrip(b"\0")
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input and not (packed := self._packed.read(_LOCAL_BUFFER)):
                raise EOFError("the end is missing")
            if unpacked := self._decoder.decompress(packed, len(buffer)):
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)


# Files in .7z archives.
#
# If the program 7zz (or 7z, 7za) is on PATH, it unpacks into a pipe, on a core of its own. Without it, and from S3,
# py7zr does so in a thread; it holds a few blocks of at most 128 MB. Names from an archive only select what is
# streamed, and never become paths.

PROGRAMS = ("7zz", "7z", "7za")


def read_header(uri: str) -> dict[str, int]:
    """Return the names of the plain files in a .7z archive and their unpacked sizes in bytes. Reads the header only.

    Raises DupqError if the file is missing, damaged, has a password, is not a .7z archive or has two files of one name.
    """
    with storage.open_input(uri) as stream:
        try:
            with py7zr.SevenZipFile(io.BufferedReader(stream)) as archive:
                has_password = archive.needs_password()
                entries = archive.list()
        except PasswordRequired:
            has_password = True
        except StorageError:
            raise
        except Exception as error:  # damaged headers make py7zr raise all kinds of errors
            raise _damaged(uri, error) from error
    if has_password:
        raise DupqError(f"{uri}: has a password, which dumps do not; unpack it first")
    sizes: dict[str, int] = {}
    for entry in entries:
        if not entry.is_directory and not entry.is_symlink:
            if entry.filename in sizes:
                raise DupqError(f"{uri}: holds {entry.filename} twice; expected is one site only")
            sizes[entry.filename] = entry.uncompressed
    return sizes


@contextlib.contextmanager
def _from_program(command: list[str], source: str) -> Iterator[io.FileIO]:
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, bufsize=0
        )
        stream = cast(io.FileIO, process.stdout)
        try:
            yield stream
        finally:
            drained = _is_drained(stream)
            if not drained:
                process.kill()
            stream.close()
            if process.wait() != 0 and drained:
                messages.seek(0)
                last_line = messages.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise _damaged(source, last_line.strip())


@contextlib.contextmanager
def _from_py7zr(uri: str, name: str, source: str) -> Iterator[io.FileIO]:
    failures: list[Exception] = []
    packed = io.BufferedReader(storage.open_input(uri), _BUFFER)
    receiver, sender = os.pipe()
    thread = threading.Thread(target=_unpack, args=(packed, name, sender, failures), daemon=True)
    thread.start()
    stream = io.FileIO(receiver)
    try:
        yield stream
    finally:
        drained = _is_drained(stream)
        if not drained:
            packed.close()  # which makes the thread fail, and so end
        stream.close()
        thread.join()
        packed.close()
        if failures and drained:
            [error] = failures
            raise error if isinstance(error, StorageError) else _damaged(source, error) from error


def _unpack(packed: IO[bytes], name: str, sender: int, failures: list[Exception]) -> None:
    """Write one file of an archive into the pipe `sender`."""
    try:
        with _Sink(io.FileIO(sender, "wb")) as sink, py7zr.SevenZipFile(packed) as opened:
            factory: Any = SimpleNamespace(create=lambda _: sink)
            opened.extract(targets=[name], factory=factory)
    except Exception as error:  # raised again in the reading thread
        failures.append(error)


class _Sink(io.BufferedWriter):
    """The end of a pipe that py7zr writes to. It also rewinds what it has written, which a pipe cannot."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return 0


def _is_drained(stream: io.FileIO) -> bool:
    """Tell whether the reader of a pipe has come to its end. Never blocks."""
    os.set_blocking(stream.fileno(), False)
    return stream.read(1) == b""


def _damaged(source: str, reason: Exception | str) -> DupqError:
    if "unsupported" in f"{type(reason).__name__} {reason}".lower():
        return DupqError(f"{source}: packed by a method that is not read; unpack it first ({reason})")
    return DupqError(f"{source}: damaged, cut short or no .7z archive ({str(reason) or type(reason).__name__})")
