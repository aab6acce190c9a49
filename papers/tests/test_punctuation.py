"""Tokens with punctuation, and what is read of texts that are stored so."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_ids import words_read

from dupq.errors import SettingError
from dupq.settings import config
from dupq.text.questions import question_text, texts_table
from dupq_papers.reading import PaperNormaliser, content_words_of_sentences, punctuated
from dupq_papers.settings import PaperText

CODE = "<p>Use <code>x[0] += 1;</code> (always).</p>"


def text_of(html: str, **settings: str) -> str:
    return question_text("", html, PaperText(**settings))[1]  # type: ignore[arg-type]


def test_code_that_is_kept_keeps_its_syntax() -> None:
    assert text_of(CODE, code="kept", tokens="punctuation") == "use x [ 0 ] += 1 ; ( always ) ."
    assert text_of(CODE, code="kept") == "use x 0 1 always"
    prefixed = "use CODE_x CODE_[ CODE_0 CODE_] CODE_+= CODE_1 CODE_; ( always ) ."
    assert text_of(CODE, code="prefixed", tokens="punctuation") == prefixed
    assert text_of(CODE, tokens="punctuation") == "use ( always ) ."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't panic: it's 42%!", "do n't panic : it 's 42 % !"),
        ('He said "no". Why?', "he said `` no '' . why ?"),
        ("see http://a.b/c?d=e. Or www.a.b", "see LINK or LINK"),
        ("(\ue000), \ue000.", "( LINK ) , LINK ."),
        ("LINK CODE_x", "link code_x"),
        ("  ", ""),
    ],
)
def test_tokens_are_those_of_the_treebank(text: str, expected: str) -> None:
    assert " ".join(punctuated(text, "punctuation")) == expected


@given(
    st.text(), st.text(), st.sampled_from(["removed", "kept", "prefixed"]), st.sampled_from(["punctuation", "written"])
)
def test_columns_have_the_tokens_of_single_texts_that_split_at_single_spaces(
    title: str, html: str, code: str, kind: str
) -> None:
    settings = PaperText(code=code, tokens=kind)  # type: ignore[arg-type]
    shown, text = question_text(title, html, settings)
    assert all(token and not any(letter.isspace() for letter in token) for token in text.split(" ") if text)
    table = texts_table(pa.array([7]), pa.array([title]), pa.array([html]), settings)
    assert (table["title"].to_pylist(), table["text"].to_pylist()) == ([shown], [text])


@given(st.text(), st.text())
def test_in_lower_case_written_tokens_are_those_with_punctuation(title: str, body: str) -> None:
    text = f"{title} \ue000 \ue001{body}\ue002"
    lower, written = punctuated(text, "punctuation"), punctuated(text, "written")
    marked = [token if token == "LINK" or token.startswith("CODE_") else token.lower() for token in written]
    assert [token.lower() for token in marked] == [token.lower() for token in lower]
    assert [token == "LINK" for token in marked] == [token == "LINK" for token in lower]


def test_the_tagger_meets_words_as_they_are_written_and_one_sentence_at_a_time() -> None:
    words = punctuated("The oven broke. Will Polish bakers polish it? Mix 3 eggs.", "written")
    content = [word for word, keep in zip(words, content_words_of_sentences(words), strict=True) if keep]
    assert content == ["oven", "broke", "Polish", "bakers", "polish", "Mix", "eggs"]


def test_what_an_encoder_reads_of_written_texts_is_in_lower_case_and_content_alone() -> None:
    settings = PaperText(
        tokens="written", word_form="lemmas", stop_words="removed", parts_of_speech="content", language="english"
    )
    title, text = question_text("Which Ovens?", "<p>The oven broke. It's (really) Old!</p>", settings)
    assert text == "Which Ovens ? The oven broke . It 's ( really ) Old !"
    normaliser = PaperNormaliser(settings)
    assert words_read(normaliser, text) == ["oven", "oven", "broke", "old"]
    assert "." in normaliser.all_words(text)  # word vectors learn from texts that are not filtered
    assert normaliser.all_words(title) == ["which", "oven", "?"]
    by_word = PaperNormaliser(PaperText(tokens="written", stop_words="removed"))
    assert words_read(by_word, "The Oven LINK") == ["oven", "LINK"]
    assert by_word.each_form(["The", "Oven"]) == ["the", "oven"]


def test_dates_are_masked_among_words_only() -> None:
    with pytest.raises(SettingError, match=r"text\.dates.*text\.tokens=punctuation"):
        config.load("dupq", ["text.tokens=punctuation", "text.dates=date"])
