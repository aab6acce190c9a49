"""Runs of the ingest job, and what they leave."""

import os
import subprocess
import sys
from pathlib import Path

from dupq import storage

ROOT = Path(__file__).parents[1]
SITE = "big.example.com"
SHARD_ROWS = "ingest.shard_rows=3000"
TABLES = ("questions", "links", "answers", "rejects")


def tables(archive: Path | str) -> dict[str, bytes]:
    files = [file for name in TABLES for file in storage.list_files(storage.join(str(archive), name))]
    return {
        f"{storage.parent(file.uri).rsplit('/', 2)[1]}/{file.relative}": storage.read_bytes(file.uri) for file in files
    }


def without_sources(archive: Path | str) -> dict[str, bytes]:
    """Rejects name the file that they came from."""
    return {name: content for name, content in tables(archive).items() if not name.startswith("rejects")}


def start(dump: str, output: Path | str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), "--dump", dump, "--output", str(output), "--answers"]
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    return subprocess.Popen(
        [*command, "--set", SHARD_ROWS, *arguments], env=environment, start_new_session=True, stderr=subprocess.PIPE
    )
