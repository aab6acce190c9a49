"""Judge the pairs of a run's worklist in a terminal, a key press each; the next run reads the verdicts."""

import os
import shutil
import sys
import textwrap

from dupq.evaluation.verdicts import UNDONE
from dupq.runs import queries
from dupq.runs.reader import Key, Run, TableRow, ends_of, finished_run, link

_VERDICTS = {"s": "same", "d": "different", "u": "unsure"}
_DISPUTED = 50  # pairs: ten minutes
_HELP = "s same   d different   u unsure   z undo   b back   q quit   any other key: skip"


def review(uri: str, of_judge: bool = False, of_past: bool = False) -> None:
    """Show the pairs of the run at `uri`, or of the latest run there, one by one, and write each verdict at once.

    Pairs are those of the worklist; with `of_judge` the 50 on which a judge and the run differ most, with `of_past`
    those that are judged already.
    """
    run = finished_run(uri)
    known = queries.known_verdicts(run)
    rows = _past(run, known) if of_past else queries.disputed(run, _DISPUTED) if of_judge else queries.unjudged(run)
    if not rows:
        left = "that the judge has read is left to judge" if of_judge else "of the worklist is left to judge"
        print(f"no pair {'is judged yet' if of_past else left}")
        return
    from dupq.report.summary import next_run, program  # slow to import: after the checks

    before = set(known)
    given = _judge_each(run, rows, rows if of_judge else run.worklist.arrow().to_pylist(), known)
    undone = len(before.difference(known))
    counts = f"{given} verdicts given" + (f", {undone} taken back" if undone else "")
    print(f"{counts}; the next run with this --output reads {queries.verdicts_file(run)}")
    if given or undone:
        print(f"next: {program()}{next_run(run).removeprefix('dupq')}")


def _past(run: Run, known: dict[tuple[Key, Key], str]) -> list[TableRow]:
    """Return the pairs that are judged already as rows of the worklist, without probability and evidence."""
    questions = dict(run.question_rows({key for pair in known for key in pair}, ["title", "own_id", "url"]))
    rows: list[TableRow] = []
    for pair in known:
        row: TableRow = {}
        for side, key in zip(("left", "right"), pair, strict=True):
            one = questions.get(key, {})
            row |= {f"site_{side}": key[0], f"question_id_{side}": key[1], f"title_{side}": one.get("title")}
            row |= {f"own_id_{side}": one.get("own_id"), f"link_{side}": link(key, one.get("url"))}
        rows.append(row)
    return rows


def _judge_each(run: Run, rows: list[TableRow], listed: list[TableRow], known: dict[tuple[Key, Key], str]) -> int:
    """Ask for a verdict on each of `rows`, keep it in `known`, and return how many were given; tally those `listed`."""
    from dupq.report.explorer import excerpt

    texts = {
        key: f"{row['title']}\n{excerpt(row['body_html'])}"
        for key, row in run.question_rows({key for row in rows for key in ends_of(row)}, ["title", "body_html"])
    }
    ask = _by_key if sys.stdin.isatty() else _by_line
    index, given = 0, list[int]()  # rows that were judged now, the last one at the end
    while index < len(rows):
        row, pair = rows[index], ends_of(rows[index])
        head = f"{index + 1} of {len(rows)}" + (f"   judged {known[pair]}" if pair in known else "")
        print(_screen(row, head, texts, tally(listed, known)), flush=True)
        answer = ask()
        if answer == "q":
            break
        if answer == "z" and pair not in known and given:
            index = given[-1]
            row, pair = rows[index], ends_of(rows[index])
        if answer in _VERDICTS or (answer == "z" and pair in known):
            titles = dict(zip(pair, (row["title_left"], row["title_right"]), strict=True))
            queries.judge(run, titles, _VERDICTS.get(answer, UNDONE))
            given = [other for other in given if other != index]
        if answer in _VERDICTS:
            known[pair] = _VERDICTS[answer]
            given.append(index)
        elif answer == "z":
            known.pop(pair, None)
            continue
        index = max(index - 1, 0) if answer == "b" else index + 1
    return len(given)


def tally(rows: list[TableRow], known: dict[tuple[Key, Key], str]) -> str:
    """Return how many of the judged pairs among `rows` are the same and were expected to be; "" if none is judged."""
    judged = [row for row in rows if known.get(ends_of(row)) in ("same", "different")]
    if not judged:
        return ""
    same = sum(known[ends_of(row)] == "same" for row in judged)
    return f"{same} of {len(judged)} same; dupq expected {round(sum(row['probability'] for row in judged), 1):g}"


def _screen(row: TableRow, head: str, texts: dict[Key, str], foot: str) -> str:
    """Return the text for one pair, without the control characters in it, which a terminal would obey."""
    width = min(shutil.get_terminal_size().columns, 100)
    begin = "\033[2J\033[H" if sys.stdout.isatty() else ""
    told = f"   probability {row['probability']:.2f}: {row['evidence']}" if "probability" in row else ""
    paragraphs = [head + told]
    for side, (site, number) in zip(("left", "right"), ends_of(row), strict=True):
        text = texts.get((site, number), "No longer in the archive")
        address, name = row[f"link_{side}"], f"{site}/{row[f'own_id_{side}'] or number}"
        paragraphs += ["", f"{name}  {address}" if address else name, *text.split("\n", 1)]
    plain = ("".join(letter if letter.isprintable() else " " for letter in paragraph) for paragraph in paragraphs)
    lines = [*(textwrap.fill(paragraph, width) for paragraph in plain), "", *[foot] * bool(foot), _HELP]
    return begin + "\n".join(lines)


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
    return pressed.decode(errors="replace").lower() or "q"
