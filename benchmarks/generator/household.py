"""Made sites in nine languages: questions about household things, whose duplicates are all known.

A question asks how something is done (one of 30 `verbs`) to a thing (one of 30 `nouns`, some with a model). Twelve
titles ask it in other words; the sentences of `context` go with any of them, those of `fillers` mean nothing. What is
written for each language is in household/LANGUAGE.toml; `joint` stands between its sentences.
"""

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from examples.sample.archive import Dice, document

FOLDER = Path(__file__).with_suffix("")
LANGUAGES = ("english", "russian", "portuguese", "arabic", "turkish", "korean", "japanese", "chinese", "thai")
COPIES = ("exact copy", "edited copy", "rephrasing")
SIBLING = "sibling"
_MODELS = ("", "", "", "", " X200", " X300")
_PARTICLE = re.compile(r"(.)\[(.)\|(.)\]")  # Korean: behind a consonant, and behind a vowel

Meaning = tuple[int, int, int]  # verb, noun, model


class Question(NamedTuple):
    """A question: two with the same meaning are duplicates."""

    meaning: Meaning
    kind: str  # original, one of COPIES, or a sibling
    title: str
    body: str


class Language:
    """What questions are written from."""

    def __init__(self, name: str) -> None:
        source: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        self.nouns, self.verbs, self.thanks = (source[part].split("|") for part in ("nouns", "verbs", "thanks"))
        self.titles, self.context, self.fillers = source["titles"], source["context"], source["fillers"]
        self.joint = source.get("joint", " ")

    def question(self, meaning: Meaning, kind: str, title: str, sentences: list[str]) -> Question:
        """A question of this meaning."""
        return Question(
            meaning, kind, self._said(title, meaning), self.joint.join(self._said(one, meaning) for one in sentences)
        )

    def edited(self, question: Question, dice: Dice) -> Question:
        """A copy that has a sentence more at its end, or lacks a letter of its last one."""
        body = question.body
        if dice.chance(0.5):
            return question._replace(kind="edited copy", body=body + self.joint + dice.pick(self.thanks))
        place = dice.pick([place for place in range(len(body) - 15, len(body)) if body[place].isalpha()])
        return question._replace(kind="edited copy", body=body[:place] + body[place + 1 :])

    def _said(self, sentence: str, meaning: Meaning) -> str:
        verb, noun, model = meaning
        said = sentence.replace("{v}", self.verbs[verb]).replace("{x}", self.nouns[noun] + _MODELS[model])
        said = _PARTICLE.sub(lambda match: match[1] + match[2 if _ends_in_consonant(match[1]) else 3], said)
        return said[0].upper() + said[1:]


def _ends_in_consonant(letter: str) -> bool:
    """Whether a Hangul syllable does; X200 and X300 are read as words that do."""
    return letter.isdecimal() or (ord(letter) - 0xAC00) % 28 > 0


def write_site(folder: Path, name: str, questions: int, seed: int = 1) -> list[Question]:
    """Write Posts.xml of a site in a language; the questions by their ids, from 1.

    A tenth each are exact copies, edited copies, rephrasings and siblings of other originals. A sibling has the same
    sentences but for the verb, the noun or the model. The same arguments give the same bytes.
    """
    language, dice = Language(name), Dice(seed)
    planted = questions // 10
    counts = len(language.verbs), len(language.nouns), len(_MODELS)
    meanings = dice.shuffled(
        (verb, noun, model if _MODELS[model] else 0) for verb, noun, model in itertools.product(*map(range, counts))
    )
    meanings = list(dict.fromkeys(meanings))
    written = [
        (
            meaning,
            dice.pick(language.titles),
            [*dice.shuffled(language.context)[:3], *dice.shuffled(language.fillers)[:2]],
        )
        for meaning in meanings[: questions - 4 * planted]
    ]
    found = [language.question(meaning, "original", title, body) for meaning, title, body in written]
    found += [original._replace(kind="exact copy") for original in found[:planted]]
    found += [language.edited(original, dice) for original in found[planted : 2 * planted]]
    taken = set(meanings[: len(written)])
    for meaning, title, sentences in written[2 * planted : 3 * planted]:
        other = dice.pick([one for one in language.titles if one != title])
        context = [one for one in language.context if one not in sentences]
        body = [*dice.shuffled(context)[:3], *dice.shuffled(language.fillers)[:2]]
        found.append(language.question(meaning, "rephrasing", other, body))
    for meaning, title, sentences in written[3 * planted : 4 * planted]:
        near = [
            one for one in meanings if one not in taken and sum(a != b for a, b in zip(one, meaning, strict=True)) == 1
        ]
        taken.add(sibling := dice.pick(near))
        found.append(language.question(sibling, SIBLING, title, sentences))
    found = dice.shuffled(found)
    rows = (
        {
            "Id": number,
            "PostTypeId": 1,
            "CreationDate": f"2024-01-{1 + number * 27 // len(found):02d}T00:00:00.000",
            "Score": 1,
            "ViewCount": 10,
            "Body": f"<p>{question.body}</p>",
            "Title": question.title,
            "Tags": "<home>",
            "AnswerCount": 0,
        }
        for number, question in enumerate(found, 1)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Posts.xml").write_bytes(document("posts", rows))
    return found
