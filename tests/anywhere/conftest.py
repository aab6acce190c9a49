import pytest
from elsewhere import why_not


@pytest.fixture(scope="session")
def elsewhere() -> None:
    """Other surroundings can be made here, for `elsewhere.run_as`."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
