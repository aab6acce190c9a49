"""Words of scripts without spaces, the language that titles are in, and what is left of words in each language."""

from typing import get_args

import pyarrow as pa
import pytest
from oracles.slow_ids import words_read

from benchmarks.generator.household import LANGUAGES, Question, write_site
from dupq.near_duplicates.pairing import near_pairs
from dupq.settings import config
from dupq.settings.sections import Language, NearDuplicateSettings, TextSettings
from dupq.text import languages
from dupq.text.languages import bare_korean, is_stop_word, language_of, normaliser_of, share_in, stems, stop_words
from dupq.text.questions import content_hashes, document_counts, rare_words, rarities, terms_of, texts_table
from dupq.text.title_intent import TitleComparer
from dupq.text.token_arrays import token_texts
from dupq.text.tokens import tokens
from dupq.text.written import written_titles

QUESTIONS = 150


@pytest.fixture(scope="module", params=LANGUAGES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Question]]:
    return request.param, write_site(tmp_path_factory.mktemp("site"), request.param, QUESTIONS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("PythonでリストをソートするN方法", "python で リスト を ソート する n 方法"),
        ("如何在Python中对列表进行排序？", "如何 在 python 中 对 列表 进行 排序"),
        ("จะซ่อมจักรยาน C++ ได้อย่างไร", "จะ ซ่อม จักรยาน c++ ได้ อย่างไร"),
        ("តើខ្ញុំអាចជួសជុលកង់", "តើ ខ្ញុំ អាច ជួសជុល កង់"),
        ("ຂ້ອຍສາມາດສ້ອມແປງລົດຖີບ", "ຂ້ອຍ ສາມາດ ສ້ອມແປງ ລົດຖີບ"),
        ("ဘယ်လိုပြင်ရမလဲ", "ဘယ်လို ပြင် ရ မ လဲ"),
        ("\ue001中文x\ue002 http://a.b/中文", "CODE_中文 CODE_x LINK"),
    ],
)
def test_words_without_spaces_between_are_cut(text: str, words: str) -> None:
    assert tokens(text) == words.split()
    assert token_texts(pa.array([text])).to_pylist() == [words]


def test_the_language_of_a_site_is_found(site: tuple[str, list[Question]]) -> None:
    name, questions = site
    titles = pa.array([question.title for question in questions])
    assert language_of(titles) == name
    assert share_in(titles, name) >= 0.95


@pytest.mark.parametrize(
    ("titles", "language"),
    [
        ([], "english"),
        (["C++ vs Rust", "iPhone 12 case"], "english"),
        (["What is the difference between は and が?", "How do I read 出口?"], "english"),
        (["What is a bicycle?"] * 3 + ["Was ist ein Fahrrad?"] * 2, "english"),
        (["What is a bicycle?"] * 2 + ["自転車とは何ですか？"] * 9, "japanese"),
        (["Wie kann ich mein Fahrrad reparieren?", "Was ist das für ein Rad?"], "german"),
        (["Як полагодити велосипед удома?"] * 9, "other"),
        (["چگونه دوچرخه خود را تعمیر کنم؟"] * 9, "other"),
        (["តើខ្ញុំអាចជួសជុលកង់"], "other"),
    ],
)
def test_most_words_tell_the_language(titles: list[str], language: str) -> None:
    assert language_of(pa.array(titles, pa.string())) == language


def test_copies_are_found_in_every_language_and_no_siblings(site: tuple[str, list[Question]]) -> None:
    """Of Thai no edited copy was found, and of Japanese each second sibling was joined."""
    name, questions = site
    titles, bodies = (pa.array([getattr(question, part) for question in questions]) for part in ("title", "body"))
    texts = texts_table(pa.array(range(len(questions)), pa.int64()), titles, bodies, TextSettings())
    rarity = rarities(document_counts(terms_of(texts["text"].combine_chunks(), name)), len(questions))
    comparer = TitleComparer(name, rare_words(rarity, len(questions), name))
    hashes = content_hashes(titles, bodies)
    found = near_pairs(texts, written_titles(titles, name), hashes, NearDuplicateSettings(), comparer).to_pylist()
    pairs = [(questions[row["left"]], questions[row["right"]]) for row in found]
    right = [left.meaning == other.meaning for left, other in pairs]
    assert sum(right) == 2 * (QUESTIONS // 10)
    assert False not in right


@pytest.mark.parametrize("language", get_args(Language))
def test_every_language_has_stems_and_stop_words(language: str) -> None:
    assert stems(language)("X200") == "X200"
    assert not is_stop_word("x200", language)
    assert bool(stop_words(language)) == (language != "other")


@pytest.mark.parametrize(
    ("forms", "word"),
    [
        ("자전거 자전거를 자전거가 자전거는 자전거에서 자전거로 자전거들을", "자전거"),
        ("수리 수리하려면 수리하는 수리할 수리했습니다 수리를", "수리"),
        ("냉장고 냉장고를 냉장고의", "냉장고"),
        ("책 책을 책은", "책"),
        ("x200 x200을 x200은", "x200"),
        ("마을", "마을"),
        ("나이", "나이"),
    ],
)
def test_the_forms_of_a_korean_word_are_one(forms: str, word: str) -> None:
    assert {bare_korean(form) for form in forms.split()} == {word}


def test_another_language_than_english_is_learned_from_nothing() -> None:
    settings = config.load("dupq")
    assert config.in_language(settings, "english") == config.load("dupq", ["text.language=english"])
    other = config.in_language(settings, "thai")
    assert (other.text.language, other.word_vectors.algorithm, other.title_body.epochs) == ("thai", "random", 12)
    chosen = config.load("dupq", ["title_body.epochs=2"])
    assert config.in_language(chosen, "thai").title_body.epochs == 2
    saved = config.load("dupq", ["word_vectors.start=s3://own/encoder"])
    assert config.in_language(saved, "thai").word_vectors == saved.word_vectors


@pytest.mark.parametrize(
    ("language", "word_form", "text", "expected"),
    [
        ("english", "written", "CODE_files the visas LINK", "CODE_files the visas LINK"),
        ("english", "stems", "CODE_files the visas LINK", "CODE_files the visa LINK"),
        ("arabic", "stems", "المدارس الكتب يكتبون", "مدارس كتب يكتب"),
        ("french", "stems", "continuellement", "continuel"),
        ("russian", "stems", "программы", "программ"),
    ],
)
def test_words_but_code_and_links_have_the_form_wanted(language: str, word_form: str, text: str, expected: str) -> None:
    settings = TextSettings(language=language, word_form=word_form)  # type: ignore[arg-type]
    assert words_read(normaliser_of(settings), text) == expected.split()
    assert words_read(normaliser_of(settings), "") == []


def test_a_stop_word_is_known_in_any_spelling() -> None:
    assert is_stop_word("don't", "english")
    assert all(is_stop_word(word, "arabic") for word in ("إلى", "الى", "هِيَ"))
    assert not is_stop_word("visa", "english")
    assert not is_stop_word("لغة", "arabic")


def test_the_steps_of_arabic_spelling() -> None:
    assert languages.bare_arabic("التّغميس كِتَابٌ الـــكـتاب") == "التغميس كتاب الكتاب"
    assert languages.normalised_arabic("أسماء إدارة آخر مصطفى کتابی") == "اسماء اداره اخر مصطفي كتابي"
    assert languages.normalised_arabic("الإداريّـة") == "الاداريه"
    assert languages.normalised_arabic("café naïve don’t") == "café naïve don’t"
