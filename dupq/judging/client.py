"""Ask a judge about pairs over an OpenAI-compatible chat endpoint, within a budget; each answer is stored before it
counts.

The budget is hard: before a call its most expensive outcome is reserved, and afterwards replaced by what the server
says that it used. The run's ledger has both, so that a job that is killed and repeated continues with what is left. An
answer is stored under its name (prompt.py) as soon as it is there, so that such a job pays at most the calls in flight
twice, and the next night asks only about new pairs.
"""

import asyncio
import ipaddress
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dupq import storage
from dupq.errors import DupqError
from dupq.judging.prompt import (
    ANSWER_SCHEMA,
    LEFT,
    RIGHT,
    Answer,
    Asked,
    answer_name,
    expected_number,
    is_exchanged,
    messages,
    read_answer,
)
from dupq.system import require, thread_map

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion

KEYS = ("DUPQ_JUDGE_KEY", "OPENAI_API_KEY")
ONE_MILLION = 1_000_000
_OVERHEAD = 64  # tokens of a call in addition to its texts, at most: roles, and names around the schema
_BYTES_PER_TOKEN = 4  # of English, for the estimate; no token is shorter than a byte, for the reserve
_ANSWER_TOKENS = 65  # of a usual answer, for the estimate
_RETRIES, _SECONDS = 4, 180.0  # of a call
_NO_USE = 20  # calls after which a server without one usable answer is given up
_TOP = 10  # tokens whose probability is asked for
REFUSED = "refused"


