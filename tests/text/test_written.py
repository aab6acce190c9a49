"""What is compared of titles beside their tokens: signs, case, small words, other spellings, politeness."""

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.text.languages import one_spelling
from dupq.text.title_intent import TitleComparer
from dupq.text.tokens import tokens
from dupq.text.written import Title, title_of, written_titles

with (Path(__file__).parent / "title_pairs.tsv").open(encoding="utf-8", newline="") as lines:
    PAIRS = [tuple(row) for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
TEXTS = st.text("aB5 -'\"()[].,?!:/²₂üёא٣🙂’“”—", max_size=12)


def title(text: str, language: str = "english") -> Title:
    return title_of(written_titles(pa.array([text]), language)[0].as_py(), " ".join(tokens(text)))


def same(one: str, other: str, language: str = "english") -> bool:
    comparer, pair = TitleComparer(language), (title(one, language), title(other, language))
    assert comparer.same(*pair) is comparer.same(*pair[::-1])
    return comparer.same(*pair)


def test_of_the_sixty_pairs_none_are_copies_and_all_copies_are() -> None:
    assert len(PAIRS) == 60
    assert [pair for pair in PAIRS if same(pair[1], pair[2])] == []
    assert [pair for pair in PAIRS if not same(pair[1], pair[3])] == []


@pytest.mark.parametrize("kept", ["Thanks!", "Please", "Urgent care", "Help desk: what is it", "How to say thanks"])
def test_a_title_of_polite_words_alone_keeps_them(kept: str) -> None:
    assert title(kept).words == " ".join(tokens(kept))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do I need a visa?", Title("do i need a visa", "")),
        ("What does :: do in C++?", Title("what does do in c++", ":: ++")),
        ("Visa: and then", Title("visa and then", "")),
        ("“Visa” (outdoor), e.g. 'this' – or that…", Title("visa outdoor e g this or that", "")),
        ("f(x) = x² in 5MB", Title("f x x2 in 5 mb", "( ) = ^", "f in MB")),
        ("Is http://a.b/c?d=1 down", Title("is LINK down", "http://a.b/c?d=1", "d")),
        (r"Is $a < b$ \emph", Title("is a b emph", r"$a<b$ \emph", "a")),
    ],
)
def test_what_is_compared_of_a_title(text: str, expected: Title) -> None:
    assert title(text) == expected


def test_choices_are_of_short_words_with_their_case_and_of_small_words() -> None:
    choices = TitleComparer("english").choices(title("Can my Mb be MB and his mW"))
    assert sorted(choices.values()) == ["Mb MB", "and", "can could may might", "i'm my mine he him his", "mW"]


@given(TEXTS)
def test_every_title_is_compared_and_white_space_says_nothing(text: str) -> None:
    assert title(f"  {text}\t\n") == title(" ".join(text.split()))
    assert same(text, text)


@given(TEXTS)
def test_one_spelling_is_reached_at_once(text: str) -> None:
    assert one_spelling(one_spelling(text)) == one_spelling(text)
