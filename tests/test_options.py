"""What an option may be that names a file or folder."""

import argparse
from pathlib import Path

import pytest

from dupq.options import uri

WRONG = {
    **dict.fromkeys(("", " ", "file://"), "names no file or folder"),
    **dict.fromkeys(("s3://", "s3:///", "gs://", "az:///"), "no bucket is named"),
    "S3://b/x": "begin it with s3://, in small letters",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_what_names_nothing_is_no_uri(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        uri(text)


def test_a_uri_is_absolute() -> None:
    assert uri("x/y.7z") == f"{Path.cwd()}/x/y.7z"
    assert uri(".") == str(Path.cwd())
    assert uri("file:///x/y") == "/x/y"
    assert uri("s3://bucket/x/") == "s3://bucket/x"
