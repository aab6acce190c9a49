"""The client beside a server that fails in each way that servers do."""

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from judge_server import CUT, Call, JudgeServer, Refusal, answer_text, judge_server, reply_of

from dupq.judging import client
from dupq.judging.client import Asking, Endpoint, Spent, is_loopback, key_from_environment, known_answers
from dupq.judging.prompt import Asked, answer_name

PAIRS = [(Asked(f"left {number}", "a"), Asked(f"right {number}", "b")) for number in range(40)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RETRIES", 1)
    for name in client.KEYS:
        monkeypatch.delenv(name, raising=False)


def endpoint(server: JudgeServer, **changed: Any) -> Endpoint:
    usual = {"url": server.url, "model": "m", "max_tokens": 50, "connections": 4, "key": key_from_environment()}
    return Endpoint(**usual | changed)


def ask(pairs: Sequence[tuple[Asked, Asked]], judge: Endpoint, folder: str) -> Asking:
    return client.ask(pairs, judge, folder, f"{folder}-spent.json")


def asked(reply: Any, folder: Path, pairs: Sequence[tuple[Asked, Asked]] = PAIRS) -> Asking:
    """What comes of asking a server that replies so."""
    with judge_server(reply) as server:
        return ask(pairs, endpoint(server), str(folder))


def same_of(asking: Asking) -> list[float | None]:
    return [None if answer is None else answer.same for answer in asking.answers]


def number_of(call: Call) -> int:
    return int(call.titles[0].split()[-1])


def test_answers_come_in_the_order_of_the_pairs_and_are_not_asked_for_again(tmp_path: Path) -> None:
    with judge_server(lambda call: answer_text(number_of(call))) as server:
        first = ask(PAIRS, endpoint(server), str(tmp_path))
        assert same_of(first) == list(range(40))
        assert first.spent == Spent(4_000, 800)
        assert len(server.calls) == 40
    known = known_answers([(right, left) for left, right in PAIRS], "m", str(tmp_path))
    assert [answer.same for answer in known if answer] == list(range(40))
    assert known_answers(PAIRS, "another", str(tmp_path)) == [None] * 40


def test_which_side_covers_the_other_survives_the_store(tmp_path: Path) -> None:
    asking = asked(lambda call: answer_text(80, covers="A_for_B"), tmp_path)
    there, back = (known_answers(pairs, "m", str(tmp_path)) for pairs in (PAIRS, [pair[::-1] for pair in PAIRS]))
    assert there == asking.answers
    turned = {"left answers right": "right answers left", "right answers left": "left answers right"}
    assert [answer.covers for answer in back if answer] == [turned[answer.covers] for answer in there if answer]
    assert {answer.covers for answer in there if answer} == turned.keys()  # a hash draws the order


def test_a_damaged_answer_is_asked_for_again(tmp_path: Path) -> None:
    with judge_server(lambda call: answer_text(90)) as server:
        ask(PAIRS[:3], endpoint(server), str(tmp_path))
    uri = client.answer_uri(str(tmp_path), answer_name(*PAIRS[1], "m"))
    Path(uri).write_text("{")
    assert [answer is None for answer in known_answers(PAIRS[:3], "m", str(tmp_path))] == [False, True, False]


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        (Refusal(401), "HTTP 401: the key is not accepted"),
        (Refusal(404), "HTTP 404: no such address or model"),
        (Refusal(429, {"retry-after": "0"}), "HTTP 429: too many requests, or no credit left, after 1 retries"),
        (Refusal(503, {"retry-after": "0"}), "HTTP 503: the server failed"),
        (CUT, "the connection failed or broke off, after 1 retries"),
    ],
)
def test_a_server_that_fails_for_good_ends_the_asking_with_a_line(refusal: Any, line: str, tmp_path: Path) -> None:
    """What was answered until then is kept."""
    asking = asked(lambda call: answer_text(70) if call.number < 10 else refusal, tmp_path)
    assert line in asking.trouble
    assert same_of(asking).count(70) == 10
    assert sum(answer is not None for answer in known_answers(PAIRS, "m", str(tmp_path))) == 10
    assert asking.spent == Spent(1_000, 200)


