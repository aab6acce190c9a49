"""Files inside .7z archives as streams: nothing is unpacked to disk, nothing as a whole into memory.

The program 7zz (or 7z, 7za) unpacks into a pipe where PATH has it, on a core of its own; without it py7zr
does the same from a thread, in memory a few blocks of at most 128 MB. Names from an archive only ever select
what is streamed; no path is made of them.
"""

import contextlib
import io
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import py7zr
from py7zr.io import Py7zIO, WriterFactory

from dupq import storage
from dupq.errors import DupqError

PROGRAMS = ("7zz", "7z", "7za")


def file_names(uri: str) -> list[str]:
    """The names of the files in an archive, in its order. Only the header is read, on S3 too.

    Raises DupqError if the file is missing, damaged or no .7z archive.
    """
    with storage.open_input(uri) as stream:
        try:
            with py7zr.SevenZipFile(io.BufferedReader(stream)) as archive:
                return [entry.filename for entry in archive.list() if not entry.is_directory]
        except Exception as error:  # damaged headers make py7zr fail in every way there is
            raise _damaged(uri, error) from error


@contextlib.contextmanager
def open_file(archive: Path, name: str, source: str) -> Iterator[IO[bytes]]:
    """The uncompressed bytes of the file `name` in `archive`, while they are unpacked.

    A reader may stop early: unpacking then stops too. Raises DupqError naming `source` if the archive is
    missing; and on leaving, if the reader came to the end and the archive turned out to be damaged, in place
    of any error that the reader had with the cut-off bytes.
    """
    if not archive.is_file():
        raise DupqError(f"{source}: no such file")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        with _from_py7zr(archive, name, source) as stream:
            yield stream
        return
    # -spd takes names literally, and -i! keeps a name like @x from being read as a list of names
    command = [program, "e", "-so", "-spd", "-ssc", f"-i!{name}", "--", os.fspath(archive)]
    with _from_program(command, source) as stream:
        yield stream


@contextlib.contextmanager
def _from_program(command: list[str], source: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages)
        stream = cast(IO[bytes], process.stdout)
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
def _from_py7zr(archive: Path, name: str, source: str) -> Iterator[IO[bytes]]:
    failures: list[Exception] = []
    with archive.open("rb") as compressed:
        receiver, sender = os.pipe()
        thread = threading.Thread(target=_unpack, args=(compressed, name, sender, failures), daemon=True)
        thread.start()
        stream = os.fdopen(receiver, "rb")
        try:
            yield stream
        finally:
            drained = _is_drained(stream)
            if not drained:
                compressed.close()
            stream.close()
            thread.join()
            if failures and drained:
                raise _damaged(source, failures[0]) from failures[0]


def _unpack(compressed: IO[bytes], name: str, sender: int, failures: list[Exception]) -> None:
    """Write one file of an archive into the pipe `sender`; fails, and so ends, when either side is closed."""
    try:
        with os.fdopen(sender, "wb") as sink, py7zr.SevenZipFile(compressed) as opened:
            opened.extract(targets=[name], factory=_SinkFactory(sink))
    except Exception as error:  # a thread has nobody else to tell
        failures.append(error)


class _SinkFactory(WriterFactory):
    """Has py7zr write whatever it unpacks to one stream."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def create(self, filename: str) -> Py7zIO:
        return _Sink(self._sink)


class _Sink(Py7zIO):
    """What py7zr asks of a file, of which it only needs `write`."""

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


def _is_drained(stream: IO[bytes]) -> bool:
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
