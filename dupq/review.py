"""Judge the pairs of a run's worklist in a terminal, by keys; the next run reads the verdicts."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable

from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, finished_run

_VERDICTS = {"s": "same", "d": "different", "u": "unsure"}
_ARROWS = {b"\x1b[D": "b", b"\x1b[C": " "}
_HELP = "s same   d different   u unsure   b back   q quit   any other key: skip"


def review(uri: str) -> None:
    """Show pair after pair of the run at `uri`, or of the latest there, and write each verdict at once."""
    run = finished_run(uri)
    rows = queries.unjudged(run)
    from dupq.report.explorer import excerpt  # with what draws: later than the checks

    columns = ["title", "body_html"]
    texts = {
        key: f"{row['title']}\n{excerpt(row['body_html'])}"
        for key, row in run.question_rows({key for row in rows for key in ends_of(row)}, columns)
    }
    given = _judge(run, rows, texts, _by_key if sys.stdin.isatty() else _by_line)
    print(f"{given} verdicts given; the next run with this --output reads {queries.verdicts_file(run)}")


def _judge(run: Run, rows: list[TableRow], texts: dict[Key, str], ask: Callable[[], str]) -> int:
    """Ask for a verdict on each of `rows`; returns how many were given."""
    place = given = 0
    while place < len(rows):
        row = rows[place]
        print(_screen(row, f"{place + 1} of {len(rows)}", texts), flush=True)
        answer = ask()
        if answer == "q":
            break
        if answer in _VERDICTS:
            queries.judge(
                run, dict(zip(ends_of(row), (row["title_left"], row["title_right"]), strict=True)), _VERDICTS[answer]
            )
            given += 1
        place = max(place - 1, 0) if answer == "b" else place + 1
    return given


def _screen(row: TableRow, count: str, texts: dict[Key, str]) -> str:
    """One pair. What users wrote holds no control characters then, which a terminal would obey."""
    width = min(shutil.get_terminal_size().columns, 100)
    begin = "\033[2J\033[H" if sys.stdout.isatty() else ""
    parts = [f"{count}   probability {row['probability']:.2f}: {row['evidence']}"]
    for (site, number), link in zip(ends_of(row), (row["link_left"], row["link_right"]), strict=True):
        text = texts.get((site, number), "No longer in the archive")
        parts += ["", link or f"{site}/{number}", *text.split("\n", 1)]
    plain = ("".join(character if character.isprintable() else " " for character in part) for part in parts)
    return begin + "\n".join([*(textwrap.fill(part, width) for part in plain), "", _HELP])


def _by_line() -> str:
    """The first character of a line; at the end of the input that of quit."""
    line = sys.stdin.readline()
    return line.strip().lower()[:1] if line else "q"


def _by_key() -> str:
    """The key that is pressed, in lower case."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        pressed = os.read(terminal, 8)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return _ARROWS.get(pressed, pressed.decode(errors="replace").lower()) or "q"
