"""What a run tells operators: progress.json, and lines on the terminal and in run.log."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import StorageError
from dupq.job import progress
from dupq.job.progress import ALIVE, is_alive, of_stage, read_progress

LOGGER = logging.getLogger("dupq.tests.log")


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


@pytest.fixture(autouse=True)
def plain_again() -> Iterator[None]:
    yield
    progress.show_as("plain")


def test_a_line_is_shown_as_it_is_and_errors_and_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    LOGGER.info("texts  10 in")
    LOGGER.warning("slow")
    LOGGER.error("x: no such file")
    progress.progress_line(LOGGER, "texts: 1/2, 3 s left")
    shown = capsys.readouterr()
    assert shown.out == "texts  10 in\nwarning: slow\n"
    assert shown.err == "error: x: no such file\ntexts: 1/2, 3 s left\n"


def test_as_json_a_line_is_an_object_with_time_level_stage_and_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    progress.show_as("json")
    with progress.of_stage(f"{tmp_path}/0123456789abcdef", "texts", {}):
        LOGGER.info("two\nlines, à", extra={"fields": {"rows_out": 7}})
    line = json.loads(capsys.readouterr().out)
    assert line.pop("time").startswith("20")
    assert line == {
        "level": "info",
        "run": "0123456789abcdef",
        "stage": "texts",
        "message": "two\nlines, à",
        "rows_out": 7,
    }


def test_a_traceback_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress.show_as("json")
    try:
        raise ValueError("seven")
    except ValueError:
        LOGGER.error("a fault", exc_info=True)
    line = json.loads(capsys.readouterr().err)
    assert line["message"] == "a fault"
    assert "ValueError: seven" in line["traceback"]


def kept(run: Path) -> list[str]:
    return [json.loads(line)["message"] for line in (run / "run.log").read_text().splitlines()]


def test_the_lines_of_a_run_are_kept_beside_it_those_of_earlier_attempts_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for attempt in ("first", "second"):
        with progress.of_stage(str(run), "texts", {}):
            LOGGER.info(f"{attempt} attempt")
        progress.end(str(run), "failed")
    assert kept(run) == ["first attempt", "second attempt"]


def test_lines_that_could_not_be_written_are_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with progress.of_stage(str(run), "texts", {}):
        LOGGER.info("first")
    with monkeypatch.context() as patch, progress.of_stage(str(run), "encode", {}):
        patch.setattr(storage, "write_bytes", fails)
        LOGGER.info("last")
    assert kept(run) == ["first"]
    progress.end(str(run), "finished")
    assert kept(run) == ["first", "last"]


def test_a_run_whose_log_cannot_be_written_takes_none_of_the_lines_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with progress.of_stage(str(one), "texts", {}):
        LOGGER.info("of one")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_bytes", fails)
        LOGGER.info("lost")
        with progress.of_stage(str(two), "texts", {}):
            LOGGER.info("of two")
    progress.end(str(two), "finished")
    assert (kept(one), kept(two)) == (["of one"], ["of two"])


def fails(uri: str, content: bytes) -> None:
    raise StorageError(f"{uri}: no disk")
