"""Which titles ask the same."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.near_duplicates.asking import Title, TitleComparer, _errors, is_typing_error, signs_of
from dupq.text.tokens import tokens

SAME = [
    ("Don't panic", "DON’T PANIC!"),
    ("Bringing (outdoor) food to Japan", "Bringing outdoor food  to Japan?"),
    ("Visa for Norway", "A visa for Norway"),
    ("Best bakery", "Best bakeries"),
    ("E-mail set‐up — how?", "email setup - how"),
    ("Can't I fly", "Can I not fly"),
    ("Is this C++?", "Is this C++"),
    ("I love C++!", "I love C++"),
    ("What is a C++-style cast?", "What is a C++ style cast?"),
    ("Is 100%?! enough", "Is 100% enough"),
    (r"What is $a^k b$?", r"What is $ a^kb $"),
    ("Randomized string searching", "Randomizd string searching"),
    ("What is the best route", "Waht is the best rotue"),
    ("Passport, ticket/visa", "Passport; ticket, visa"),
    ("Wie heißt die Straße", "Wie heisst die STRASSE"),
    ("Which?", "What?"),
    ("", "Visa for Norway"),
]
OTHER = [
    ("Visa for Norway", "Visa for Poland"),
    ("Visa for Norway", "Urgent visa for Norway"),
    ("Visa for Norway", "Visa"),
    ("Taxes for 2013", "Taxes for 2014"),
    ("Taxes for 2013", "Taxes"),
    ("The first term", "The third term"),
    ("Events in June", "Events in July"),
    ("Eventos de junho", "Eventos de julho"),
    ("Python 3.5", "Python 35"),
    ("Is it allowed", "Is it not allowed"),
    ("Travel with a visa", "Travel without a visa"),
    ("How to install it", "How to uninstall it"),
    ("Is the graph directed", "Is the graph undirected"),
    ("Before arrival", "After arrival"),
    ("Travel to Japan", "Travel from Japan"),
    ("Float to string", "String to float"),
    ("From A to B", "From B to A"),
    ("Why?", "Which?"),
    ("Can salt cause it", "How can salt cause it"),
    ("if (a == b)", "if (a != b)"),
    ("a < b", "a > b"),
    ("Learning C", "Learning C++"),
    ("Learning C", "Learning C#"),
    ("What does ++ do?", "What does -- do?"),
    ("What does -> do?", "What does => do?"),
    (r"Prove $\forall x$", r"Prove $\exists x$"),
    (r"Is $n$ odd", r"Is $N$ odd"),
    (r"The \subset sign", r"The \supset sign"),
    ("5 mod 3", "-5 mod 3"),
    ("Size of n!", "Size of n"),
    ("A 5€ note", "A 5£ note"),
    ("What is http://a.b/1", "What is http://a.b/2"),
    ("Visa for Austria", "Visa for Australia"),
    ("Korea", "Korean"),
]


def title(text: str) -> Title:
    return Title(" ".join(tokens(text)), signs_of(pa.array([text]))[0].as_py())


def test_arabic_words_are_compared_without_the_article_and_not_by_stems() -> None:
    comparer = TitleComparer("arabic")
    assert comparer.same(title("أين تقع جامعة الدول"), title("أين تقع الجامعة الدول"))
    assert not comparer.same(title("أين تقع الجامعة"), title("أين تقع الجامع"))


@pytest.mark.parametrize(("left", "right"), SAME)
def test_what_a_reader_takes_for_the_same_is_the_same(left: str, right: str) -> None:
    comparer = TitleComparer("german" if "Wie" in left else "english", lambda word: True)
    assert comparer.same(title(left), title(right))
    assert comparer.same(title(right), title(left))


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_whatever_changes_what_is_asked_is_another_question(left: str, right: str) -> None:
    comparer = TitleComparer("english", lambda word: True)
    assert not comparer.same(title(left), title(right))
    assert not comparer.same(title(right), title(left))


def test_a_word_that_others_use_is_no_typing_error() -> None:
    left, right = title("Cheap trial for the court"), title("Cheap trail for the court")
    assert TitleComparer("english", lambda word: word == "trail").same(left, right)
    assert not TitleComparer("english", lambda word: False).same(left, right)


def test_titles_of_rows_are_compared_as_single_ones_are() -> None:
    texts = [one for pair in (*SAME[:14], *OTHER[-8:]) for one in pair]
    words = pa.array([title(text).words for text in texts])
    left = pa.array(range(len(texts))).to_numpy()
    comparer = TitleComparer("english", lambda word: True)
    found = comparer.same_pairs(words, signs_of(pa.array(texts)), left, left[::-1])
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
        ("seperate", "separate", True),
        ("defanitly", "definitely", True),
        ("viza", "visa", False),  # of four letters only two may be swapped: "Iran", "Iraq"
        ("export", "import", False),
        ("tree", "three", False),
        ("java8", "java9", False),
        ("austria", "australia", False),
        ("korea", "korean", False),
        ("the", "teh", False),
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
