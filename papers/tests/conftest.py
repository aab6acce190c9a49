"""The fixtures of dupq's own tests."""

import pytest

pytest_plugins = ["tests.conftest"]


@pytest.fixture(autouse=True)
def _quick(quick: None) -> None:
    """In all tests of this folder."""
