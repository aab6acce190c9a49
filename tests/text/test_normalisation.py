"""The forms of words, and stop words."""

import pytest
from oracles.slow_ids import words_read

from dupq.settings.sections import TextSettings
from dupq.text import languages
from dupq.text.languages import is_stop_word, normaliser_of


def read(text: str, **settings: str) -> str:
    return " ".join(words_read(normaliser_of(TextSettings(**settings)), text))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word_form", "expected"),
    [("written", "CODE_files the visas LINK"), ("stems", "CODE_files the visa LINK")],
)
def test_words_have_the_form_that_is_wanted_but_for_code_and_links(word_form: str, expected: str) -> None:
    assert read("CODE_files the visas LINK", word_form=word_form) == expected
    assert read("", word_form=word_form) == ""


@pytest.mark.parametrize(
    ("language", "word_form", "text", "expected"),
    [
        ("arabic", "stems", "المدارس الكتب يكتبون", "مدارس كتب يكتب"),
        ("french", "stems", "continuellement", "continuel"),
        ("russian", "stems", "программы", "программ"),
        ("portuguese", "stems", "programas", "program"),
    ],
)
def test_other_languages_have_stems(language: str, word_form: str, text: str, expected: str) -> None:
    assert read(text, language=language, word_form=word_form) == expected


def test_a_stop_word_is_known_in_any_spelling() -> None:
    assert is_stop_word("don't", "english")
    assert not is_stop_word("visa", "english")
    assert is_stop_word("إلى", "arabic")
    assert is_stop_word("الى", "arabic")
    assert is_stop_word("هِيَ", "arabic")
    assert not is_stop_word("لغة", "arabic")


def test_the_steps_of_arabic_spelling() -> None:
    assert languages.bare_arabic("التّغميس كِتَابٌ الـــكـتاب") == "التغميس كتاب الكتاب"
    assert languages.normalised_arabic("أسماء إدارة آخر مصطفى کتابی") == "اسماء اداره اخر مصطفي كتابي"
    assert languages.normalised_arabic("الإداريّـة") == "الاداريه"
    assert languages.normalised_arabic("café naïve don’t") == "café naïve don’t"
