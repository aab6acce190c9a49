"""What the ingest job leaves."""

import hashlib
import re
from pathlib import Path

from dupq import storage

SITE = "big.example.com"
TABLES = ("questions", "links", "answers", "rejects")


def tables(archive: Path | str) -> dict[str, str]:
    """The checksum of each file: where two differ, pytest would look for the place for hours."""
    files = [file for name in TABLES for file in storage.list_files(storage.join(str(archive), name))]
    names = [f"{storage.parent(file.uri).rsplit('/', 2)[1]}/{file.relative}" for file in files]
    return {
        name: hashlib.sha256(storage.read_bytes(file.uri)).hexdigest() for name, file in zip(names, files, strict=True)
    }


def without_sources(archive: Path | str) -> dict[str, str]:
    """As for another dump of the same rows: rejects name the file that they came from, and names what they are of."""
    kept = {name: checksum for name, checksum in tables(archive).items() if not name.startswith("rejects")}
    return {re.sub("-[0-9a-f]{12}", "", name): checksum for name, checksum in kept.items()}
