"""The language of the sample archive of the tests: riddles that only training on them teaches to tell apart.

A question's meaning is an intent and a value for each slot of its topic. Several voices say the same
intent in other words, and values and many words have synonyms that recur in all topics: what an encoder can
learn and a comparison of words cannot see. Fillers are shared by all questions of a topic and mean nothing.
"""

import html
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.sample.archive import Block, Dice, Kind, Language, Meaning, Question, SampleFiles, write_archive

Words = Mapping[str, Sequence[str]]

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")
_SENTENCE_START = re.compile(r"(^|[.?!] )([a-zéà])")


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
    intents: dict[str, Intent]
    fillers: tuple[str, ...]
    items: tuple[str, ...]


_ORIGINALS_PER_TOPIC = 135
_FEWEST_TOPICS = 2


_SHARES: dict[Kind, tuple[float, float]] = {"copy": (0.075, 0.3), "near_copy": (0.1, 0.4), "rephrasing": (0.15, 0.6)}
_ODD = (
    Question("Where does a rain gauge belong? (The title says it all)", ()),
    Question(
        "What does this scrap of a logbook mean?", (("pre", "<code>06:10 W 5 &gt;&gt; 7\n06:40 SW 8 !!\n</code>"),)
    ),
    Question(
        "Étude d'un café glacé à Łódź: 日本の抹茶 🍵, قهوة or tea?",
        (("p", "Naïve façade, smørrebrød &amp; jalapeño … «قهوة عربية» 🐝🚲👩‍🚀 — ½ Tasse genügt?"),),
    ),
    Question("Is a rope walk still of any use?", (("p", "I asked my great-aunt, and she laughed for a minute."),)),
)


def write_sample(folder: str | Path, questions: int = 2000, seed: int = 1) -> SampleFiles:
    """Write an archive of riddles into a local folder: 7.5 % are copies, 10 % near copies, 15 % rephrasings."""
    riddles = Riddles()
    language = Language(_SHARES, _ODD, riddles.meanings, riddles.compose, riddles.answer)
    return write_archive(language, folder, questions, seed)


class Riddles:
    """What the riddles are written in; see `examples.sample.archive.Language`."""

    def __init__(self) -> None:
        """Read the grammar."""
        sections: dict[str, Any] = tomllib.loads(Path(__file__).with_name("grammar.toml").read_text("utf-8"))
        self._words = {name: tuple(synonyms.split("|")) for name, synonyms in sections.pop("words").items()}
        self._common: dict[str, list[str]] = sections.pop("common")
        self._topics = {key: _topic(key, section) for key, section in sections.items()}

    def meanings(self, originals: int) -> list[Meaning]:
        """A smaller sample has fewer topics, not sparser ones: its duplicates are as hard to find."""
        topics = max(_FEWEST_TOPICS, round(originals / _ORIGINALS_PER_TOPIC))
        return [
            Meaning((topic.key, intent.key), intent.voices, values)
            for topic in list(self._topics.values())[:topics]
            for intent in topic.intents.values()
            for values in itertools.product(*topic.slots.values())
        ]

    def compose(self, meaning: Meaning, voice: int, dice: Dice) -> Question:
        """A question of this meaning in this voice; names, hints and fillers fall by chance.

        Hints stand next to the names that the body gives the values: this is what word vectors can learn synonyms
        from.
        """
        topic = self._topics[meaning.intent[0]]
        words = self._words_of(meaning, dice)
        title, body = meaning.voices[voice]
        hints = [dice.pick(value.hints) for value in meaning.values]
        details = dice.shuffled(topic.intents[meaning.intent[1]].details)[:2]
        fillers = [dice.pick(topic.fillers), *dice.shuffled(self._common["fillers"])[:3]]
        paragraphs = [
            [hints[0], body, *hints[1:], *details],
            dice.shuffled(fillers),
            [dice.pick(self._common["closers"])],
        ]
        blocks = [("p", html.escape(_say(sentences, words, dice), quote=False)) for sentences in paragraphs]
        blocks[-1:-1] = _extras(self._common["notes"], words, dice)
        return Question(_say([title], words, dice), tuple(blocks), meaning.intent)

    def answer(self, meaning: Meaning, dice: Dice) -> str:
        """The body of an answer to a question of this meaning."""
        sentence = dice.pick(self._common["answers"])
        return f"<p>{_say([sentence], self._words_of(meaning, dice), dice)}</p>\n"

    def _words_of(self, meaning: Meaning, dice: Dice) -> Words:
        """The words of one question: it names the value of each slot always alike, as one author would."""
        topic = self._topics[meaning.intent[0]]
        names = {slot: (dice.pick(value.names),) for slot, value in zip(topic.slots, meaning.values, strict=True)}
        return {**self._words, **names, "item": topic.items, "digit": "0123456789"}


def _topic(key: str, section: dict[str, Any]) -> Topic:
    slots = {
        slot: tuple(Value(name, tuple(names.split("|")), tuple(hints)) for name, (names, *hints) in values.items())
        for slot, values in section["slots"].items()
    }
    intents = {
        name: Intent(name, tuple((title, body) for title, body in intent["voices"]), tuple(intent["details"]))
        for name, intent in section["intents"].items()
    }
    return Topic(key, slots, intents, tuple(section["fillers"]), tuple(section["items"]))


def _say(sentences: Iterable[str], words: Words, dice: Dice) -> str:
    text = " ".join(_expand(sentence, words, dice) for sentence in sentences)
    return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), text)


def _expand(template: str, words: Words, dice: Dice) -> str:
    chosen = _CHOICE.sub(lambda match: dice.pick(match[1].split("|")), template)
    return _NAME.sub(lambda match: _expand(dice.pick(words[match[1]]), words, dice), chosen)


def _extras(notes: Sequence[str], words: Words, dice: Dice) -> list[Block]:
    """In three of ten questions, what real bodies hold beside paragraphs: code, lists, links, images."""
    items = dice.shuffled(words["item"])[:3]
    number = dice.between(100, 1000)
    kinds = [
        [("pre", f"<code>{_expand(dice.pick(notes), words, dice)}\n</code>")],
        [("ul", "\n" + "".join(f"<li>{item}</li>\n" for item in items))],
        [("p", f'See <a href="https://example.org/notes/{number}" rel="nofollow">my notes</a>.')],
        [("p", f'<img src="https://example.org/images/{number}.jpg" alt="photograph">')],
        [("p", f"My log reads <code>{number}&lt;{number + 1}</code> &amp; nothing else.")],
    ]
    return dice.pick(kinds) if dice.chance(0.3) else []
