"""Streaming files out of .7z archives: nothing is unpacked to disk, nothing as a whole into memory.

The program 7zz (or 7z, 7za) unpacks into a pipe where PATH has it, on a core of its own. Without it, and from
S3, py7zr does the same from a thread, in memory a few blocks of at most 128 MB. Names from an archive only
ever select what is streamed; no path is made of them.
"""

import contextlib
import fcntl
import io
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, NamedTuple, cast

import py7zr
from py7zr.exceptions import PasswordRequired
from py7zr.io import Py7zIO, WriterFactory

from dupq import storage
from dupq.errors import DupqError, StorageError

PROGRAMS = ("7zz", "7z", "7za")
BUFFER = 8 << 20  # bytes; from S3 each refill is a request
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
def open_file(uri: str, name: str, source: str) -> Iterator[io.FileIO]:
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
    packed = io.BufferedReader(cast(io.RawIOBase, archive), BUFFER)
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
