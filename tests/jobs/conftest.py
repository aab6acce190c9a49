import pytest


@pytest.fixture(autouse=True)
def _quick(quick: None) -> None:
    """Used by all tests of this folder."""
