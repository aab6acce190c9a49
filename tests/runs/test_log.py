"""Lines for operators, on the terminal and in run.log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import StorageError
from dupq.job import progress

LOGGER = logging.getLogger("dupq.tests.log")


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


def test_a_log_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with progress.of_stage(f"{tmp_path}/file/run", "texts", {}):
        LOGGER.info("lost")
