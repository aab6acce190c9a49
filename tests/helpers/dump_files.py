"""Dumps of every form, written for tests."""

import bz2
import gzip
import lzma
import random
import struct
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import py7zr
import pyarrow as pa
import pyarrow.parquet as pq

from dupq import storage

POSTS = b'<posts><row Id="1" PostTypeId="1"/></posts>'
LINKS = b"<postlinks></postlinks>"


def zstd(content: bytes) -> bytes:
    return pa.compress(content, "zstd", asbytes=True)


COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd, ".xz": partial(lzma.compress, preset=0)}


def write_archive(path: Path, members: Mapping[str, bytes], plain_header: bool = False, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with py7zr.SevenZipFile(path, "w", **options) as archive:
        archive.set_encoded_header_mode(not plain_header)
        for name, content in members.items():
            archive.writestr(content, name)
    return path


def with_header_changed(archive: bytes, old: bytes, new: bytes) -> bytes:
    """An archive that has `new` in place of `old` in its (plain) header, whose checksums are made right again."""
    assert archive.count(old) == 1
    changed = archive.replace(old, new)
    offset, size = struct.unpack("<QQ", changed[12:28])
    start = changed[12:28] + struct.pack("<I", zlib.crc32(changed[32 + offset : 32 + offset + size]))
    return changed[:8] + struct.pack("<I", zlib.crc32(start)) + start + changed[32:]


def with_member_renamed(archive: bytes, old: str, new: str) -> bytes:
    return with_header_changed(archive, old.encode("utf-16-le"), new.encode("utf-16-le"))


def write_files(folder: Path, *names: str, content: bytes = POSTS) -> Path:
    """Files of one content, compressed as their names say."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(COMPRESS.get(file.suffix.lower(), bytes)(content))
    return folder


def write_parquet(folder: Path, *names: str, columns: tuple[str, ...] = ("Id", "PostTypeId", "Title")) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({column: ["1"] for column in columns}), folder / name)
    return folder


def upload(folder: Path, uri: str) -> str:
    """Everything below `folder`, put below `uri`, which is returned."""
    for file in folder.rglob("*"):
        if file.is_file():
            storage.write_bytes(storage.join(uri, str(file.relative_to(folder))), file.read_bytes())
    return uri


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)
