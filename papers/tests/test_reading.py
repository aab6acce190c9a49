"""What an encoder reads of a stored text."""

from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_ids import slow_ids, words_read

from dupq.errors import SettingError
from dupq.settings import config
from dupq.settings.sections import Language, TextSettings
from dupq.text import languages
from dupq.text.questions import UNKNOWN, Vocabulary, question_text
from dupq_papers.reading import LEMMA_CODES, PaperNormaliser, mask_numbers
from dupq_papers.settings import WITHOUT_LEMMAS, PaperText

TRAVEL = "do i need a transit visa to change planes at LINK while the 2 flights are on 12 05 2014"


def read(text: str, **settings: Any) -> str:
    return " ".join(words_read(PaperNormaliser(PaperText(**settings)), text))


def test_by_default_a_text_is_read_as_it_is_stored() -> None:
    assert read(TRAVEL) == TRAVEL


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"links": "removed"}, "do i need a transit visa to change planes at while the 2 flights are on 12 05 2014"),
        ({"dates": "date"}, "do i need a transit visa to change planes at LINK while the 2 flights are on date"),
        (
            {"digits": "num"},
            "do i need a transit visa to change planes at LINK while the num flights are on num num num",
        ),
        (
            {"dates": "date", "digits": "num"},
            "do i need a transit visa to change planes at LINK while the num flights are on date",
        ),
        ({"stop_words": "removed"}, "need transit visa change planes LINK 2 flights 12 05 2014"),
        (
            {"word_form": "stems"},
            "do i need a transit visa to chang plane at LINK while the 2 flight are on 12 05 2014",
        ),
        (
            {"word_form": "lemmas"},
            "do i need a transit visa to change plane at LINK while the 2 flight be on 12 05 2014",
        ),
        ({"parts_of_speech": "content"}, "do need transit visa change planes flights are"),
        (
            {"parts_of_speech": "content", "stop_words": "removed", "word_form": "lemmas", "digits": "num"},
            "need transit visa change plane flight",
        ),
    ],
)
def test_each_setting_of_the_papers(settings: dict[str, str], expected: str) -> None:
    assert read(TRAVEL, **settings) == expected


@pytest.mark.parametrize("settings", [{"word_form": "stems"}, {"word_form": "lemmas"}, {"parts_of_speech": "content"}])
def test_tokens_of_code_are_never_changed(settings: dict[str, str]) -> None:
    assert read("listing CODE_files CODE_-1s LINK", **settings).split(" ")[1:3] == ["CODE_files", "CODE_-1s"]


def test_a_text_of_which_nothing_is_left_keeps_its_words() -> None:
    assert read("how do i do this", stop_words="removed", word_form="stems") == "how do i do this"
    assert read("") == read("", stop_words="removed", dates="date") == ""


def test_word_vectors_are_learnt_from_texts_that_are_not_filtered() -> None:
    """Hazem et al. 2017, section 3, step 2."""
    normaliser = PaperNormaliser(PaperText(stop_words="removed", parts_of_speech="content", word_form="lemmas"))
    assert normaliser.all_words("the visas are cheap") == ["the", "visa", "be", "cheap"]
    assert words_read(normaliser, "the visas are cheap") == ["visa", "cheap"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 05 2014", "date"),
        ("2014 05 12", "date"),
        ("05 31 2014", "date"),
        ("since may 2014 or 2014 may 3", "since date or date"),
        ("june 4th 2010 and 4th of july", "date and date"),
        ("4th of july 1999 and 3 dec", "date and date"),
        ("يوم 4 مايو 2014", "يوم date"),
        ("٤ يونيو ٢٠١٤", "date"),
        ("i may 2 people march 5 times", "i may 2 people march 5 times"),
        ("192 168 1 1 and 99 99 2014", "192 168 1 1 and 99 99 2014"),
        ("windows 2000 x86", "windows 2000 x86"),
        ("12 05", "12 05"),
        ("12 05 20145", "12 05 20145"),
    ],
)
def test_dates_are_told_from_other_numbers(text: str, expected: str) -> None:
    assert " ".join(mask_numbers(text.split(" "), dates=True, digits=False)) == expected


