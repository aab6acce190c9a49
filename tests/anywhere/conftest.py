from collections.abc import Callable
from typing import NoReturn

import pytest
from elsewhere import why_not


@pytest.fixture(scope="session")
def elsewhere(lacking: Callable[[str], NoReturn]) -> None:
    """Other surroundings can be made here, for `elsewhere.run_as`."""
    reason = why_not()
    if reason is not None:
        lacking(reason)
