"""Files of verdicts: written, filled in and read, and what is said of bad ones."""

import pytest

from dupq.errors import DupqError
from dupq.evaluation.verdicts import Verdict, format_verdicts, parse_verdicts

HEADER = "site_left\tquestion_id_left\tsite_right\tquestion_id_right\tverdict\n"


def test_a_verdict_file_is_read_as_it_was_written() -> None:
    verdicts = [
        Verdict("a", 5, "b", 2, "same"),
        Verdict("b", 9, "b", 10, "different"),
        Verdict("a", 1, "a", 2, "unsure"),
    ]
    titles = ["=1+1", "two\tcolumns\r\nor lines", "plain"]
    text = format_verdicts(verdicts, {"title_left": titles})
    assert text.startswith(HEADER.rstrip("\n") + "\ttitle_left\na\t5\tb\t2\tsame\t'=1+1\n")
    assert parse_verdicts(text, "x.tsv") == verdicts
    assert parse_verdicts("\ufeff" + text.replace("\n", "\r\n"), "x.tsv") == verdicts


def test_a_verdict_file_may_have_other_columns_orders_and_unjudged_lines() -> None:
    text = (
        "verdict\tnote\tquestion_id_right\tsite_right\tquestion_id_left\tsite_left\n"
        "same\t\t2\ta\t10\ta\n\n"  # the larger question on the left
        "\tnot yet\t3\ta\t1\ta\n"
        "same\ttwice\t10\ta\t2\ta\n"
    )
    assert parse_verdicts(text, "x.tsv") == [Verdict("a", 2, "a", 10, "same")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.tsv, line 1: no column 'site_left'"),
        ("a\t1\ta\t2\tsame\n", "x.tsv, line 1: no column 'site_left'"),
        (HEADER.replace("verdict", "answer"), "x.tsv, line 1: no column 'verdict'"),
        (HEADER.replace("\n", "\tverdict\n"), "x.tsv, line 1: two columns 'verdict'"),
        (HEADER + "a\t1\ta\t2\n", "x.tsv, line 2: 4 columns; 5 expected"),
        (HEADER + "\na\t1\ta\t2\tyes\n", "x.tsv, line 3: verdict 'yes'; same, different or unsure"),
        (HEADER + "a\t1\ta\tx2\tsame\n", "x.tsv, line 2: 'x2' is no question id"),
        (HEADER + "a\t-1\ta\t2\tsame\n", "x.tsv, line 2: '-1' is no question id"),
        (HEADER + f"a\t{2**48}\ta\t2\tsame\n", "x.tsv, line 2: '281474976710656' is no question id"),
        (HEADER + "\t1\ta\t2\tsame\n", "x.tsv, line 2: a question without a site"),
        (HEADER + "a\t1\ta\t01\tsame\n", "x.tsv, line 2: question '1' of a is paired with itself"),
        (
            HEADER + "a\t1\ta\t2\tsame\na\t3\ta\t4\tsame\na\t2\ta\t1\tdifferent\n",
            "x.tsv, lines 2 and 4: the same pair is 'same' and 'different'",
        ),
    ],
)
def test_a_bad_verdict_file_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DupqError) as caught:
        parse_verdicts(text, "x.tsv")
    assert str(caught.value).startswith(message)
