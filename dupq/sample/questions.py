"""The built-in sample archive: questions as people ask them, written from `questions.toml`.

    python -m dupq.sample FOLDER [--questions N] [--seed N]

writes `sample.stackexchange.com.7z` and `truth.tsv`. A question's meaning is an intent and a value for each of its
slots; voices ask the same in other words.
"""

import argparse
import html
import importlib.resources
import itertools
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dupq.errors import DupqError
from dupq.sample.archive import Block, Dice, Kind, Meaning, Question, SampleFiles, write_archive

_ORIGINALS_PER_INTENT = 20
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE, _NOT_TAG = re.compile(r"^(an?|the|my) "), re.compile(r"[^\w]+")
_SENTENCE_START = re.compile(r"(^|[.?!] )([a-z])")


def write_sample(folder: str | Path, questions: int = 1000, seed: int = 1) -> SampleFiles:
    """Write the sample into a local folder: 5 % are copies, 8 % near copies, 15 % rephrasings."""
    return write_archive(HowTo(), folder, questions, seed)


class HowTo:
    """The questions of a site about anything practical; see `dupq.sample.archive.Language`."""

    shares: Mapping[Kind, float] = {"copy": 0.05, "near_copy": 0.08, "rephrasing": 0.15}
    odd = (
        Question("Which side of the aluminium foil goes up? (the title says it all)", ()),
        Question("What do these lines in the log mean?", (("pre", "<code>eth0: link down &gt;&gt; retry 3\n</code>"),)),
        Question("Typing é, ł, ß and 日本 on one keyboard 🙂", (("p", "Can one layout do «café», Łódź &amp; قهوة?"),)),
        Question("Is it rude to send a letter that is not written by hand?", (("p", "My aunt says that it is."),)),
    )

    def __init__(self) -> None:
        """Read the intents."""
        text = (importlib.resources.files("dupq.sample") / "questions.toml").read_text("utf-8")
        self._topics: dict[str, Any] = tomllib.loads(text)
        self._common: dict[str, list[str]] = self._topics.pop("common")

    def meanings(self, originals: int) -> list[Meaning]:
        """So many meanings, diagonal by diagonal of slots: most of an intent differ in both values, some in one."""
        intents = [(topic, name, intent) for topic, some in self._topics.items() for name, intent in some.items()]
        diagonals: list[tuple[int, Meaning]] = []
        for topic, name, intent in intents[: 2 + originals // _ORIGINALS_PER_INTENT]:
            (one, ones), (other, others) = ((slot, names.split("|")) for slot, names in intent["slots"].items())
            for (i, left), (j, right) in itertools.product(enumerate(ones), enumerate(others)):
                meaning = Meaning((topic, name), tuple(map(tuple, intent["voices"])), ((one, left), (other, right)))
                diagonals.append(((i - j) % len(others), meaning))
        return [meaning for _, meaning in sorted(diagonals, key=lambda diagonal: diagonal[0])[:originals]]

    def compose(self, meaning: Meaning, voice: int, dice: Dice) -> Question:
        """A question of this meaning in this voice, with sentences that anybody may write."""
        title, body = (_filled(text, meaning, dice) for text in meaning.voices[voice])
        fillers = [_filled(filler, meaning, dice) for filler in dice.shuffled(self._common["fillers"])[:2]]
        number = dice.between(10, 100)
        extras = [
            ("ul", "\n" + "".join(f"<li>{value}</li>\n" for _, value in meaning.values)),
            ("p", f'<img src="https://example.org/{number}.jpg" alt="photo">'),
            ("p", f'I read <a href="https://example.org/{number}" rel="nofollow">this page</a> already.'),
        ]
        paragraphs = [body, " ".join(fillers), dice.pick(self._common["closers"])]
        blocks: list[Block] = [("p", html.escape(paragraph, quote=False)) for paragraph in paragraphs]
        blocks[-1:-1] = [dice.pick(extras)] if dice.chance(0.2) else []
        named = [_NOT_TAG.sub("-", _ARTICLE.sub("", value)) for _, value in meaning.values if dice.chance(0.8)]
        return Question(title, tuple(blocks), (*meaning.intent, *named))

    def answer(self, meaning: Meaning, dice: Dice) -> str:
        """The body of an answer to a question of this meaning."""
        return f"<p>{_filled(dice.pick(self._common['answers']), meaning, dice)}</p>\n"


def _filled(text: str, meaning: Meaning, dice: Dice) -> str:
    for slot, value in meaning.values:
        text = text.replace(f"{{{slot}}}", value)
    chosen = _CHOICE.sub(lambda match: dice.pick(match[1].split("|")), text)
    return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), chosen)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dupq.sample",
        description="Write a small made-up dump with planted duplicates, and the truth about them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", help="local folder to write into")
    parser.add_argument("--questions", type=int, default=1000, help="number of questions")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another archive")
    options = parser.parse_args(arguments)
    try:
        files = write_sample(options.folder, options.questions, options.seed)
    except DupqError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{options.questions} questions written to {files.archive}, the truth about them to {files.truth}")
    return 0
