"""`dupq runs`, `dupq prune` and `dupq status`, as the command line calls them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dupq import storage

SUCCESS = {"outputs": {}, "finished": "1970-01-01T00:00:00+00:00"}
Dupq = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Write three finished runs and the pointer to the last."""
    for number in (1, 2, 3):
        run = f"{tmp_path}/{number:016x}"
        storage.write_bytes(f"{run}/stages/texts.json", b"{}")
        storage.write_json(f"{run}/_SUCCESS", SUCCESS)
        os.utime(f"{run}/_SUCCESS", (number * 86_400, number * 86_400))
    storage.write_json(f"{tmp_path}/latest.json", {"run_id": f"{3:016x}"})
    return str(tmp_path)


def test_what_would_be_pruned_is_what_is_pruned(runs: str, dupq: Dupq) -> None:
    arguments = ("prune", "--output", runs, "--keep", "1", "--keep-monthly", "0")
    _, said, _ = dupq(*arguments, "--dry-run")
    assert len(list(Path(runs).glob("*/_SUCCESS"))) == 3
    assert dupq(*arguments)[1] == said.replace("would remove", "removed")
    assert len(list(Path(runs).glob("*/_SUCCESS"))) == 1


@pytest.mark.parametrize(
    ("encoder", "said"),
    [("no", "no: no such folder; give the"), (f"{1:016x}", ": neither an encoder nor a training")],
)
def test_what_is_no_encoder_is_said_and_nothing_is_pruned(encoder: str, said: str, runs: str, dupq: Dupq) -> None:
    code, _, error = dupq("prune", "--output", runs, "--keep", "1", "--encoder", f"{runs}/{encoder}")
    assert (code, error.count("\n")) == (1, 1)
    assert said in error
    assert len(list(Path(runs).glob("*/_SUCCESS"))) == 3
