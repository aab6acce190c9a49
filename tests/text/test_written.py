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
OTHER = [  # troubles that other people reported of other programs
    ("What does [] mean in JavaScript?", "What does {} mean in JavaScript?"),
    ("Why is 🙃 sent?", "Why is 🙂 sent?"),
    ("Is (0, 1) open?", "Is [0, 1] open?"),
    ("What is f' for", "What is f for"),
    ("What does ?? do?", "What does ? do?"),
    ("Two colons :: in Ruby", "One colon : in Ruby"),
    ("cd .. in DOS", "cd ... in DOS"),
    ("Is ♠ trump?", "Is ♥ trump?"),
    ("Press ⌘ first", "Press ⌥ first"),
    ("See § here", "See ¶ here"),
    ("What is a ` in Bash?", "What is a ' in Bash?"),
    ("Is 10⁶ large?", "Is 106 large?"),
    ("Solve x² = 5", "Solve x2 = 5"),
    ("A laser of 10 mW", "A laser of 10 MW"),
    ("How many Mb in 100 MB", "How many MB in 100 Mb"),
    ("What is mkdir -p", "What is mkdir -P"),
    ("what does mkdir -p do", "what does mkdir -P do"),
    ("Give us the law", "Give US the law"),
    ("Where column a and column b are null", "Where column a or column b are null"),
    ("Is he right", "Is she right"),
    ("Can I go", "Should I go"),
    ("What was the price", "What will the price be"),
    ("My card at your bank", "Your card at my bank"),
    ("Convert Mb to MB", "Convert MB to Mb"),
    ("How fast is a line of 5 Mb", "How fast is a line of 5 MB"),
    ("Why is it so", "Why was it so"),
    ("What does mas mean", "What does más mean"),
    ("What is f(x) in Latin", "What is F(x) in Latin"),
    ("What is p̂ here", "What is p here"),
    ("Add –5 here", "Add 5 here"),
    ("tar -xf here", "tar -Xf here"),
    ("Why 3.5 inches", "Why 3/5 inches"),
    ("How to say 'Thanks!'", "How to say 'Please!'"),
]
SAME = [
    ("english", "How high is a meter? Thanks!", "How high is a meter?"),
    ("english", "How high is a meter (urgent)", "How high is a meter"),
    ("english", "Please help: how high is a meter", "How high is a meter?"),
    ("english", "[SOLVED] How high is a meter", "How high is a meter"),
    ("german", "Wie hoch ist ein Meter? Danke!", "Wie hoch ist ein Meter?"),
    ("english", "What's a meter", "What is a meter"),
    ("english", "Free Wi-Fi", "Free WiFi"),
    ("russian", "Как открыть счёт в банке", "Как открыть счет в банке"),
    ("arabic", "كَيْفَ أطبـــخ الأرز", "كيف اطبخ الارز"),
    ("other", "چگونه کیک بپزم", "چگونه كيك بپزم"),
    ("other", "מה זה שָׁלוֹם", "מה זה שלום"),
    ("other", "नल में ३ मीटर", "नल में 3 मीटर"),
    ("english", "A rope of 5mm", "A rope of 5 mm"),
    ("english", "The first 10,000 primes", "The first 10000 primes"),
    ("english", "Add ½ cup", "Add 1/2 cup"),
    ("english", "US visa and passport", "U.S. visa – and “passport”"),
    ("english", "How to convert pdf to JPG in MATLAB", "how to convert PDF to jpg in matlab"),
    ("english", "Leave at 3 PM for JFK", "LEAVE AT 3 PM FOR JFK"),
    ("english", "How to buy us dollars", "How To Buy Us Dollars"),
    ("french", "Erreur : que faire ?", "Erreur: que faire?"),
    ("english", "A variant of chess (?)", "A variant of chess"),
    ("english", "What is -5 + 3", "What is −5 + 3"),
]
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


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_titles_that_differ_in_what_tokens_lack_are_no_copies(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(("language", "one", "other"), SAME)
def test_titles_in_another_spelling_or_with_politeness_are_copies(language: str, one: str, other: str) -> None:
    assert same(one, other, language)


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
