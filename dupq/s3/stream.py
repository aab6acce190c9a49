"""An object of S3 as a seekable file: each read is a patient request for those bytes, and of one version.

Opening an object brings its last 64 KiB, where Parquet and Arrow have their tables of contents: a request costs more
than these bytes, and a small file takes no other.
"""

import io

import pyarrow as pa

from dupq.s3 import objects

_TAIL = 1 << 16  # bytes: what pyarrow reads at the end of a Parquet file


def open_object(uri: str) -> pa.PythonFile:
    """The object as a file of Arrow. Raises DupqError if there is none; a read raises StorageError."""
    return pa.PythonFile(_Object(uri), mode="r")


class _Object:
    """What `pa.PythonFile` needs of a file. Its errors come out of Arrow as they went in."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._tail, self._size, self._etag = objects.read_tail(uri, _TAIL)
        self._position = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        start = self._position
        end = self._size if count < 0 else min(start + count, self._size)
        if end <= start:
            return b""
        tail_from = self._size - len(self._tail)
        parts = []
        if start < tail_from:
            parts.append(objects.read_range(self._uri, start, min(end, tail_from), self._etag))
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