@pytest.mark.parametrize("trouble", [Refusal(429, {"retry-after": "0"}), Refusal(503, {"retry-after": "0"}), CUT])
def test_trouble_that_passes_is_not_seen(trouble: Any, tmp_path: Path) -> None:
    asking = asked(lambda call: trouble if call.number == 5 else answer_text(70), tmp_path)
    assert same_of(asking) == [70] * 40
    assert asking.trouble == ""


def test_a_server_that_is_not_there_or_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with judge_server(lambda call: answer_text(1)) as server:
        gone = endpoint(server)
    assert "the connection failed" in ask(PAIRS, gone, str(tmp_path)).trouble
    monkeypatch.setattr(client, "_SECONDS", 0.2)
    monkeypatch.setattr(client, "_RETRIES", 0)

    def slow(call: Call) -> str:
        time.sleep(1)
        return answer_text(1)

    with judge_server(slow) as server:
        asking = ask(PAIRS[:4], endpoint(server), str(tmp_path))
    assert "no answer within" in asking.trouble
    assert sum(asking.spent) > 0  # it may have to be paid


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("no", "no JSON in the answer"),
        ('{"same": 700}', "no number from 0 to 100 in the answer"),
        (reply_of(answer_text(80)[:-20], "m", finish="length"), "cut off"),
        (reply_of({"role": "assistant", "content": None, "refusal": "I will not"}, "m"), "refused"),
        (reply_of("", "m", finish="content_filter"), "refused"),
        ({**reply_of("", "m"), "choices": []}, "not an answer of a chat endpoint"),
    ],
)
def test_an_answer_that_says_nothing_has_its_reason_and_is_paid(reply: Any, problem: str, tmp_path: Path) -> None:
    asking = asked(lambda call: reply if number_of(call) % 4 == 3 else answer_text(60), tmp_path)
    odd = [answer for number, answer in enumerate(asking.answers) if number % 4 == 3]
    assert all(answer is not None and answer.same is None and problem in answer.problem for answer in odd)
    assert same_of(asking).count(60) == 30
    assert asking.spent == Spent(4_000, 800)
    again = known_answers(PAIRS, "m", str(tmp_path))
    assert sum(answer is None for answer in again) == (0 if problem == "refused" else 10)


def test_a_server_of_which_no_answer_can_be_used_is_given_up(tmp_path: Path) -> None:
    with judge_server(lambda call: "Certainly! They are the same.") as server:
        asking = ask(PAIRS, endpoint(server), str(tmp_path))
    assert asking.trouble.startswith("none of 2")
    assert len(server.calls) < 30


@pytest.mark.parametrize("limit", ["tokens", "dollars"])
def test_the_budget_is_hard_and_the_likeliest_first(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "is_loopback", lambda url: False)
    monkeypatch.setenv("DUPQ_JUDGE_KEY", "k")
    with judge_server(lambda call: reply_of(answer_text(50), "m", used=(600, 50))) as server:
        most = sum(endpoint(server).most(PAIRS[0]))
        tokens = 20 * 650 + most
        in_dollars = {"dollars": tokens / 1e6, "price_in": 1.0, "price_out": 1.0}
        limits = {"tokens": tokens} if limit == "tokens" else in_dollars
        asking = ask(PAIRS, endpoint(server, **limits), str(tmp_path))
    answered = [number for number, answer in enumerate(asking.answers) if answer is not None]
    assert asking.over_budget
    assert answered == [*range(len(answered))]
    assert 20 <= len(answered) <= 21
    assert sum(asking.spent) <= tokens


