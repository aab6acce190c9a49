"""Streams of the unpacked bytes of a dump's files; nothing is held as a whole in memory."""

import bz2
import contextlib
import io
import lzma
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from dupq import storage
from dupq.dump import seven_zip
from dupq.dump.files import Member
from dupq.errors import DupqError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE = 1 << 20  # bytes of a local file that are read or written at a time
_XZ_MEMORY = 256 << 20  # bytes that decoding may take; `xz -9` needs 65 MiB


@dataclass(frozen=True)
class UnpackLimits:
    """How much a packed file may hold before it is taken for a bomb."""

    ratio: float = 200.0  # unpacked bytes a packed byte; a dump has 5 to 10
    total_bytes: int = 1 << 40  # unpacked bytes of one file; an archive counts as one
    ratio_from: int = 64 << 20  # unpacked bytes; what is smaller does no harm at any ratio

    def check(self, source: str, unpacked: int, packed: int) -> None:
        """Raise DupqError naming `source` if `unpacked` bytes out of `packed` are too many."""
        if unpacked > self.total_bytes:
            limit = f"{self.total_bytes:,} bytes"
        elif unpacked > self.ratio_from and unpacked > self.ratio * packed:
            limit = f"{self.ratio:g} times that"
        else:
            return
        raise DupqError(
            f"{source}: stopped: {packed:,} bytes unpack to {unpacked:,} or more; allowed are {limit}; if it is to be "
            "trusted, unpack it first"
        )


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
        limits: UnpackLimits | None = None,
    ) -> None:
        """`share` tells from the position how much of the file that is; `name` is what errors call it."""
        super().__init__()
        self.packed_bytes = packed_bytes
        self.position = 0  # unpacked bytes that were read
        self.at_end = False  # whether a read returned fewer bytes than requested
        self._name = name
        self._source = source
        self._share = share
        self._limits = limits

    @property
    def share(self) -> float:
        """How much of the file was read, from 0 to 1; only known while it is open."""
        return min(1.0, self._share(self.position))

    def readable(self) -> bool:
        """True, which wrappers ask for."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill `buffer` as far as the file reaches; the number of bytes.

        Raises DupqError if the file is damaged or cut short, or unpacks to more than the limits allow; the
        stream is closed then.
        """
        view, filled = memoryview(buffer).cast("B"), 0
        try:
            while filled < len(view) and (count := self._source.readinto(view[filled:])):
                filled += count
                self.position += count
            if self._limits is not None:
                self._limits.check(self._name, self.position, self.packed_bytes)
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


@contextlib.contextmanager
def open_member(member: Member, limits: UnpackLimits) -> Iterator[UnpackedStream]:
    """The unpacked bytes of `member`, in memory a few buffers at a time.

    A reader may stop early: unpacking then stops too. Raises DupqError if the file is missing, has a password
    or holds more than `limits` allow. Some damage to an archive is only known at its end: on leaving, if the
    reader came there (got fewer bytes than requested), a DupqError then takes the place of any error
    that the reader had with such bytes.
    """
    if member.name is not None and member.uri.lower().endswith(".zip"):
        opened = _open_zipped(member, limits)
    elif member.name is not None:
        opened = _open_archived(member.uri, member.name, member.source, limits)
    elif member.compression is not None:
        opened = _open_compressed(member.uri, member.compression, limits)
    else:
        opened = _open_plain(member.uri)
    with opened as stream:
        yield stream


def contents_of(archive: str) -> list[seven_zip.File]:
    """The plain files in a .7z or .zip archive; raises DupqError if it is missing, damaged, or has a password."""
    if not archive.lower().endswith(".zip"):
        return seven_zip.read_header(archive)
    with _zip(archive) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
    if any(entry.flag_bits & 1 for entry in entries):
        raise DupqError(f"{archive}: has a password; unpack it first")
    return [seven_zip.File(entry.filename, entry.file_size) for entry in entries]


@contextlib.contextmanager
def local_copy(member: Member, limits: UnpackLimits) -> Iterator[str]:
    """The path of a local file with the unpacked bytes of `member`, in TMPDIR while it is needed.

    It is a link if the member is such a file: in the name of that one DuckDB would take some characters for a pattern.
    """
    with tempfile.TemporaryDirectory(prefix="dupq-") as folder:
        path = os.path.join(folder, "table")
        if not member.is_packed and not storage.is_remote(member.uri):
            os.symlink(member.uri, path)
        else:
            with open_member(member, limits) as stream, open(path, "wb") as copy:
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
def _open_zipped(member: Member, limits: UnpackLimits) -> Iterator[UnpackedStream]:
    with _zip(member.uri) as opened, opened.open(member.name or "") as packed:
        size, packed_bytes = opened.getinfo(member.name or "").file_size, storage.size(member.uri)
        name = member.source
        with UnpackedStream(
            name, cast(_Source, packed), packed_bytes, lambda place: place / max(1, size), limits
        ) as stream:
            yield stream


@contextlib.contextmanager
def _open_archived(uri: str, name: str, source: str, limits: UnpackLimits) -> Iterator[UnpackedStream]:
    files = seven_zip.read_header(uri)
    size = next((file.size for file in files if file.name == name), None)
    if size is None:
        raise DupqError(f"{source}: no such file in the archive")
    packed_bytes = storage.size(uri)
    # other files may have to be unpacked to get at this one, so the archive is judged whole, before it is read
    limits.check(uri, sum(file.size for file in files), packed_bytes)
    with seven_zip.open_file(uri, name, source) as pipe:
        stream = UnpackedStream(source, pipe, packed_bytes, lambda position: position / max(1, size), limits)
        try:
            yield stream
        finally:
            # programs find nothing, and say nothing, for some odd names
            if stream.at_end and stream.position != size:
                raise DupqError(f"{source}: damaged or cut short (unpacks to {stream.position:,} of {size:,} bytes)")


@contextlib.contextmanager
def _open_compressed(uri: str, codec: str, limits: UnpackLimits) -> Iterator[UnpackedStream]:
    with storage.open_input(uri) as packed:
        packed_bytes = packed.size()
        if not packed_bytes:
            raise DupqError(f"{uri}: damaged or cut short (an empty file)")
        buffered = pa.BufferedInputStream(packed, seven_zip.BUFFER if storage.is_remote(uri) else _PIECE)
        decoder = _DECODERS.get(codec)
        source = _DecodedSource(buffered, decoder) if decoder else pa.CompressedInputStream(buffered, codec)
        with UnpackedStream(uri, source, packed_bytes, lambda _: packed.tell() / packed_bytes, limits) as stream:
            yield stream


@contextlib.contextmanager
def _open_plain(uri: str) -> Iterator[UnpackedStream]:
    with storage.open_input(uri) as file:
        size = file.size()
        source = pa.BufferedInputStream(file, seven_zip.BUFFER) if storage.is_remote(uri) else file
        with UnpackedStream(uri, source, size, lambda position: position / max(1, size)) as stream:
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
