import pytest

from dupq import storage


@pytest.fixture(autouse=True)
def _quick(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all tests of this folder; and without waiting for the disk."""
    monkeypatch.setattr(storage, "_make_durable", lambda path: None)
