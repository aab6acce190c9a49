"""The questions of the sample archive: originals, each of its own meaning, and duplicates planted on them."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from dupq.errors import SettingError
from dupq.sample.grammar import Block, Dice, Draft, Grammar, Meaning, compose, meanings

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
