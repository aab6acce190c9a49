"""Which titles ask the same."""

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.text.languages import one_spelling
from dupq.text.title_intent import TitleComparer, _errors, is_typing_error
from dupq.text.tokens import tokens
from dupq.text.written import Title, title_of, written_titles

with (Path(__file__).parent / "titles_alike.tsv").open(encoding="utf-8", newline="") as lines:
    ROWS = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def title(text: str, language: str = "english") -> Title:
    return title_of(written_titles(pa.array([text]), language)[0].as_py(), " ".join(tokens(text)))


@pytest.mark.parametrize("row", ROWS)
def test_titles_ask_the_same_or_what_tells_them_apart_is_seen(row: dict[str, str]) -> None:
    comparer, (one, other) = TitleComparer(row["language"], lambda word: True), (row["title"], row["another"])
    left, right = title(one, row["language"]), title(other, row["language"])
    assert comparer.same(left, right) is comparer.same(right, left) is (row["asks"] == "same")


def test_arabic_words_are_compared_without_the_article_and_not_by_stems() -> None:
    comparer = TitleComparer("arabic")
    assert comparer.same(title("أين تقع جامعة الدول", "arabic"), title("أين تقع الجامعة الدول", "arabic"))
    assert not comparer.same(title("أين تقع الجامعة"), title("أين تقع الجامع"))


def test_a_word_that_others_use_is_no_typing_error() -> None:
    left, right = title("Cheap trial for the court"), title("Cheap trail for the court")
    assert TitleComparer("english", lambda word: word == "trail").same(left, right)
    assert not TitleComparer("english", lambda word: False).same(left, right)


@pytest.mark.parametrize(
    ("language", "asks", "denies"),
    [
        ("english", "Can I travel with a visa", "Can I travel without a visa"),
        ("english", "Can I fly", "Can't I fly"),
        ("english", "Can I fly", "Why can I not fly"),
        ("french", "Voyager avec visa", "Voyager sans visa"),
        ("german", "Reisen mit Visum", "Reisen ohne Visum"),
        ("italian", "Viaggiare con visto", "Viaggiare senza visto"),
        ("portuguese", "Viajar com visto", "Viajar sem visto"),
        ("russian", "Поездка с визой", "Поездка без визы"),
        ("spanish", "Viajar con visado", "Viajar sin visado"),
        ("arabic", "السفر مع تأشيرة", "السفر بدون تأشيرة"),
        ("german", "No man's land", "Niemand darf nicht"),  # a word of another language denies nothing
    ],
)
def test_a_title_denies_by_a_word_of_its_language(language: str, asks: str, denies: str) -> None:
    comparer = TitleComparer(language)
    assert not comparer.negates(title(asks))
    assert comparer.negates(title(denies))


def test_in_a_language_without_a_list_no_title_denies() -> None:
    assert not any(TitleComparer("finnish").negates(title(text)) for text in ("Ei viisumia", "no", "without", ""))


def test_a_template_lacks_one_telling_word_or_two_in_a_row() -> None:
    found = sorted(TitleComparer("english").templates(title("Is the tap water safe in Egypt?")))
    assert found[:4] == ["_ safe egypt", "_ water safe egypt", "tap _ egypt", "tap _ safe egypt"]
    assert found[4:] == ["tap water _", "tap water _ egypt", "tap water safe _"]


@pytest.mark.parametrize(
    ("one", "other", "are_spelt_alike"),
    [
        ("How do I sharpen a knife?", "How do I sharpen knives?", True),
        ("Free WiFi at the airport", "Free Wi-Fi at the airport", True),
        ("Missing points after my flight", "Points missing after my flight", True),
        ("transit visa UK", "UK transit visa", True),  # a word two places away
        ("How do I get from Nice to Monaco?", "How do I get from Monaco to Nice?", False),
        ("Is tap water safe in Egypt", "Is tap water safe in Hong Kong", False),
        ("knife", "knives", True),
        ("Free WiFi at the airport", "Free Wi-Fi in Paris", False),
    ],
)
def test_what_is_only_spelt_otherwise_or_swapped_is_spelt_alike(one: str, other: str, are_spelt_alike: bool) -> None:
    comparer = TitleComparer("english")
    common = set(comparer.spellings(title(one))) & set(comparer.spellings(title(other)))
    assert bool(common) is are_spelt_alike


def test_titles_of_rows_are_compared_as_single_ones_are() -> None:
    texts = [row[side] for row in [*ROWS[:14], *ROWS[-8:]] for side in ("title", "another")]
    words = pa.array([title(text).words for text in texts])
    left = pa.array(range(len(texts))).to_numpy()
    comparer = TitleComparer("english", lambda word: True)
    found = comparer.same_pairs(words, written_titles(pa.array(texts), "english"), left, left[::-1])
    expected = [comparer.same(title(one), title(other)) for one, other in zip(texts, texts[::-1], strict=True)]
    assert found.tolist() == expected
    assert comparer.same_pairs(words[:0], words[:0], left[:0], left[:0]).tolist() == []


@pytest.mark.parametrize(
    ("word", "other", "expected"),
    [
        ("wihch", "which", True),
        ("whch", "which", True),
        ("vissa", "visa", True),
        ("vias", "visa", True),
        ("defanitly", "definitely", True),
        ("viza", "visa", False),  # of four letters only two may be swapped: "Iran", "Iraq"
        ("export", "import", False),
        ("java8", "java9", False),
        ("austria", "australia", False),
        ("korea", "korean", False),
    ],
)
def test_a_typing_error_is_a_letter_in_a_word(word: str, other: str, expected: bool) -> None:
    assert is_typing_error(word, other) is is_typing_error(other, word) is expected


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_errors_are_counted_as_the_definition_counts_them(word: str, other: str) -> None:
    def distance(i: int, j: int) -> int:
        if min(i, j) == 0:
            return max(i, j)
        least = min(
            distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (word[i - 1] != other[j - 1])
        )
        if i > 1 and j > 1 and word[i - 1] == other[j - 2] and word[i - 2] == other[j - 1]:
            least = min(least, distance(i - 2, j - 2) + 1)
        return least

    assert _errors(word, other) == distance(len(word), len(other))


TITLES = st.text("aB5 -'\"()[].,?!:/²₂üёא٣🙂’“”—", max_size=12)


def same(one: str, other: str, language: str = "english") -> bool:
    comparer, pair = TitleComparer(language), (title(one, language), title(other, language))
    assert comparer.same(*pair) is comparer.same(*pair[::-1])
    return comparer.same(*pair)


def test_of_the_sixty_pairs_none_are_copies_and_all_copies_are() -> None:
    lines = (Path(__file__).parent / "title_pairs.tsv").read_text("utf-8").splitlines()
    pairs = [line.split("\t") for line in lines[1:]]
    assert len(pairs) == 60
    assert [pair for pair in pairs if same(pair[1], pair[2])] == []
    assert [pair for pair in pairs if not same(pair[1], pair[3])] == []


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


@given(TITLES)
def test_every_title_is_compared_and_white_space_says_nothing(text: str) -> None:
    assert title(f"  {text}\t\n") == title(" ".join(text.split()))
    assert same(text, text)


@given(TITLES)
def test_one_spelling_is_reached_at_once(text: str) -> None:
    assert one_spelling(one_spelling(text)) == one_spelling(text)
