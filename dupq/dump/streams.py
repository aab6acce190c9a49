"""Streams of the unpacked bytes of a dump's files; nothing is held as a whole in memory, or unpacked to disk."""

import bz2
import contextlib
import fcntl
import io
import lzma
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, cast

import py7zr
import pyarrow as pa
from py7zr.exceptions import PasswordRequired
from py7zr.io import Py7zIO, WriterFactory

from dupq import storage
from dupq.dump.files import Member
from dupq.errors import DupqError, StorageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAXIMUM_RATIO = 200.0  # unpacked bytes a packed byte; a dump has 5 to 10, and a file with more is taken for a bomb
HARMLESS = 64 << 20  # unpacked bytes; what is smaller does no harm at any ratio

_PIECE = 1 << 20  # bytes of a local file that are read or written at a time
_BUFFER = 8 << 20  # bytes; from S3 each refill is a request
_XZ_MEMORY = 256 << 20  # bytes that decoding may take; `xz -9` needs 65 MiB

_Decoder = bz2.BZ2Decompressor | lzma.LZMADecompressor
_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY),
}


class _Source(Protocol):
    """What an UnpackedStream reads from; `readinto` may give less than there is, but nothing only at the end."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class UnpackedStream(io.RawIOBase):
    """The unpacked bytes of one file. Unlike other raw streams, a read is short only at the end."""

    def __init__(
        self,
        name: str,
        source: _Source,
        packed_bytes: int,
        share: Callable[[int], float],
        is_packed: bool = True,
    ) -> None:
        """`share` tells from the position how much of the file that is; `name` is what errors call it."""
        super().__init__()
        self.packed_bytes = packed_bytes
        self.position = 0  # unpacked bytes that were read
        self.at_end = False  # whether a read returned fewer bytes than requested
        self._name = name
        self._source = source
        self._share = share
        self._is_packed = is_packed

    @property
    def share(self) -> float:
        """How much of the file was read, from 0 to 1; only known while it is open."""
        return min(1.0, self._share(self.position))

    def readable(self) -> bool:
        """True, which wrappers ask for."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill `buffer` as far as the file reaches; the number of bytes.

        Raises DupqError if the file is damaged or cut short, or unpacks to more than a dump does; the
        stream is closed then.
        """
        view, filled = memoryview(buffer).cast("B"), 0
        try:
            while filled < len(view) and (count := self._source.readinto(view[filled:])):
                filled += count
                self.position += count
            if self._is_packed:
                _check_ratio(self._name, self.position, self.packed_bytes)
        except DupqError:
            self.close()
            raise
        except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
            self.close()
            raise DupqError(f"{self._name}: damaged or cut short ({error})") from error
        self.at_end = filled < len(view)
        return filled

    def close(self) -> None:
        """End the reading, and the unpacking with it. What was read to its end can still turn out damaged."""
        if not self.closed and not self.at_end:
            self._source.close()
        super().close()


def _check_ratio(source: str, unpacked: int, packed: int) -> None:
    """Raise DupqError naming `source` if `unpacked` bytes out of `packed` are too many."""
    if unpacked > HARMLESS and unpacked > MAXIMUM_RATIO * packed:
        raise DupqError(
            f"{source}: stopped: {packed:,} bytes unpack to {unpacked:,} or more; allowed are {MAXIMUM_RATIO:g} times "
            "that; if it is to be trusted, unpack it first"
        )


@contextlib.contextmanager
def open_member(member: Member) -> Iterator[UnpackedStream]:
    """The unpacked bytes of `member`, in memory a few buffers at a time.

    A reader may stop early: unpacking then stops too. Raises DupqError if the file is missing, has a password
    or holds more than a dump does. Some damage to an archive is only known at its end: on leaving, if the
    reader came there (got fewer bytes than requested), a DupqError then takes the place of any error
    that the reader had with such bytes.
    """
    if member.name is not None and member.uri.lower().endswith(".zip"):
        opened = _open_zipped(member, member.name)
    elif member.name is not None:
        opened = _open_archived(member.uri, member.name, member.source)
    elif member.compression is not None:
        opened = _open_compressed(member.uri, member.compression)
    else:
        opened = _open_plain(member.uri)
    with opened as stream:
        yield stream


def names_in_zip(uri: str) -> list[str]:
    """The names of the files in a .zip archive; raises DupqError if it is missing, damaged, or has a password."""
    with _zip(uri) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
    if any(entry.flag_bits & 1 for entry in entries):
        raise DupqError(f"{uri}: has a password; unpack it first")
    return [entry.filename for entry in entries]


@contextlib.contextmanager
def local_copy(member: Member) -> Iterator[str]:
    """The path of a local file with the unpacked bytes of `member`, in TMPDIR while it is needed.

    It is a link if the member is such a file: in the name of that one DuckDB would take some characters for a pattern.
    """
    with tempfile.TemporaryDirectory(prefix="dupq-") as folder:
        path = os.path.join(folder, "table")
        if not member.is_packed and not storage.is_remote(member.uri):
            os.symlink(member.uri, path)
        else:
            with open_member(member) as stream, open(path, "wb") as copy:
                try:
                    shutil.copyfileobj(stream, copy, _PIECE)
                except OSError as error:
                    remedy = "TMPDIR names another folder"
                    raise DupqError(f"{folder}: cannot hold {member.source} ({error.strerror}); {remedy}") from error
        yield path


@contextlib.contextmanager
def _zip(uri: str) -> Iterator[zipfile.ZipFile]:
    with storage.open_input(uri) as stream:
        try:
            with zipfile.ZipFile(stream) as opened:
                yield opened
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise DupqError(
                f"{uri}: damaged, or packed in a way that is not read; unpack it first ({error})"
            ) from error


@contextlib.contextmanager
def _open_zipped(member: Member, name: str) -> Iterator[UnpackedStream]:
    with _zip(member.uri) as opened, opened.open(name) as packed:
        size, packed_bytes = max(1, opened.getinfo(name).file_size), storage.size(member.uri)
        source = cast(_Source, packed)
        with UnpackedStream(member.source, source, packed_bytes, lambda position: position / size) as stream:
            yield stream


@contextlib.contextmanager
def _open_archived(uri: str, name: str, source: str) -> Iterator[UnpackedStream]:
    files = read_header(uri)
    size = next((file.size for file in files if file.name == name), None)
    if size is None:
        raise DupqError(f"{source}: no such file in the archive")
    packed_bytes = storage.size(uri)
    # other files may have to be unpacked to get at this one, so the archive is judged whole, before it is read
    _check_ratio(uri, sum(file.size for file in files), packed_bytes)
    with open_in_7z(uri, name, source) as pipe:
        stream = UnpackedStream(source, pipe, packed_bytes, lambda position: position / max(1, size))
        try:
            yield stream
        finally:
            # programs find nothing, and say nothing, for some odd names
            if stream.at_end and stream.position != size:
                raise DupqError(f"{source}: damaged or cut short (unpacks to {stream.position:,} of {size:,} bytes)")


@contextlib.contextmanager
def _open_compressed(uri: str, codec: str) -> Iterator[UnpackedStream]:
    with storage.open_input(uri) as packed:
        packed_bytes = packed.size()
        if not packed_bytes:
            raise DupqError(f"{uri}: damaged or cut short (an empty file)")
        buffered = pa.BufferedInputStream(packed, _BUFFER if storage.is_remote(uri) else _PIECE)
        decoder = _DECODERS.get(codec)
        source = _DecodedSource(buffered, decoder) if decoder else pa.CompressedInputStream(buffered, codec)
        with UnpackedStream(uri, source, packed_bytes, lambda _: packed.tell() / packed_bytes) as stream:
            yield stream


@contextlib.contextmanager
def _open_plain(uri: str) -> Iterator[UnpackedStream]:
    with storage.open_input(uri) as file:
        size = file.size()
        source = pa.BufferedInputStream(file, _BUFFER) if storage.is_remote(uri) else file
        with UnpackedStream(uri, source, size, lambda position: position / max(1, size), is_packed=False) as stream:
            yield stream


class _DecodedSource:
    """A file of xz or bz2 streams, one after the other, unpacked as far as a buffer has room.

    pyarrow has no xz, and its bz2 fails after a stream that is empty, which parallel packers may write.
    """

    def __init__(self, packed: pa.NativeFile, new_decoder: Callable[[], _Decoder]) -> None:
        self._packed = packed
        self._new_decoder = new_decoder
        self._decoder = new_decoder()

    def readinto(self, buffer: memoryview, /) -> int:
        """Put at least one byte into `buffer`, or none at the end of the file.

        Raises EOFError, OSError or LZMAError if the file is cut short, damaged, or needs more than _XZ_MEMORY.
        """
        while True:
            piece = self._next_piece()
            if piece is None:
                return 0
            unpacked = self._decoder.decompress(piece, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)

    def _next_piece(self) -> bytes | None:
        """What the decoder needs to go on, perhaps nothing; None at the end of the last stream."""
        if self._decoder.eof:
            rest = self._decoder.unused_data.lstrip(b"\0")  # streams may be padded
            while not rest:
                piece: bytes = self._packed.read(_PIECE)
                if not piece:
                    return None
                rest = piece.lstrip(b"\0")
            self._decoder = self._new_decoder()
            return rest
        if not self._decoder.needs_input:
            return b""
        piece = self._packed.read(_PIECE)
        if not piece:
            raise EOFError("the end is missing")
        return piece

    def close(self) -> None:
        """Let go of the file."""
        self._packed.close()


# Files out of .7z archives.
#
# The program 7zz (or 7z, 7za) unpacks into a pipe where PATH has it, on a core of its own. Without it, and from S3,
# py7zr does the same from a thread, in memory a few blocks of at most 128 MB. Names from an archive only ever select
# what is streamed; no path is made of them.

PROGRAMS = ("7zz", "7z", "7za")
_PIPE = 1 << 20  # bytes that may wait in a pipe; the 64 KiB of the system make both sides wait for each other


class File(NamedTuple):
    """A file inside an archive, and its unpacked size in bytes."""

    name: str
    size: int


def read_header(uri: str) -> list[File]:
    """The plain files in an archive, in its order. Only the header is read, on S3 too.

    Raises DupqError if the file is missing, damaged or no .7z archive, or has a password.
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
        except Exception as error:  # damaged headers make py7zr fail in every way there is
            raise _damaged(uri, error) from error
    if has_password:
        raise DupqError(f"{uri}: has a password, which dumps do not; unpack it first")
    return [
        File(entry.filename, entry.uncompressed) for entry in entries if not entry.is_directory and not entry.is_symlink
    ]


