"""An object of S3 as a seekable file: each read is a patient request for those bytes, and of one version."""

import io

import pyarrow as pa

from dupq.s3 import objects


def open_object(uri: str) -> pa.PythonFile:
    """The object as a file of Arrow. Raises DupqError if there is none; a read raises StorageError."""
    return pa.PythonFile(_Object(uri), mode="r")


class _Object:
    """What `pa.PythonFile` needs of a file. Its errors come out of Arrow as they went in."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._info = objects.info(uri)
        self._position = 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        end = self._info.size if count < 0 else min(self._position + count, self._info.size)
        if end <= self._position:
            return b""
        content = objects.read_range(self._uri, self._position, end, self._info.etag)
        self._position = end
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._info.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True
