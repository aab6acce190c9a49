"""The cluster of cluster-local.yaml."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import machine
import pytest
import swift


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn]) -> Iterator[machine.Launcher]:
    """The cluster, up; down and gone after the module's tests."""
    if missing := machine.missing() + swift.missing(Path(__file__).parents[2]):
        lacking(f"a cluster on this machine needs {', '.join(missing)}")
    repository = Path(__file__).parents[2]
    with machine.booted(repository, tmp_path_factory.mktemp("cluster")) as launcher:
        launcher.up()
        launcher.take_kernels(repository)
        yield launcher
        launcher.down()


@pytest.fixture(scope="module")
def bucket(cluster: machine.Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket (its s3:// URI) on an S3 server that only the cluster's machine reaches."""
    folder = tmp_path_factory.mktemp("swift")
    if not swift.has_attributes(folder):  # of the machine, and nothing that could be installed: in CI too
        pytest.skip(f"{folder}: Swift needs a disk with extended attributes")
    with swift.served(Path(__file__).parents[2], folder, cluster.enter):
        cluster.python("import boto3; boto3.client('s3').create_bucket(Bucket='nights')")
        yield "s3://nights"
