"""The language of the sample archive: questions written from `grammar.toml`.

A question's meaning is an intent and a value for each slot of its topic. Several voices say the same
intent in other words, and values and many words have synonyms that recur in all topics: what an encoder can
learn and a comparison of words cannot see. Fillers are shared by all questions of a topic and mean nothing.

A question's duplicates are planted on it: the same meaning in other words.
"""

import dataclasses
import functools
import html
import importlib.resources
import itertools
import random
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from dupq.errors import SettingError

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


Kind = Literal["copy", "near_copy", "rephrasing"]
Spelling = Literal["usual", "spaced", "marked"]

_FEWEST_QUESTIONS = 20
_OPENED = datetime(2010, 8, 1)
_YEARS = timedelta(days=12 * 365)
_SPELLINGS: tuple[Spelling, ...] = ("usual", "spaced", "marked")
_SHARES: dict[Kind, float] = {"copy": 0.075, "near_copy": 0.1, "rephrasing": 0.15}
_LINKED_SHARES: dict[Kind, float] = {"copy": 0.3, "near_copy": 0.4, "rephrasing": 0.6}
_ORIGINALS_PER_TOPIC = 135
_FEWEST_TOPICS = 2
_SHARED_REPHRASINGS = 0.2  # share of the rephrasings whose original has a near copy as well

_ODD = (
    Draft("Where does a rain gauge belong? (The title says it all)", ()),
    Draft(
        "What does this scrap of a logbook mean?",
        (Block("pre", "<code>06:10 W 5 &gt;&gt; 7\n06:40 SW 8 !!\n</code>"),),
    ),
    Draft(
        "Étude d'un café glacé à Łódź: 日本の抹茶 🍵, قهوة or tea?",
        (Block("p", "Naïve façade, smørrebrød &amp; jalapeño … «قهوة عربية» 🐝🚲👩‍🚀 — ½ Tasse genügt?"),),
    ),
    Draft(
        "Is a rope walk still of any use?",
        (Block("p", "I asked my great-aunt, and she laughed for a minute."),),
    ),
)
_DELETED_AUTHOR = "user1307"  # of the last odd question


@dataclass(frozen=True)
class Question:
    """One question, before it has an id."""

    draft: Draft
    moment: datetime
    meaning: Meaning | None = None  # null: one of the odd ones
    kind: Kind | None = None  # null: an original
    original: int = -1  # the index of a duplicate's original in the list
    linked: bool = False
    spelling: Spelling = "usual"
    deleted_author: str | None = None


class _Original(NamedTuple):
    question: Question
    meaning: Meaning
    voice: int


class _Target(NamedTuple):
    kind: Kind
    original: int
    linked: bool


def plant(grammar: Grammar, questions: int, dice: Dice) -> list[Question]:
    """So many questions: odd ones, composed originals, and copies, near copies and rephrasings of those.

    Every duplicate is later than its original. A fifth of the rephrasings have an original with a near copy,
    so there are clusters of three. Raises SettingError where the grammar cannot write so many or so few.
    """
    counts = {kind: round(questions * share) for kind, share in _SHARES.items()}
    odd = [Question(draft, _any_moment(dice)) for draft in _ODD]
    odd[-1] = dataclasses.replace(odd[-1], deleted_author=_DELETED_AUTHOR)
    composed = questions - sum(counts.values()) - len(odd)
    available = _available(grammar, composed)
    if questions < _FEWEST_QUESTIONS:
        raise SettingError(f"{questions} questions: a sample has at least {_FEWEST_QUESTIONS}")
    if composed > len(available):
        raise SettingError(f"{questions} questions: {composed} originals, but the grammar has {len(available)}")
    originals = [_original(grammar, meaning, dice) for meaning in dice.shuffled(available)[:composed]]
    planted = [*odd, *(original.question for original in originals)]
    for target in _targets(counts, dice.shuffled(range(composed))):
        duplicate = _duplicate(grammar, originals[target.original], target.kind, dice)
        original = len(odd) + target.original
        planted.append(dataclasses.replace(duplicate, kind=target.kind, original=original, linked=target.linked))
    return planted


def _available(grammar: Grammar, composed: int) -> list[Meaning]:
    """A smaller sample has fewer topics, not sparser ones: its duplicates are as hard to find."""
    topics = max(_FEWEST_TOPICS, round(composed / _ORIGINALS_PER_TOPIC))
    return [meaning for topic in grammar.topics[:topics] for meaning in meanings(topic)]


def _any_moment(dice: Dice) -> datetime:
    return _OPENED + timedelta(milliseconds=dice.between(0, _YEARS // timedelta(milliseconds=1)))


def _later(moment: datetime, dice: Dice) -> datetime:
    """A moment from the next day to a year after the last original."""
    remaining = (_OPENED + _YEARS + timedelta(days=365) - moment) // timedelta(milliseconds=1)
    return moment + timedelta(milliseconds=dice.between(86_400_000, remaining))


def _original(grammar: Grammar, meaning: Meaning, dice: Dice) -> _Original:
    voice = dice.between(0, len(meaning.intent.voices))
    question = Question(compose(grammar, meaning, voice, dice), _any_moment(dice), meaning)
    return _Original(question, meaning, voice)


def _targets(counts: dict[Kind, int], order: list[int]) -> list[_Target]:
    """What is planted on which original: one stretch of `order` for each kind, and an overlap of two."""
    shared = round(counts["rephrasing"] * _SHARED_REPHRASINGS)
    targets: list[_Target] = []
    for kind, count in counts.items():
        start = len(targets) - (shared if kind == "rephrasing" else 0)
        linked = round(count * _LINKED_SHARES[kind])
        stretch = order[start : start + count]
        targets += [_Target(kind, index, place < linked) for place, index in enumerate(stretch)]
    return targets


def _duplicate(grammar: Grammar, original: _Original, kind: Kind, dice: Dice) -> Question:
    source = dataclasses.replace(original.question, moment=_later(original.question.moment, dice))
    if kind == "copy":
        return dataclasses.replace(source, spelling=dice.pick(_SPELLINGS))
    if kind == "near_copy":
        return dataclasses.replace(source, draft=_edited(source.draft, dice))
    voices = len(original.meaning.intent.voices)
    voice = (original.voice + dice.between(1, voices)) % voices
    return dataclasses.replace(source, draft=compose(grammar, original.meaning, voice, dice))


def _edited(draft: Draft, dice: Dice) -> Draft:
    """A word misspelt in the first paragraph, or two words more at the end, or both: few shingles change."""
    blocks = list(draft.blocks)
    edit = dice.pick(("misspell", "append", "both"))
    if edit != "append":
        blocks[0] = blocks[0]._replace(inner=_misspelt(blocks[0].inner, dice))
    if edit != "misspell":
        addition = dice.pick(("Please help.", "Urgent, alas.", "Greetings, Robin."))
        blocks[-1] = blocks[-1]._replace(inner=f"{blocks[-1].inner} {addition}")
    return Draft(draft.title, tuple(blocks))


def _misspelt(text: str, dice: Dice) -> str:
    words = text.split(" ")
    index = dice.pick([index for index, word in enumerate(words) if len(word) > 4 and word.isalpha()])
    cut = dice.between(2, len(words[index]) - 1)
    words[index] = words[index][:cut] + words[index][cut + 1 :]
    return " ".join(words)
