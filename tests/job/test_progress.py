"""progress.json: what it tells, and when it is written."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dupq.job import progress
from dupq.job.progress import ALIVE, is_alive, of_stage, read_progress


def progress_of(run: Path) -> progress.Progress:
    current = read_progress(str(run))
    assert current is not None
    return current


def test_pieces_are_told_while_a_stage_works_and_hardly_ever_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Semaphore(0)
    write = progress._write
    monkeypatch.setattr(progress, "SECONDS_BETWEEN", 0.01)
    monkeypatch.setattr(progress, "_write", lambda: (write(), written.release()))
    with of_stage(str(tmp_path), "encode", {}):
        for done in range(1_000):
            progress.tell("encode", done + 1, 2_000)
        for _ in range(3):  # that of the beginning, one that may have begun before, and one after
            assert written.acquire(timeout=30)
        current = progress_of(tmp_path)
    assert (current["step"], current["done"], current["total"]) == ("encode", 1_000, 2_000)


def test_a_stage_that_fails_is_told_and_one_that_goes_on_afterwards_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), of_stage(str(tmp_path), "encode", {}):
        raise ValueError("broken")
    assert progress_of(tmp_path)["state"] == "failed"
    with of_stage(str(tmp_path), "encode", {}):
        pass
    assert progress_of(tmp_path)["state"] == "running"
    progress.end(str(tmp_path), "finished")
    assert progress_of(tmp_path)["state"] == "finished"


def test_outside_a_run_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with of_stage(str(tmp_path), "texts", {}):
        pass
    progress.end(str(tmp_path), "finished")
    before = (tmp_path / "progress.json").read_bytes()
    progress.tell("encode", 1, 2)
    progress.end(str(tmp_path), "failed")
    progress.end(progress.current.uri, "failed")
    assert (tmp_path / "progress.json").read_bytes() == before


def test_a_run_that_is_silent_for_long_is_not_at_work(tmp_path: Path) -> None:
    with of_stage(str(tmp_path), "texts", {}):
        current = progress_of(tmp_path)
        seen = datetime.fromisoformat(current["updated"])
        assert is_alive(current, datetime.now(UTC))
        assert not is_alive(current, seen + ALIVE)
        assert is_alive(current, seen - timedelta(minutes=1))  # of a clock that is behind
    progress.end(str(tmp_path), "failed")
    assert not is_alive(progress_of(tmp_path), datetime.now(UTC))
