"""The progress of a step: redrawn on a terminal, in lines elsewhere."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from dupq.job import progress
from dupq.job.progress import Line, pace

LOGGER = logging.getLogger("dupq.tests.live")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def no_line_left() -> Iterator[None]:
    yield
    progress.stop_drawing()


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is written from now on; not in a fixture, as pytest takes the streams again after those."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def ticking(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A clock that goes on by `seconds` each time it is looked at."""
    times = iter(range(1_000_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds * next(times))


def test_on_a_terminal_one_line_says_phase_time_and_what_is_left_of_a_long_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SECONDS_DRAWN", 1e9)
    ticking(monkeypatch, 30.0)
    with progress.drawn(5, quiet=("dupq.tests",)):
        progress.phase("finding copies")
        progress.phase("comparing all pairs")
        Line("encode", 40).show(20)
        progress._work.draw()
        last = shown.getvalue().rpartition("\r\x1b[2K")[2]
        assert re.fullmatch(r"comparing all pairs …  \[2 of 5\]  [\d:]+  20 of 40, 0:30 left", last)
        Line("report", 1).show(0)
        LOGGER.info("signatures  6,118 in")  # of a quiet logger
        LOGGER.warning("slow")
        assert shown.getvalue().endswith("left\r\x1b[2Kwarning: slow\n")
        monkeypatch.setenv("COLUMNS", "12")
        progress._work.draw()
        assert shown.getvalue().endswith("\x1b[2Kcomparing a")
    assert shown.getvalue().endswith("\x1b[2K")  # nothing is left
    LOGGER.info("done")
    assert shown.getvalue().endswith("\x1b[2Kdone\n")


def test_a_dumb_terminal_and_json_get_no_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with progress.drawn():
        assert progress._work is None
    monkeypatch.setenv("TERM", "xterm")
    progress.show_as("json")
    try:
        with progress.drawn():
            assert progress._work is None
    finally:
        progress.show_as("plain")
    assert shown.getvalue() == ""


def test_elsewhere_it_is_a_plain_line_a_minute_and_as_json_the_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking(monkeypatch, 25.0)
    line = Line("texts", 6)
    for done in range(1, 7):
        line.show(done, 386.0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == ["texts: 3/6, 2.4/min, 386 MB, 1:15 left"]

    ticking(monkeypatch, 100.0)
    progress.show_as("json")
    try:
        Line("pairs", 5).show(1)
    finally:
        progress.show_as("plain")
    fields = json.loads(capsys.readouterr().err)
    figures = {"step": "pairs", "done": 1, "total": 5, "per_second": 0.01, "seconds_left": 400, "memory_mb": None}
    assert {name: fields[name] for name in figures} == figures
    assert fields["message"] == "pairs: 1/5, 36/h, 6:40 left"


def test_rates_and_times_are_given_in_units_that_can_be_read() -> None:
    assert [pace(rate) for rate in (1234, 3.46, 0.2, 0.001)] == ["1,234/s", "3.5/s", "12/min", "3.6/h"]
    assert [progress.duration(seconds) for seconds in (7, 750, 3_723)] == ["0:07", "12:30", "1:02:03"]