def test_only_tokens_of_digits_alone_are_numbers() -> None:
    masked = mask_numbers(["3", "d", "printer", "ipv6", "٤٢", "1st", "x2", "c++"], dates=False, digits=True)
    assert masked == ["num", "d", "printer", "ipv6", "num", "1st", "x2", "c++"]


@given(st.lists(st.sampled_from(["12", "5", "2014", "may", "june", "4th", "of", "to", "99"]), max_size=8))
def test_masking_leaves_every_other_word(tokens: list[str]) -> None:
    masked = mask_numbers(tokens, dates=True, digits=True)
    assert masked.count("to") == tokens.count("to")
    assert set(masked) <= {"date", "num", "to", "of", "may", "june", "4th"}


def test_a_token_of_nothing_but_strokes_goes() -> None:
    assert read("ما هي لغة الـ javascript ـ", arabic="normalised") == "ما هي لغه ال javascript"


@pytest.mark.realdata
def test_normalising_brings_spellings_of_real_arabic_questions_together(shared_data: Path) -> None:
    lines = (shared_data / "arabic" / "pairs.tsv").read_text("utf-8").splitlines()[1:]
    questions = [question_text(side, "", TextSettings())[1] for line in lines for side in line.split("\t")[:2]]
    written = {word for question in questions for word in question.split(" ")}
    normaliser = PaperNormaliser(PaperText(language="arabic", arabic="normalised"))
    normalised = {word for question in questions for word in words_read(normaliser, question)}
    assert len(normalised) < 0.95 * len(written)
    assert not any(languages.normalised_arabic(word) != word for word in normalised)
    settings = {"language": "arabic", "arabic": "normalised", "stop_words": "removed", "word_form": "stems"}
    left, right = "كيف احضر صلصة التّغميس مع الخرشوف والسّبانخ؟", "من طرق تحضير صلصة التغميس مع الخرشوف"
    assert [read(question_text(side, "", TextSettings())[1], **settings) for side in (left, right)] == [
        "احضر صلص تغميس خرشوف والسبانخ",
        "طرق تحضير صلص تغميس خرشوف",
    ]


@pytest.mark.parametrize(
    ("assignments", "named"),
    [
        (["text.language=klingon"], "'auto', 'arabic'"),
        (["text.language=arabic", "text.parts_of_speech=content"], "only English texts can be tagged"),
        (["text.word_form=roots"], "stems"),
        (["text.word_form=lemmas", "text.language=thai"], "there are none for text.language=thai"),
    ],
)
def test_what_a_language_cannot_do_is_said(assignments: list[str], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        config.load("bogdanova-sum", assignments)


def test_every_language_has_lemmas_or_is_named() -> None:
    assert set(get_args(Language)) == {*WITHOUT_LEMMAS, *LEMMA_CODES}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("arabic", "المدارس الكتب", "مدرسة كتاب"),
        ("german", "häuser ging", "haus gehen"),
        ("spanish", "perros corriendo", "perro correr"),
        ("italian", "case", "casa"),
        ("turkish", "evler", "ev"),
    ],
)
def test_lemmas_of_other_languages(language: str, text: str, expected: str) -> None:
    assert read(text, language=language, word_form="lemmas") == expected


def test_a_vocabulary_reads_texts_as_its_settings_say_and_counts_those_it_cuts() -> None:
    settings = PaperText(stop_words="removed", word_form="stems")
    vocabulary = Vocabulary.from_bytes(Vocabulary(["visa", "flight"]).to_bytes(), settings)
    assert slow_ids(vocabulary, "the flights and the visas", 9).tolist() == [3, 2]
    sequences, cut = vocabulary.sequences(pa.array(["the flights and the visas", "visas", ""]), 1)
    assert [ids.tolist() for ids in sequences] == [[3], [2], []]
    assert cut == 1
    plain, cut = Vocabulary(["visa"]).sequences(pa.array(["visa visa x", "visa x"]), 2)
    assert [ids.tolist() for ids in plain] == [[2, 2], [2, UNKNOWN]]
    assert cut == 1
