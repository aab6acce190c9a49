"""Judge the pairs of a run's worklist in a terminal, a key press each; the next run reads the verdicts."""

import os
import shutil
import sys
import textwrap

from dupq.runs import queries
from dupq.runs.reader import Key, TableRow, ends_of, finished_run

_VERDICTS = {"s": "same", "d": "different", "u": "unsure"}
_ARROWS = {b"\x1b[D": "b", b"\x1b[C": " "}
_DISPUTED = 50  # pairs: ten minutes
_HELP = "s same   d different   u unsure   b back   q quit   any other key: skip"


def review(uri: str, of_judge: bool = False) -> None:
    """Show the pairs of the run at `uri`, or of the latest run there, one by one, and write each verdict at once.

    Pairs are those of the worklist, or with `of_judge` the 50 on which a judge and the run differ most.
    """
    run = finished_run(uri)
    rows = queries.disputed(run, _DISPUTED) if of_judge else queries.unjudged(run)
    if not rows:
        print(
            "no pair that the judge has read is left to judge"
            if of_judge
            else "no pair of the worklist is left to judge"
        )
        return
    from dupq.report.explorer import excerpt  # slow to import: after the checks

    columns = ["title", "body_html"]
    texts = {
        key: f"{row['title']}\n{excerpt(row['body_html'])}"
        for key, row in run.question_rows({key for row in rows for key in ends_of(row)}, columns)
    }
    ask = _by_key if sys.stdin.isatty() else _by_line
    index = count = 0
    while index < len(rows):
        row = rows[index]
        print(_screen(row, f"{index + 1} of {len(rows)}", texts), flush=True)
        answer = ask()
        if answer == "q":
            break
        if answer in _VERDICTS:
            titles = dict(zip(ends_of(row), (row["title_left"], row["title_right"]), strict=True))
            queries.judge(run, titles, _VERDICTS[answer])
            count += 1
        index = max(index - 1, 0) if answer == "b" else index + 1
    print(f"{count} verdicts given; the next run with this --output reads {queries.verdicts_file(run)}")


def _screen(row: TableRow, count: str, texts: dict[Key, str]) -> str:
    """Return the text for one pair, without the control characters in it, which a terminal would obey."""
    width = min(shutil.get_terminal_size().columns, 100)
    begin = "\033[2J\033[H" if sys.stdout.isatty() else ""
    paragraphs = [f"{count}   probability {row['probability']:.2f}: {row['evidence']}"]
    for side, (site, number) in zip(("left", "right"), ends_of(row), strict=True):
        text = texts.get((site, number), "No longer in the archive")
        link, name = row[f"link_{side}"], f"{site}/{row[f'own_id_{side}'] or number}"
        paragraphs += ["", f"{name}  {link}" if link else name, *text.split("\n", 1)]
    plain = ("".join(letter if letter.isprintable() else " " for letter in paragraph) for paragraph in paragraphs)
    return begin + "\n".join([*(textwrap.fill(paragraph, width) for paragraph in plain), "", _HELP])


def _by_line() -> str:
    """Return the first character of the next line, or q at the end of the input."""
    line = sys.stdin.readline()
    return line.strip().lower()[:1] if line else "q"


def _by_key() -> str:
    """Return the next key that is pressed, in lower case."""
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