@contextlib.contextmanager
def open_in_7z(uri: str, name: str, source: str) -> Iterator[io.FileIO]:
    """The uncompressed bytes of the file `name` in an archive, while they are unpacked: the end of a pipe.

    A reader may stop early: unpacking then stops too. Raises DupqError naming `source` if the archive is
    missing; and on leaving, if the reader came to the end and the archive turned out to be damaged, in place
    of any error that the reader had with the cut-off bytes.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None or storage.is_remote(uri):
        with storage.open_input(uri) as archive, _from_py7zr(archive, name, source) as stream:
            yield stream
        return
    # -spd takes names literally, and -i! keeps a name like @x from being read as a list of names
    command = [program, "e", "-so", "-spd", "-ssc", f"-i!{name}", "--", storage.absolute(uri)]
    with _from_program(command, source) as stream:
        yield stream


@contextlib.contextmanager
def _from_program(command: list[str], source: str) -> Iterator[io.FileIO]:
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, bufsize=0
        )
        stream = cast(io.FileIO, process.stdout)
        _widen(stream)
        try:
            yield stream
        finally:
            drained = _is_drained(stream)
            if not drained:
                process.kill()
            stream.close()
            if process.wait() != 0 and drained:
                raise _damaged(source, _last_line(messages))


@contextlib.contextmanager
def _from_py7zr(archive: IO[bytes], name: str, source: str) -> Iterator[io.FileIO]:
    failures: list[Exception] = []
    packed = io.BufferedReader(cast(io.RawIOBase, archive), _BUFFER)
    receiver, sender = os.pipe()
    thread = threading.Thread(target=_unpack, args=(packed, name, sender, failures), daemon=True)
    thread.start()
    stream = io.FileIO(receiver)
    _widen(stream)
    try:
        yield stream
    finally:
        drained = _is_drained(stream)
        if not drained:
            packed.close()
        stream.close()
        thread.join()
        if failures and drained:
            [error] = failures
            raise error if isinstance(error, StorageError) else _damaged(source, error) from error


def _unpack(packed: IO[bytes], name: str, sender: int, failures: list[Exception]) -> None:
    """Write one file of an archive into the pipe `sender`; fails, and so ends, when either side is closed."""
    try:
        with os.fdopen(sender, "wb") as sink, py7zr.SevenZipFile(packed) as opened:
            opened.extract(targets=[name], factory=_SinkFactory(sink))
    except Exception as error:  # raised again in the reading thread
        failures.append(error)


class _SinkFactory(WriterFactory):
    """Has py7zr write whatever it unpacks to one stream."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def create(self, filename: str) -> Py7zIO:
        return _Sink(self._sink)


class _Sink(Py7zIO):
    """The file interface of py7zr, of which it only uses `write`."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def write(self, s: bytes | bytearray) -> int:
        return self._sink.write(s)

    def read(self, size: int | None = None) -> bytes:
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def flush(self) -> None:
        self._sink.flush()

    def size(self) -> int:
        return 0


def _widen(pipe: io.FileIO) -> None:
    """Let more bytes wait in `pipe`, where the system can do that and lets us."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def _is_drained(stream: io.FileIO) -> bool:
    """Whether the reader of a pipe has come to its end; never waits for more to come."""
    if stream.closed:
        return False
    os.set_blocking(stream.fileno(), False)
    return stream.read(1) == b""


def _last_line(messages: IO[bytes]) -> str:
    messages.seek(0)
    lines = messages.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _damaged(source: str, reason: Exception | str) -> DupqError:
    return DupqError(f"{source}: damaged, cut short or no .7z archive ({str(reason) or type(reason).__name__})")
