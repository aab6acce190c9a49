"""Files of verdicts: written, filled in and read, and what is said of bad ones."""

import csv
import io
import re
from pathlib import Path

import pytest

from dupq.errors import DupqError
from dupq.evaluation.verdicts import Verdict, add_verdict, format_verdicts, last_verdicts, parse_verdicts

HEADER = "site_left\tquestion_id_left\tsite_right\tquestion_id_right\tverdict\n"


def test_a_verdict_file_is_read_as_it_was_written() -> None:
    verdicts = [
        Verdict("a", 5, "b", 2, "same"),
        Verdict("b", 9, "b", 10, "different"),
        Verdict("a", 1, "a", 2, "unsure"),
    ]
    titles = ["=1+1", "two\tcolumns\r\nor lines", "plain"]
    text = format_verdicts(verdicts, {"title_left": titles})
    assert text.startswith("pair\t" + HEADER.rstrip("\n") + "\ttitle_left\np5-2\ta\t5\tb\t2\tsame\t'=1+1\n")
    assert parse_verdicts(text, "x.tsv") == verdicts
    assert parse_verdicts("\ufeff" + text.replace("\n", "\r\n"), "x.tsv") == verdicts


@pytest.mark.parametrize(
    "title", ['"=1+1"', '"an open quote', "\u200b=1+1", "\ufeff@a", "\u3000-1", "\uff1d1+1", "'=1+1", "+1"]
)
def test_a_title_that_a_spreadsheet_would_run_or_not_end_gets_an_apostrophe(title: str) -> None:
    text = format_verdicts([Verdict("a", 1, "a", 2, "same")], {"title_left": [title]})
    assert text.splitlines()[1].split("\t")[-1] == f"'{' '.join(title.split())}"


def test_a_verdict_file_may_have_other_columns_orders_and_unjudged_lines() -> None:
    text = (
        "verdict\tnote\tquestion_id_right\tsite_right\tquestion_id_left\tsite_left\n"
        "same\t\t2\ta\t10\ta\n\n"  # the larger question on the left
        "\tnot yet\t3\ta\t1\ta\n"
        "same\ttwice\t10\ta\t2\ta\n"
    )
    assert parse_verdicts(text, "x.tsv") == [Verdict("a", 2, "a", 10, "same")] * 2


HASHES = 281474976710655, 140737488355329  # ids of 15 digits, as texts have that are no numbers


@pytest.mark.parametrize("separator", ["\t", ",", ";"])
@pytest.mark.parametrize("places", [14, 5, 1, None])
def test_what_a_spreadsheet_saves_is_read_by_the_token(places: int | None, separator: str) -> None:
    """Rows may be sorted and filtered, ids rounded, columns moved, and fields quoted."""
    verdicts = [Verdict("a", 3, "b", 4, "unsure"), Verdict("a", HASHES[0], "b", HASHES[1], "same")]
    rows = [line.split("\t") for line in format_verdicts(verdicts, {"title": ['x, "y"; z', "1"]}).splitlines()]
    rows = [[*row[3:], *row[:3]] for row in (rows[0], rows[2], rows[1])]
    shown = {str(one): "####" if places is None else f"{one:.{places}E}".replace(".", ",") for one in HASHES}
    rows[1] = [shown.get(field, field) for field in rows[1]]
    sheet = io.StringIO()
    csv.writer(sheet, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(rows)
    assert parse_verdicts(sheet.getvalue(), "x.csv") == verdicts[::-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p1-2\ta\t7\ta\t2\tsame", "line 2: question '7' is not that of its pair; empty it to judge another pair"),
        ("1-2\ta\t1\ta\t2\tsame", "line 2: pair '1-2' is not as dupq wrote it; restore it, or leave it empty"),
        ('p1-2\ta\t1\ta\t2\t"same', "line 2: unexpected end of data; is a quote closed?"),
    ],
)
def test_a_token_that_does_not_fit_is_said(line: str, said: str) -> None:
    with pytest.raises(DupqError, match=re.escape(said)):
        parse_verdicts(f"pair\t{HEADER}{line}\n", "x.tsv")
    assert parse_verdicts(f"pair\t{HEADER}\ta\t7\ta\t2\tsame\n", "x.tsv") == [Verdict("a", 2, "a", 7, "same")]


def test_of_contradicting_verdicts_the_last_line_of_the_last_file_wins_and_they_are_counted(tmp_path: Path) -> None:
    first = "a\t1\ta\t2\tsame\na\t3\ta\t4\tsame\na\t2\ta\t1\tdifferent\n"  # a question may be on either side
    for name, lines in (("one.tsv", first), ("two.tsv", "a\t3\ta\t4\tunsure\na\t1\ta\t2\tdifferent\n")):
        (tmp_path / name).write_text(HEADER + lines)
    found = last_verdicts([str(tmp_path / "one.tsv"), str(tmp_path / "two.tsv")])
    assert found == ([Verdict("a", 1, "a", 2, "different"), Verdict("a", 3, "a", 4, "unsure")], 2)


def test_a_verdict_is_taken_back_until_the_next_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "verdicts.tsv")
    for verdict, left in (("same", ["same"]), ("undone", []), ("unsure", ["unsure"])):
        add_verdict(uri, Verdict("a", 1, "a", 2, verdict), {})
        found, _ = last_verdicts([uri])
        assert [row.verdict for row in found] == left
    (tmp_path / "later.tsv").write_text(HEADER + "a\t2\ta\t1\tUndone\n")
    assert last_verdicts([uri, str(tmp_path / "later.tsv")])[0] == []


def test_a_verdict_is_added_to_a_file_with_the_columns_that_it_has(tmp_path: Path) -> None:
    uri = str(tmp_path / "made" / "verdicts.tsv")
    add_verdict(uri, Verdict("a", 1, "a", 2, "same"), {"title_left": "=1\tx"})
    whole = "pair\t" + HEADER.replace("\n", "\ttitle_left\n") + "p1-2\ta\t1\ta\t2\tsame\t'=1 x\n"
    assert Path(uri).read_text() == whole
    Path(uri).write_text("\ufeffnote\t" + HEADER.replace("\n", "\r\n") + "mine\ta\t1\ta\t2\tsame")  # no end of line
    add_verdict(uri, Verdict("a", 3, "a", 4, "unsure"), {"title_left": "x"})
    assert [row.verdict for row in last_verdicts([uri])[0]] == ["same", "unsure"]
    assert Path(uri).read_text().endswith("\n\ta\t3\ta\t4\tunsure\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.tsv, line 1: no column 'site_left'"),
        (HEADER.replace("\n", "\tverdict\n"), "x.tsv, line 1: two columns 'verdict'"),
        (HEADER + "a\t1\ta\t2\n", "x.tsv, line 2: 4 columns; 5 expected"),
        (HEADER + "\na\t1\ta\t2\tyes\n", "x.tsv, line 3: verdict 'yes'; same, different or unsure"),
        (HEADER + "a\t1\ta\tx2\tsame\n", "x.tsv, line 2: 'x2' is no question id"),
        (HEADER + f"a\t{2**48}\ta\t2\tsame\n", "x.tsv, line 2: '281474976710656' is no question id"),
        (HEADER + "\t1\ta\t2\tsame\n", "x.tsv, line 2: a question without a site"),
        (HEADER + "a\t1\ta\t01\tsame\n", "x.tsv, line 2: question '1' of a is paired with itself"),
    ],
)
def test_a_bad_verdict_file_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DupqError) as caught:
        parse_verdicts(text, "x.tsv")
    assert str(caught.value).startswith(message)
