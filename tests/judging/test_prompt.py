"""The prompt, and what is read from a judge's reply."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dupq
from dupq.api.result import Duplicates
from dupq.judging import prompt
from dupq.judging.prompt import (
    ANSWER_SCHEMA,
    LEFT,
    RIGHT,
    Answer,
    Asked,
    answer_name,
    asked,
    expected_number,
    is_exchanged,
    messages,
    read_answer,
)

A, B = Asked("How to cook rice?", "I have no pot."), Asked("Cooking rice", "Without a pot.")
GOOD = {"differs": "the pot", "changes_answer": False, "covers": "both", "same": 85, "odd": False}
texts = st.builds(Asked, st.text(max_size=30), st.text(max_size=60))


def test_a_judge_reads_the_title_and_eighty_words() -> None:
    body = "<p>" + " ".join(f"w{number}" for number in range(200)) + "</p><pre><code>x = 1</code></pre>"
    read = asked("A\n title", body, "removed")
    assert read.title == "A title"
    assert read.text.split() == [f"w{number}" for number in range(80)]
    assert asked("水", "<p>" + "问题" * 400 + "</p>", "removed").text == "问题" * 150  # words have no spaces there


@given(texts, texts)
def test_both_orders_of_a_pair_are_one_question_with_one_name(left: Asked, right: Asked) -> None:
    assert messages(left, right) == messages(right, left)
    assert answer_name(left, right, "m") == answer_name(right, left, "m")
    assert is_exchanged(left, right) != is_exchanged(right, left) or left == right


@given(texts, texts)
def test_the_texts_are_data_whatever_they_say(left: Asked, right: Asked) -> None:
    system, user = messages(left, right)
    assert system["content"] == messages(A, B)[0]["content"]
    data = json.loads(user["content"])
    assert sorted([Asked(**data["A"]), Asked(**data["B"])]) == sorted([left, right])


def test_each_side_comes_first_about_as_often() -> None:
    pairs = [(Asked(f"a{number}", ""), Asked(f"b{number}", "")) for number in range(400)]
    assert 160 < sum(is_exchanged(*pair) for pair in pairs) < 240


def test_another_text_rule_or_model_is_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {answer_name(A, B, "m"), answer_name(A, B, "n"), answer_name(A, B._replace(text="Else."), "m")}
    monkeypatch.setattr(prompt, "_TASK", "Another rule")
    names.add(answer_name(A, B, "m"))
    assert len(names) == 4


def test_a_good_answer_is_read_and_sides_are_left_and_right_again() -> None:
    assert read_answer(json.dumps(GOOD), False) == Answer(85.0, "the pot", False, "both", False)
    one_way = json.dumps({**GOOD, "covers": "A_for_B"})
    assert read_answer(one_way, False).covers == LEFT
    assert read_answer(one_way, True).covers == RIGHT


@pytest.mark.parametrize(
    "content",
    [
        f"```json\n{json.dumps(GOOD)}\n```",
        f"<think>{{maybe}} it is</think>\n{json.dumps(GOOD)}",
        f'{{"note": "first"}} then {json.dumps(GOOD)}',
        json.dumps({**GOOD, "same": 85.0}),
    ],
)
def test_an_answer_is_found_in_what_models_write_around_it(content: str) -> None:
    assert read_answer(content, False).same == 85


NOT_SAME = ['"85"', "true", "101", "-1", "NaN"]


@pytest.mark.parametrize("content", ["", "yes", "{", "[1]", "{" * 9999, *(f'{{"same": {same}}}' for same in NOT_SAME)])
def test_anything_else_is_no_answer_with_its_reason(content: str) -> None:
    answer = read_answer(content, False)
    assert answer.same is None
    assert answer.problem


def test_what_the_judge_wrote_is_one_short_line() -> None:
    hostile = read_answer(json.dumps({**GOOD, "differs": "a\x1b[2J\nb\u2028" + "x" * 999, "covers": "all"}), False)
    assert "\n" not in hostile.differs
    assert "\x1b" not in hostile.differs
    assert len(hostile.differs) <= 160
    assert hostile.covers == "none"


def tokens(*texts: str, choices: dict[str, float] | None = None) -> list[dict[str, object]]:
    return [
        {"token": text, "top_logprobs": [{"token": t, "logprob": p} for t, p in (choices or {text: 0.0}).items()]}
        for text in texts
    ]


def test_the_number_is_the_mean_over_the_tokens_that_were_weighed() -> None:
    before, after = tokens("{", '"same"', ":", " "), tokens(",", '"odd"', ":", "false", "}")
    number = tokens("90", choices={"90": -0.6931, "70": -0.6931, "no": -9.0, "900": -1.0})
    assert expected_number([*before, *number, *after]) == pytest.approx(80)
    assert expected_number([*before, *tokens("8", "5"), *after]) is None  # a number of several tokens
    assert expected_number(tokens("{", '"other"', ":", "8", "}")) is None


def test_the_schema_asks_for_the_fact_before_the_number() -> None:
    names = list(ANSWER_SCHEMA["properties"])
    assert names == ANSWER_SCHEMA["required"]
    assert names.index("differs") < names.index("same")


TITLES = [
    "How do I cook rice without a pot?",
    "Cooking rice when there is no pot",
    "How do I bake bread without an oven?",
    "Baking bread when there is no oven",
    "Where can I buy tickets for the train to Rome?",
    "What is the best time of the year to plant garlic?",
    "Why does my bicycle chain fall off on the smallest gear?",
    "Can I take a guitar on board of a plane as hand luggage?",
]
SAME = {frozenset(TITLES[:2]), frozenset(TITLES[2:4])}


def test_a_function_is_asked_about_each_pair_once_and_moves_probabilities() -> None:
    calls: list[frozenset[str]] = []

    def judge(left: Asked, right: Asked) -> float:
        calls.append(frozenset({left.title, right.title}))
        return 97 if calls[-1] in SAME else 2

    before, after = (dupq.find_duplicates(TITLES, reranker=None, judge=given) for given in (None, judge))
    assert len(calls) == len(set(calls)) == len(before.pairs)

    def rows(found: Duplicates) -> dict[frozenset[str], float]:
        columns = ["title_left", "title_right", "probability"]
        return {frozenset({a, b}): p for a, b, p in zip(*found.pairs.arrow(columns).to_pydict().values(), strict=True)}

    moved = {pair: (p, rows(after)[pair]) for pair, p in rows(before).items()}
    for pair, (was, now) in moved.items():
        assert now > was if pair in SAME else now < was
