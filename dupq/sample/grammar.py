"""The language of the sample archive: questions written from `grammar.toml`.

A question's meaning is an intent and a value for each slot of its topic. Several voices say the same
intent in other words, and values and many words have synonyms that recur in all topics: what an encoder can
learn and a comparison of words cannot see. Fillers are shared by all questions of a topic and mean nothing.
"""

import functools
import html
import importlib.resources
import itertools
import random
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Words = Mapping[str, Sequence[str]]

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")
_SENTENCE_START = re.compile(r"(^|[.?!] )([a-zéà])")


class Dice:
    """Chance that falls alike on every machine and Python version: nothing but `random.Random.random`."""

    def __init__(self, seed: int) -> None:
        """The same seed gives the same throws."""
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` up to, but not including, `high`."""
        return low + int(self._random.random() * (high - low))

    def chance(self, share: float) -> bool:
        """True in `share` of the throws."""
        return self._random.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        """One of `choices`."""
        return choices[self.between(0, len(choices))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """The items in chance order."""
        return sorted(items, key=lambda _: self._random.random())


@dataclass(frozen=True)
class Value:
    """What a slot may hold: its names are synonyms, its hints are sentences that only it can bring about."""

    key: str
    names: tuple[str, ...]
    hints: tuple[str, ...]


@dataclass(frozen=True)
class Intent:
    """What is asked. Each voice is a title and a body that say it in other words."""

    key: str
    voices: tuple[tuple[str, str], ...]
    details: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """A field with its slots, its intents, and the sentences that any of its questions may hold."""

    key: str
    slots: dict[str, tuple[Value, ...]]
    intents: tuple[Intent, ...]
    fillers: tuple[str, ...]
    items: tuple[str, ...]


@dataclass(frozen=True)
class Common:
    """The sentences of all topics."""

    fillers: tuple[str, ...]
    closers: tuple[str, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """Everything that the sample's questions are written from."""

    words: dict[str, tuple[str, ...]]
    common: Common
    topics: tuple[Topic, ...]


@dataclass(frozen=True)
class Meaning:
    """Two questions are duplicates if and only if their meanings are equal."""

    topic: Topic
    intent: Intent
    values: tuple[Value, ...]


class Block(NamedTuple):
    """One element of a body: its tag and the HTML inside."""

    tag: str
    inner: str


@dataclass(frozen=True)
class Draft:
    """A question as its author wrote it. The last block of a composed one is a paragraph of plain text."""

    title: str
    blocks: tuple[Block, ...]


@functools.cache
def load_grammar() -> Grammar:
    """The grammar that ships with dupq."""
    source = importlib.resources.files("dupq.sample") / "grammar.toml"
    sections: dict[str, Any] = tomllib.loads(source.read_text("utf-8"))
    words = {name: tuple(synonyms.split("|")) for name, synonyms in sections.pop("words").items()}
    common = Common(**{name: tuple(sentences) for name, sentences in sections.pop("common").items()})
    return Grammar(words, common, tuple(_topic(key, section) for key, section in sections.items()))


def _topic(key: str, section: dict[str, Any]) -> Topic:
    slots = {
        slot: tuple(Value(name, tuple(names.split("|")), tuple(hints)) for name, (names, *hints) in values.items())
        for slot, values in section["slots"].items()
    }
    intents = tuple(
        Intent(name, tuple((title, body) for title, body in intent["voices"]), tuple(intent["details"]))
        for name, intent in section["intents"].items()
    )
    return Topic(key, slots, intents, tuple(section["fillers"]), tuple(section["items"]))


def meanings(topic: Topic) -> list[Meaning]:
    """Everything that can be asked in a topic, each once."""
    return [
        Meaning(topic, intent, values)
        for intent in topic.intents
        for values in itertools.product(*topic.slots.values())
    ]


def compose(grammar: Grammar, meaning: Meaning, voice: int, dice: Dice) -> Draft:
    """A question of this meaning in this voice; names, hints and fillers fall by chance.

    Hints stand next to the names that the body gives the values: this is what word vectors can learn synonyms
    from.
    """
    topic, common = meaning.topic, grammar.common
    words = _words(grammar, meaning, dice)
    title, body = meaning.intent.voices[voice]
    hints = [dice.pick(value.hints) for value in meaning.values]
    details = dice.shuffled(meaning.intent.details)[:2]
    fillers = [dice.pick(topic.fillers), *dice.shuffled(common.fillers)[:3]]
    paragraphs = [
        [hints[0], body, *hints[1:], *details],
        dice.shuffled(fillers),
        [dice.pick(common.closers)],
    ]
    blocks = [Block("p", html.escape(_say(sentences, words, dice), quote=False)) for sentences in paragraphs]
    blocks[-1:-1] = _extras(grammar, words, dice)
    return Draft(_say([title], words, dice), tuple(blocks))


def answer(grammar: Grammar, meaning: Meaning, dice: Dice) -> str:
    """The body of an answer to a question of this meaning."""
    return f"<p>{_say([dice.pick(grammar.common.answers)], _words(grammar, meaning, dice), dice)}</p>\n"


def _words(grammar: Grammar, meaning: Meaning, dice: Dice) -> Words:
    """The words of one question: it names the value of each slot always alike, as one author would."""
    names = {slot: (dice.pick(value.names),) for slot, value in zip(meaning.topic.slots, meaning.values, strict=True)}
    return {**grammar.words, **names, "item": meaning.topic.items, "digit": "0123456789"}


def _say(sentences: Iterable[str], words: Words, dice: Dice) -> str:
    text = " ".join(_expand(sentence, words, dice) for sentence in sentences)
    return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), text)


def _expand(template: str, words: Words, dice: Dice) -> str:
    chosen = _CHOICE.sub(lambda match: dice.pick(match[1].split("|")), template)
    return _NAME.sub(lambda match: _expand(dice.pick(words[match[1]]), words, dice), chosen)


def _extras(grammar: Grammar, words: Words, dice: Dice) -> list[Block]:
    """In three of ten questions, what real bodies hold beside paragraphs: code, lists, links, images."""
    items = dice.shuffled(words["item"])[:3]
    number = dice.between(100, 1000)
    kinds = [
        [Block("pre", f"<code>{_expand(dice.pick(grammar.common.notes), words, dice)}\n</code>")],
        [Block("ul", "\n" + "".join(f"<li>{item}</li>\n" for item in items))],
        [Block("p", f'See <a href="https://example.org/notes/{number}" rel="nofollow">my notes</a>.')],
        [Block("p", f'<img src="https://example.org/images/{number}.jpg" alt="photograph">')],
        [Block("p", f"My log reads <code>{number}&lt;{number + 1}</code> &amp; nothing else.")],
    ]
    return dice.pick(kinds) if dice.chance(0.3) else []
