"""What an option may be that names a file or folder; more wrong ones are in tests/bad_inputs."""

import argparse
from pathlib import Path

import pytest

from dupq.options import uri


def test_a_uri_is_absolute_and_names_something_in_small_letters() -> None:
    assert uri("x/y.7z") == f"{Path.cwd()}/x/y.7z"
    assert uri(".") == str(Path.cwd())
    assert uri("file:///x/y") == "/x/y"
    assert uri("s3://bucket/x/") == "s3://bucket/x"
    for wrong in ("file://", "s3:///", "gs://", "S3://b/x"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"no file|no bucket|begin it with s3://"):
            uri(wrong)
