import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.errors import DupqError
from dupq.settings.sections import TextSettings
from dupq.text.keys import MAXIMUM_ID, Sites, parse_id
from dupq.text.questions import question_text
from dupq.text.tokens import html_to_text, tokens

CODE = "<p>Use a <code>for loop</code> or</p><pre><code>while x:\n  y</code></pre><p>maybe</p>"


def body(html: str, code: str = "removed") -> str:
    return question_text("", html, TextSettings(code=code))[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("html", "code", "expected"),
    [
        (CODE, "removed", "use a or maybe"),
        (CODE, "kept", "use a for loop or while x y maybe"),
        (CODE, "prefixed", "use a CODE_for CODE_loop or CODE_while CODE_x CODE_y maybe"),
        ('<p>see <a href="https://a.b/questions/5/the-title">The title</a> now</p>', "removed", "see LINK now"),
        ("<p>see https://a.b/c?d=e&amp;f=g#h and www.a.b/c.</p>", "removed", "see LINK and LINK"),
        ('<p>before <img src="x.png" alt="a > b"> after</p>', "removed", "before after"),
        ("<p>one</p><p>two</p><ul><li>three</li><li>4</li></ul>five<br>six", "removed", "one two three 4 five six"),
        (
            "<blockquote><p>A possible duplicate of x</p></blockquote>",
            "removed",
            "a possible duplicate of x",
        ),  # no note
    ],
)
def test_a_body_is_its_words_with_code_as_wanted_and_a_token_a_link(html: str, code: str, expected: str) -> None:
    assert body(html, code) == expected


def test_the_first_text_of_a_process_is_split_as_all_others() -> None:
    """ICU by itself takes a leading ー for a part of the first word, and never again."""
    code = "from dupq.text.tokens import tokens; print(tokens('ーあ') == tokens('ーあ') == ['ー', 'あ'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


@pytest.mark.parametrize(
    "note",
    [
        "<blockquote>\n<p><strong>Possible Duplicate:</strong><br>\n<a href='/q/1'>How to bake</a></p>\n</blockquote>",
        "<blockquote><p><strong>Possible Duplicates:</strong><br><a href='/q/1'>How to bake</a><br>"
        "<a href='/q/2'>How to cook</a></p></blockquote>",
        "<p><strong>Possible Duplicate:</strong><br><a href='/q/1'>How to bake</a></p>",
        "<p>Possible &#68;uplicate: <a href='/q/1'>How to bake</a></p>",
        "<p>Возможный дубликат: <a href='/q/1'>How to bake</a></p>",
        "<p><strong>possible duplicate:</strong></p>\n<p><a href='/q/1'>How to bake</a></p>",
        "<blockquote><p><strong>Возможный дубликат:</strong><br><a href='/q/1'>Хлеб</a></p></blockquote>",
    ],
)
def test_a_note_that_names_the_answer_is_cut_out(note: str) -> None:
    assert body(f"{note}\n\n<p>My bread is flat.</p>") == "my bread is flat"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't panic, it’s 42%!", ["don't", "panic", "it's", "42"]),
        ("pass\u00adword pass\u200bword\ufeff ✔\ufe0f", ["password", "password"]),
        ("Don‘t donʼt don\u2032t e‐mail e–mail", ["don't", "don't", "don't", "e", "mail", "e", "mail"]),
        ("STRASSE Straße ΟΔΟΣ Οδος İSTANBUL ıstanbul", ["strasse"] * 2 + ["οδοσ"] * 2 + ["istanbul"] * 2),
        ("C++ or C# and .NET?", ["c++", "or", "c#", "and", "net"]),
        ("Ünïcödé ＦＵＬＬ ﬁne", ["ünïcödé", "full", "fine"]),
        ("naïve cafe\u0301", ["naïve", "café"]),
        ("كِتَاب جديد", ["كِتَاب", "جديد"]),
        ("中文abcかな", ["中文", "abc", "かな"]),
        ("snake_case $O(n^2)$ 😀", ["snake_case", "o", "n", "2"]),
        ("LINK CODE_x", ["link", "code_x"]),
        ("", []),
        ("\ue000 \ue001a\ue002", ["LINK", "CODE_a"]),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@given(st.text(), st.text(), st.sampled_from(["removed", "kept", "prefixed"]))
def test_any_text_gives_tokens_that_split_at_single_spaces(title: str, html: str, code: str) -> None:
    shown, text = question_text(title, html, TextSettings(code=code))  # type: ignore[arg-type]
    assert text.startswith(shown)
    assert all(token and not any(letter.isspace() for letter in token) for token in text.split(" ") if text)


def test_a_title_has_links_too_and_may_be_all_that_is_read() -> None:
    assert question_text("What is http://a.b ?", "", TextSettings())[0] == "what is LINK"
    assert question_text("Flat bread", "<p>why</p>", TextSettings(fields="title")) == ("flat bread", "flat bread")


@given(st.lists(st.tuples(st.sampled_from(["b.c", "a.d", "z"]), st.integers(0, MAXIMUM_ID)), min_size=1))
def test_keys_sort_as_site_and_id_do_and_are_unpacked_again(questions: list[tuple[str, int]]) -> None:
    sites = Sites([site for site, _ in questions])
    keys = [int(sites.pack(site, [question_id], "here")[0]) for site, question_id in questions]
    assert sorted(range(len(keys)), key=keys.__getitem__) == sorted(range(len(keys)), key=questions.__getitem__)
    for key, (site, question_id) in zip(keys, questions, strict=True):
        assert sites.label(key) == f"{site}/{question_id}"


@pytest.mark.parametrize("zeros", [0, 1, 20, 5_000])
def test_an_id_is_read_whatever_zeros_are_before_it(zeros: int) -> None:
    for number in (0, 7, 70, MAXIMUM_ID):
        assert parse_id("0" * zeros + str(number), "here") == number
    for wrong in (str(MAXIMUM_ID + 1), "9" * 30, "9" * 5_000, "x", "1 ", "-1", "+1", "1_0", "\u0661", ""):
        text = "0" * zeros + wrong
        if wrong or not zeros:
            with pytest.raises(DupqError, match=r"here: '.*' is no question id; a whole number expected$"):
                parse_id(text, "here")


@pytest.mark.parametrize("mark", ["\ue001", "\ue000", "&#xE001;", "&#57346;", "&#XE000 ", "&#57345"])
def test_nobody_can_write_the_marks_of_links_and_code(mark: str) -> None:
    assert tokens(html_to_text(f"<p>a {mark} b</p>", "removed")) == ["a", "b"]
    assert question_text(f"a {mark} b", f"c{mark} d", TextSettings()) == ("a b", "a b c d")


@pytest.mark.parametrize("letters", ["cafe\u200d\u0301", "caf\u00ade\u0301"])
def test_an_invisible_character_within_a_letter_makes_no_difference(letters: str) -> None:
    assert tokens(letters) == tokens("café")
