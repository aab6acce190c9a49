"""The options that all jobs share, and those of ingest that are checked first."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from dupq.options import uri

ROOT = Path(__file__).parents[1]


def test_a_uri_is_absolute() -> None:
    assert uri("x/y.7z") == f"{Path.cwd()}/x/y.7z"
    assert uri(".") == str(Path.cwd())
    assert uri("file:///x/y") == "/x/y"
    assert uri("s3://bucket/x/") == "s3://bucket/x"


@pytest.mark.parametrize("text", ["", " ", "file://"])
def test_what_names_nothing_is_no_uri(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' names no file or folder"):
        uri(text)


@pytest.mark.parametrize("text", ["s3://", "s3:///", "gs://", "az:///"])
def test_an_address_without_a_bucket_is_no_local_folder(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no bucket is named"):
        uri(text)


def test_an_address_in_capitals_says_how_to_write_it() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"begin it with s3://, in small letters"):
        uri("S3://b/x")


@pytest.mark.parametrize("arguments", [("--dump", "", "--output", "x"), ("--dump", "x", "--output", "")])
def test_an_empty_dump_or_output_is_refused(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    named = arguments[arguments.index("") - 1]
    assert ended.stderr == (
        f"error: argument {named}: '' names no file or folder; use '.' for the current directory; "
        "ingest.py --help shows all arguments\n"
    )