class Spent(NamedTuple):
    """Tokens of calls."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Endpoint:
    """Where a judge is asked, and what it may cost."""

    url: str
    model: str
    max_tokens: int  # of an answer
    connections: int
    price_in: float = 0.0  # dollars per million tokens
    price_out: float = 0.0
    dollars: float = 0.0  # at most, of a run; 0: no such limit
    tokens: int = 0  # at most, of a run; 0: no such limit
    key: str = field(default="", repr=False)  # never stored, logged or shown

    @property
    def is_here(self) -> bool:
        """Whether it listens on this machine only, and so costs nothing."""
        return is_loopback(self.url)

    def cost(self, spent: Spent) -> float:
        """Return the price of tokens in dollars."""
        if self.is_here:
            return 0.0
        return (spent.read * self.price_in + spent.written * self.price_out) / ONE_MILLION

    def estimate(self, pairs: Sequence[tuple[Asked, Asked]]) -> Spent:
        """Return the tokens that pairs will take, about."""
        read = sum(_bytes(pair) // _BYTES_PER_TOKEN for pair in pairs)
        return Spent(read, _ANSWER_TOKENS * len(pairs))

    def most(self, pair: tuple[Asked, Asked]) -> Spent:
        """Return the tokens that a call about a pair takes at most."""
        return Spent(_bytes(pair) + _OVERHEAD, self.max_tokens)


def key_from_environment() -> str:
    """Return the key that calls are paid with; empty if there is none."""
    return next((os.environ[name] for name in KEYS if os.environ.get(name)), "")


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _bytes(pair: tuple[Asked, Asked]) -> int:
    """Return the bytes that a call sends, with the schema: many servers write it into the prompt."""
    return sum(len(message["content"].encode()) for message in messages(*pair)) + len(json.dumps(ANSWER_SCHEMA))


@dataclass
class Asking:
    """What came of asking: answers in the order of the pairs, None where there was no call."""

    answers: list[Answer | None]
    spent: Spent  # with earlier attempts
    trouble: str = ""  # why it ended early
    over_budget: bool = False


def known_answers(pairs: Sequence[tuple[Asked, Asked]], model: str, folder: str) -> list[Answer | None]:
    """Return the stored answers about pairs, None where there is none. A damaged one counts as none."""
    return list(thread_map(lambda pair: _stored(answer_uri(folder, answer_name(*pair, model)), pair), pairs))


def answer_uri(folder: str, name: str) -> str:
    """Return where the answer of this name is stored."""
    return storage.join(folder, name[:2], f"{name}.json")


def _stored(uri: str, pair: tuple[Asked, Asked]) -> Answer | None:
    try:
        found = storage.read_json(uri)
        answer = Answer(**found)
        # stored for the sorted pair
        return answer if pair[0] <= pair[1] else _exchanged(answer)
    except (DupqError, TypeError, ValueError, OSError):
        return None


def _exchanged(answer: Answer) -> Answer:
    return answer._replace(covers={LEFT: RIGHT, RIGHT: LEFT}.get(answer.covers, answer.covers))


def _store(folder: str, pair: tuple[Asked, Asked], model: str, answer: Answer) -> None:
    answer = answer if pair[0] <= pair[1] else _exchanged(answer)
    storage.write_json(answer_uri(folder, answer_name(*pair, model)), answer._asdict())


def ask(pairs: Sequence[tuple[Asked, Asked]], endpoint: Endpoint, folder: str, ledger: str) -> Asking:
    """Ask about pairs, the first ones first, and store each answer below `folder`.

    Ends early, and says why, at the budget or when the server fails for good: what was answered until then is kept.
    `ledger` is a file with what earlier attempts of the run have spent, which counts.
    """
    require("openai", "judge.url")
    return asyncio.run(_ask(pairs, endpoint, folder, ledger))


async def _ask(pairs: Sequence[tuple[Asked, Asked]], endpoint: Endpoint, folder: str, ledger: str) -> Asking:
    import openai

    budget = _Budget(endpoint, ledger)
    asking = Asking([None] * len(pairs), budget.held)
    if pairs and not endpoint.key and not endpoint.is_here:
        asking.trouble = f"no key: set {KEYS[0]} or {KEYS[1]}"
    http = openai.DefaultAsyncHttpxClient(trust_env=not endpoint.is_here)  # no proxy on the way to this machine
    client = openai.AsyncOpenAI(
        base_url=endpoint.url, api_key=endpoint.key or "none", max_retries=_RETRIES, timeout=_SECONDS, http_client=http
    )
    forms, queue, turn = [*_FORMS], iter(range(len(pairs))), asyncio.Lock()

    async def next_pair() -> int | None:
        """Return the next pair, whose tokens are reserved; None at the end. By turns: the first ones come first."""
        async with turn:
            index = None if asking.trouble or asking.over_budget else next(queue, None)
            if index is not None and not await budget.reserve(endpoint.most(pairs[index])):
                asking.over_budget, index = True, None
            return index

    async def work() -> None:
        while (index := await next_pair()) is not None:
            reserved = endpoint.most(pairs[index])
            spent = reserved  # of a call that ends without an answer nothing is known but this
            try:
                answer, spent = _answer(await _reply(client, endpoint, pairs[index], forms), pairs[index], reserved)
                if answer.same is not None or answer.problem == REFUSED:  # others may go better another time
                    await asyncio.to_thread(_store, folder, pairs[index], endpoint.model, answer)
                asking.answers[index] = answer
            except openai.OpenAIError as error:
                if isinstance(error, openai.APIStatusError | openai.APIConnectionError):
                    spent = reserved if isinstance(error, openai.APITimeoutError) else Spent()  # refused: not paid
                asking.trouble = asking.trouble or _said(error, endpoint.key)
            finally:
                await budget.settle(reserved, spent)
            given = [answer for answer in asking.answers if answer is not None]
            if len(given) >= _NO_USE and all(answer.same is None for answer in given):
                asking.trouble = asking.trouble or f"none of {len(given)} answers was usable: {given[-1].problem}"

    async with client:
        await asyncio.gather(*(work() for _ in range(min(endpoint.connections, len(pairs)))))
    asking.spent = budget.held
    return asking


class _Budget:
    """What is spent or reserved, also in the ledger. Who waits for the reserve of others gets it when they settle."""

    def __init__(self, endpoint: Endpoint, ledger: str) -> None:
        self._endpoint, self._ledger, self._calls = endpoint, ledger, 0
        self.held = Spent(**storage.read_json(ledger)) if storage.exists(ledger) else Spent()
        self._changed = asyncio.Condition()

    async def reserve(self, most: Spent) -> bool:
        """Hold the tokens of a call; False if they are more than what is left, and no call in flight can give some."""
        async with self._changed:
            while not self._fits(Spent(self.held.read + most.read, self.held.written + most.written)):
                if not self._calls:
                    return False
                await self._changed.wait()
            await self._hold(most, Spent(), 1)
            return True

    async def settle(self, reserved: Spent, spent: Spent) -> None:
        """Replace what a call held by what it took."""
        async with self._changed:
            await self._hold(spent, reserved, -1)
            self._changed.notify_all()

    async def _hold(self, more: Spent, less: Spent, calls: int) -> None:
        read, written = (held + added - gone for held, added, gone in zip(self.held, more, less, strict=True))
        self.held, self._calls = Spent(read, written), self._calls + calls
        await asyncio.to_thread(storage.write_json, self._ledger, self.held._asdict())

    def _fits(self, held: Spent) -> bool:
        limits = self._endpoint
        in_tokens = not limits.tokens or sum(held) <= limits.tokens
        return in_tokens and (limits.is_here or not limits.dollars or limits.cost(held) <= limits.dollars)


# Servers know different parameters, so a request that is refused as such is asked with others: without the
# probabilities of tokens, then with the names of newer models, then without the schema of the answer.
_SCHEMA = {"name": "answer", "strict": True, "schema": ANSWER_SCHEMA}
_IN_JSON: dict[str, object] = {"response_format": {"type": "json_schema", "json_schema": _SCHEMA}}
_Form = tuple[str, dict[str, object]]  # the name of the most tokens, and other parameters
_FORMS: tuple[_Form, ...] = (
    ("max_tokens", {**_IN_JSON, "temperature": 0.0, "logprobs": True, "top_logprobs": _TOP}),
    ("max_tokens", {**_IN_JSON, "temperature": 0.0}),
    ("max_completion_tokens", _IN_JSON),
    ("max_tokens", {"temperature": 0.0}),
)


async def _reply(
    client: "openai.AsyncOpenAI", endpoint: Endpoint, pair: tuple[Asked, Asked], forms: list[_Form]
) -> "ChatCompletion":
    """Return the reply about a pair; removes `forms` that the server refuses. Raises openai.OpenAIError."""
    import openai

    create: Any = client.chat.completions.create  # its type does not take a dict
    while True:
        limit, more = form = forms[0]
        try:
            request = {"model": endpoint.model, "messages": messages(*pair), limit: endpoint.max_tokens}
            reply: ChatCompletion = await create(**request, **more)
            return reply
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            if form is _FORMS[-1]:
                raise
            if form is forms[0]:
                del forms[0]


def _answer(reply: "ChatCompletion", pair: tuple[Asked, Asked], most: Spent) -> tuple[Answer, Spent]:
    """Return the answer in a reply, and the tokens that it took: what the server says, else the most."""
    used = getattr(reply, "usage", None)
    counts = [getattr(used, name, None) for name in ("prompt_tokens", "completion_tokens")]
    spent = Spent(*(count if isinstance(count, int) else limit for count, limit in zip(counts, most, strict=True)))
    choice = reply.choices[0] if getattr(reply, "choices", None) else None
    model = str(getattr(reply, "model", "") or "")
    if choice is None or getattr(choice, "message", None) is None:
        return Answer(None, problem="not an answer of a chat endpoint", model=model), spent
    if getattr(choice.message, "refusal", None) or choice.finish_reason == "content_filter":
        return Answer(None, problem=REFUSED, model=model), spent
    answer = read_answer(choice.message.content or "", is_exchanged(*pair))
    if answer.same is None and choice.finish_reason == "length":
        answer = Answer(None, problem="cut off; a higher judge.max_tokens may help")
    elif answer.same is not None and choice.logprobs and choice.logprobs.content:
        mean = expected_number([token.model_dump() for token in choice.logprobs.content])
        answer = answer if mean is None else answer._replace(same=mean)
    return answer._replace(model=model), spent


def _said(error: "openai.OpenAIError", key: str) -> str:
    """Return what went wrong, in one line."""
    import openai

    if isinstance(error, openai.APITimeoutError):
        return f"no answer within {_SECONDS:.0f} s, after {_RETRIES} retries"
    if isinstance(error, openai.APIConnectionError):
        return f"the connection failed or broke off, after {_RETRIES} retries"
    if not isinstance(error, openai.APIStatusError):
        return f"not an answer of a chat endpoint ({_short(error, key)})"
    means = {
        401: "the key is not accepted",
        403: "the key may not use this model",
        404: "no such address or model; most addresses end in /v1",
        410: "the endpoint is gone",
        429: f"too many requests, or no credit left, after {_RETRIES} retries",
    }
    meaning = means.get(error.status_code, "the server failed" if error.status_code >= 500 else "refused")
    return f"HTTP {error.status_code}: {meaning} ({_short(error, key)})"


def _short(error: Exception, key: str) -> str:
    """Return the beginning of an error's text, without the key, should a server repeat it."""
    text = re.sub(r"^Error code: \d+ - ", "", " ".join(str(error).split()))
    return (text.replace(key, "…") if key else text)[:200]
