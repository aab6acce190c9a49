"""The cluster of cluster-local.yaml."""

import os
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machine.Launcher]:
    """The cluster, up; down and gone after the module's tests."""
    if lacking := machine.missing():
        reason = f"a cluster on this machine needs {', '.join(lacking)}"
        if os.environ.get("CI") == "true":  # where .ci/run has installed what can be installed
            pytest.fail(reason)
        pytest.skip(reason)
    with machine.booted(Path(__file__).parents[2], tmp_path_factory.mktemp("cluster")) as launcher:
        launcher.up()
        yield launcher
        launcher.down()
