"""The marks of questions, and what the marks of a pair say."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_evidence import terms_of
from run_tables import question_row as question

from dupq.clusters.evidence import Shared, Words, shared
from dupq.tables import QUESTIONS
from dupq.text import marks as kinds
from dupq.text.languages import is_date, numbers_in
from dupq.text.marks import askers_of, cited_in, formulas_in, marks_of, with_askers
from dupq.text.questions import BUCKETS, Terms
from dupq.text.title_intent import TitleComparer
from dupq.text.written import written_titles

SITE = "cs.stackexchange.com"
FLAGS = Shared._fields[Shared._fields.index("other_numbers") :]
Row = dict[str, Any]


def marks(rows: list[Row], sites: list[str] | None = None, language: str = "english") -> Terms:
    """Return the marks of rows of QUESTIONS; the tokens of a title are its words in lower case."""
    titles = pa.chunked_array([[row["title"].lower() for row in rows]], pa.string())
    table = pa.Table.from_pylist(rows, QUESTIONS).append_column("site", pa.array(sites or [SITE] * len(rows)))
    return with_askers(
        marks_of(table, titles, written_titles(table["title"], language), TitleComparer(language)),
        askers_of(table["owner"], table["site"]),
    )


def flags(one: Row, other: Row, sites: list[str] | None = None) -> dict[str, float]:
    """Return what the marks of questions 1 and 2 say, whichever is the left one."""
    found, nothing = marks([question(1, **one), question(2, **other)], sites), terms_of([{}, {}])
    ends, rarities = np.array([0, 1]), np.ones(1, np.float32)
    both = shared(Words(nothing, nothing, nothing, found), ends, ends[::-1].copy(), rarities)
    values = {name: column.tolist() for name, column in both._asdict().items() if name in FLAGS}
    assert all(left == right for left, right in values.values())
    return {name: left for name, (left, _) in values.items() if left}


MONTHS = ["january", "february", "april", "june", "july", "august", "september", "october", "november", "december"]
NUMBER_WORDS = {"zero": "0", "two": "2", "twelve": "12", "first": "1", "tenth": "10", "ii": "2", "iv": "4"}
WORDS = st.one_of(
    st.sampled_from(["may", "march", "mar", "one", "second", "how", "", "über", *MONTHS, *NUMBER_WORDS]),
    st.from_regex(r"[a-z]{0,2}[0-9]{1,4}", fullmatch=True),
)


@given(st.lists(WORDS))
def test_numbers_are_words_with_a_digit_number_words_and_months(words: list[str]) -> None:
    """Words that usually mean something else are none: "may", "march", "one", "second"."""
    months = {month: f"month {1 + at + (at > 1) + (at > 2)}" for at, month in enumerate(MONTHS)}
    expected = {word for word in words if any("0" <= letter <= "9" for letter in word)}
    expected |= {known[word] for known in (months, NUMBER_WORDS) for word in words if word in known}
    assert numbers_in(" ".join(words)) == expected


def test_years_have_the_digits_of_any_script() -> None:
    assert numbers_in("انتخابات ٢٠١٣") == {"٢٠١٣"}
    words = ("٢٠١٣", "2013", "1899", "2100", "²⁰¹³", "20133", "march")
    assert [is_date(word) for word in words] == [True, True, *(False,) * 5]


@pytest.mark.parametrize(
    ("html", "cited"),
    [
        ('<a href="https://cs.stackexchange.com/questions/12/a-title">this</a>', {"12"}),
        ('<a href="/questions/12/a-title?noredirect=1#comment3">this</a>', {"12"}),
        ('<a href="https://math.stackexchange.com/questions/12">elsewhere</a>', set()),
        ('<a href="//CS.stackexchange.com:443/questions/12">', {"12"}),
        ("https://www.cs.stackexchange.com/q/13", {"13"}),
        ("", set()),
    ],
)
def test_questions_of_the_site_are_cited_in_several_spellings_and_of_other_hosts_none(html: str, cited: set) -> None:
    assert cited_in(html, SITE) == cited


SEVERAL = (
    "<blockquote>\n  <p><strong>Possible Duplicates:</strong><br>\n  "
    f'<a href="https://{SITE}/questions/12/a">A</a><br>\n  <a href="/questions/13/b">B</a>  </p>\n</blockquote>\n\n'
)


@pytest.mark.parametrize(
    "note",
    [
        f'<p><strong>Possible Duplicate:</strong></p>\n<ul><li><a href="//{SITE}/questions/12">A</a></li></ul>',
        '<p>Possible &#68;uplicate: <a href="/q/12">A</a></p>',
        SEVERAL,
    ],
)
def test_a_note_that_names_a_duplicate_cites_nothing_and_hides_no_link_elsewhere(note: str) -> None:
    assert cited_in(note.replace("uplica", "uplexa").replace("&#68;", "D"), SITE) >= {"12"}
    assert cited_in(note + "<p>Why?</p>", SITE) == set()
    for link in (f'<a href="https://{SITE}/questions/{{}}/a">it</a>', "<a href='/q/{}'>it</a>"):
        asks = f"<p>How is {link.format(12)} solved, &amp; how is {link.format(14)}?</p>"
        assert cited_in(note + asks, SITE) == {"12", "14"}


@pytest.mark.parametrize(
    "html",
    [
        '<p>Not a possible duplicate of <a href="/questions/12/a">this</a>, which asks for less.</p>',
        '<p>Possible duplicate?</p><p>See <a href="/questions/12/a">this</a>.</p>',
        '<p>Possible Duplicate: none</p><p>See <a href="/questions/12/a">this</a>.</p>',
    ],
)
def test_text_about_duplicates_that_is_no_note_cites(html: str) -> None:
    assert cited_in(html, SITE) == {"12"}


def test_a_note_does_not_make_text_a_link() -> None:
    """Where a note is cut out, the rest is written anew, with plain quotation marks in its text."""
    assert cited_in(f"{SEVERAL}<p>&quot;/q/14</p>", SITE) == set()


def test_formulas_are_what_stands_between_dollar_signs_without_white_space() -> None:
    assert formulas_in("<p>Is $a + b$ or $$ a+b $$ the same as $c\n d$?") == {"a+b", "cd"}
    assert formulas_in("$$a$$b$$c$$ and \\$5, \\$6") == {"a", "c"}
    for other in ("", "It costs 5 dollars, or $5.", "costs $5 here and $6", "$HOME; ls $PATH"):
        assert formulas_in(other) == set()


def test_a_meta_site_is_cited_by_its_old_address_too() -> None:
    assert cited_in('<a href="http://meta.cs.stackexchange.com/q/12">', "cs.meta.stackexchange.com") == {"12"}


def mark(kind: int, text: str) -> int:
    return kind * BUCKETS + xxhash.xxh3_64_intdigest(text.encode()) % BUCKETS


def test_the_marks_of_a_question_are_sorted_and_each_counts_once() -> None:
    body = '<p>$x^2$, $x^2$ <a href="/q/3">like</a> <a href="/q/3">this</a></p>'
    rows = [
        question(7, title="Election 2014 2014 in $n$", body_html=body, owner="42"),
        question(8, owner="somebody who is gone"),
    ]
    found = marks(rows)
    one, other = (found.ids[start:end].tolist() for start, end in pairwise(found.offsets.tolist()))
    expected = [(kinds.SELF, f"{SITE}/7"), (kinds.NUMBER, "2014"), (kinds.ASKER, f"{SITE}/42")]
    expected += [(kinds.CITED, f"{SITE}/3"), (kinds.FORMULA, "n"), (kinds.FORMULA, "x^2")]
    assert {each for each in one if each // BUCKETS in dict(expected)} == {mark(*each) for each in expected}
    assert sum(each // BUCKETS == kinds.ASKING for each in one) == 1
    assert other == [mark(kinds.SPELLING, ""), mark(kinds.SELF, f"{SITE}/8")]  # no name, nothing asked, an empty title
    assert one == sorted(set(one))
    assert one[-1] == mark(kinds.SELF, f"{SITE}/7")  # where the kernel looks for it
    assert found.counts.tolist() == [1] * len(found.ids)
    assert (found.offsets.dtype, found.ids.dtype, found.counts.dtype) == (np.int64, np.int32, np.uint8)


LINK = '<a href="/questions/2">like this one</a>'
SIBLINGS = {"other_numbers": 1, "other_asking": 1}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"title": "election 2013"}, {"title": "election 2014"}, SIBLINGS | {"other_date": 1}),
        ({"title": "sum of two numbers"}, {"title": "the sum of 2 numbers"}, {"other_asking": 1, "other_words": 1}),
        ({"title": "meeting in june"}, {"title": "meeting in july"}, SIBLINGS | {"other_date": 1}),
        ({"title": "election june 2014"}, {"title": "election 2014"}, SIBLINGS),
        ({"title": "string to float"}, {"title": "float to string"}, {"other_asking": 1}),
        ({"title": "should i bake bread"}, {"title": "baking the bread"}, {"same_asking": 1}),
        ({"title": "bread"}, {"title": "the"}, {}),
        ({"body_html": "$a$ $b$ $c$"}, {"body_html": "$b$ $d$"}, {"other_formulas": 0.75}),
        ({"body_html": "$a$"}, {"body_html": "$a$"}, {}),
        ({"owner": "7"}, {"owner": "7"}, {"same_asker": 1}),
        ({"owner": "7"}, {"owner": "8"}, {}),
        ({"body_html": LINK}, {}, {"cites": 1}),
        ({"body_html": f"<p>Possible Duplicate: {LINK}</p>"}, {}, {}),
        ({"body_html": LINK}, {"body_html": LINK}, {"cites": 1}),  # both: one of them the other
        ({}, {"body_html": LINK}, {}),  # itself
        ({"body_html": LINK.replace("2", "3")}, {"body_html": LINK.replace("2", "3")}, {}),  # a third one
    ],
)
def test_what_marks_say_of_a_pair(one: Row, other: Row, said: dict[str, float]) -> None:
    assert flags(one, other) == said


ASKS_OTHERS = {"other_asking": 1}
TURNED_ROUND, FILLED_IN = ASKS_OTHERS | {"other_order": 1}, ASKS_OTHERS | {"other_words": 1}
NICE = "how do i get from {} to {}"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("can i travel with a visa", "can i travel without a visa", ASKS_OTHERS | {"other_negation": 1}),
        ("do not fly without a passport", "why fly without any passport", FILLED_IN),  # both deny
        ("", "not", {"other_negation": 1}),
        (NICE.format("nice", "monaco"), NICE.format("monaco", "nice"), TURNED_ROUND | {"other_words": 1}),
        ("is the train or is the bus faster", "is the bus or is the train faster", TURNED_ROUND),
        ("what if a < b", "what if a > b", TURNED_ROUND),  # other signs
        ("what if a < b", "what if a < b", {"same_asking": 1}),
        ("missing points after my flight", "points missing after my flight", ASKS_OTHERS),  # spelt alike
        ("is tap water safe in egypt", "is tap water safe in hong kong", FILLED_IN),
        ("is tap water safe in egypt", "is tap water safe in new york city", ASKS_OTHERS),
        ("how do i sharpen a knife", "how do i sharpen knives", ASKS_OTHERS),
        ("free wifi at the airport", "free wi fi at the airport", ASKS_OTHERS),
        ("free wifi at the airport", "free food at the airport", FILLED_IN),
    ],
)
def test_titles_that_deny_turn_round_or_fill_in_what_another_asks(one: str, other: str, said: dict[str, float]) -> None:
    assert flags({"title": one}, {"title": other}) == said


def test_users_and_questions_of_two_sites_are_others_though_their_numbers_are_the_same() -> None:
    sites = [SITE, "math.stackexchange.com"]
    assert flags({"owner": "7", "body_html": LINK}, {"owner": "7"}, sites) == {}
