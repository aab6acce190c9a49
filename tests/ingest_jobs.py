"""Runs of the ingest job, and what they leave."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from dupq import storage

ROOT = Path(__file__).parents[1]
SITE = "big.example.com"
SHARD_ROWS = "ingest.shard_rows=3000"
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


def start(dump: str, output: Path | str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), "--dump", dump, "--output", str(output), "--answers"]
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    return subprocess.Popen(
        [*command, "--set", SHARD_ROWS, *arguments], env=environment, start_new_session=True, stderr=subprocess.PIPE
    )
