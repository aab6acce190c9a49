import pytest


@pytest.fixture(autouse=True)
def _quick(quick: None) -> None:
    """In all tests of this folder."""