def test_a_server_that_does_not_count_is_taken_for_the_most(tmp_path: Path) -> None:
    uncounted = {key: value for key, value in reply_of(answer_text(50), "m").items() if key != "usage"}
    with judge_server(lambda call: uncounted) as server:
        asking = ask(PAIRS[:1], endpoint(server), str(tmp_path))
        assert asking.spent == endpoint(server).most(PAIRS[0])


def test_what_a_server_does_not_know_is_left_out(tmp_path: Path) -> None:
    def old(call: Call) -> Any:
        known = call.body.keys() - {"response_format", "logprobs", "top_logprobs"}
        return answer_text(30) if known == call.body.keys() else Refusal(400)

    with judge_server(old) as server:
        asking = ask(PAIRS, endpoint(server), str(tmp_path))
        first = [call.body for call in server.calls]
    assert same_of(asking) == [30] * 40
    assert first[0]["response_format"]["json_schema"]["schema"] == client.ANSWER_SCHEMA
    assert first[0]["logprobs"]
    assert len(first) <= 40 + 3 * 4


def test_the_key_is_sent_but_never_stored_logged_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-2")
    monkeypatch.setenv("DUPQ_JUDGE_KEY", "secret-1")
    said = Refusal(401, {}, b'{"error": {"message": "wrong key secret-1"}}')
    with judge_server(lambda call: answer_text(30) if call.number < 5 else said) as server:
        asking = ask(PAIRS, endpoint(server), str(tmp_path))
        assert {call.headers["authorization"] for call in server.calls} == {"Bearer secret-1"}
        shown = repr(endpoint(server))
    everything = [shown, asking.trouble, caplog.text, *(path.read_text() for path in tmp_path.rglob("*.json"))]
    assert not any("secret" in text for text in everything)


def test_elsewhere_a_key_is_needed_and_nothing_is_sent_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_loopback", lambda url: False)
    with judge_server(lambda call: answer_text(1)) as server:
        assert "DUPQ_JUDGE_KEY" in ask(PAIRS, endpoint(server), str(tmp_path)).trouble
        assert not server.calls


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:11434/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://api.example.com/v1", False),
        ("http://localhost.example.com/v1", False),
    ],
)
def test_what_is_on_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) == here


def test_killed_at_ten_moments_at_most_the_calls_in_flight_are_paid_twice(tmp_path: Path) -> None:
    def reply(call: Call) -> str:
        time.sleep(0.005)
        if call.number in kills:
            os.kill(child.pid, signal.SIGKILL)
        return answer_text(number_of(call))

    kills = {3 + 5 * number for number in range(10)}
    context = multiprocessing.get_context("fork")
    with judge_server(reply) as server:
        for _ in range(11):
            child = context.Process(target=_rest, args=(endpoint(server), str(tmp_path)))
            child.start()
            child.join()
        assert child.exitcode == 0
        assert len(server.calls) <= 40 + 10 * 4
        kept, judge = ask([], endpoint(server), str(tmp_path)).spent, endpoint(server)  # calls in flight: the most
        assert Spent(4_000, 800) <= kept <= Spent(4_000 + 40 * judge.most(PAIRS[0]).read, 800 + 40 * 50)
    assert [answer.same for answer in known_answers(PAIRS, "m", str(tmp_path)) if answer] == list(range(40))


def test_a_limit_holds_for_all_attempts_of_a_run(tmp_path: Path) -> None:
    with judge_server(lambda call: answer_text(50) if call.number != 10 else Refusal(410)) as server:
        judge = endpoint(server, connections=1, tokens=20 * 120 + sum(endpoint(server).most(PAIRS[0])))
        first = ask(PAIRS, judge, str(tmp_path))
        second = ask(PAIRS[10:], judge, str(tmp_path))
    assert (first.spent, second.spent) == (Spent(1_000, 200), Spent(2_000, 400))
    assert second.over_budget


def _rest(judge: Endpoint, folder: str) -> None:
    known = known_answers(PAIRS, judge.model, folder)
    ask([pair for pair, answer in zip(PAIRS, known, strict=True) if answer is None], judge, folder)
    os._exit(0)
