"""The built-in sample archive: questions as people ask them, written from `questions.toml`.

    python -m examples.sample FOLDER [--questions N] [--seed N]

writes `sample.stackexchange.com.7z` and `truth.tsv`. A question's meaning is an intent and a value for each of its
slots; voices ask the same in other words.
"""

import argparse
import functools
import html
import itertools
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from dupq.errors import DupqError
from examples.sample.archive import Block, Dice, Kind, Language, Meaning, Question, SampleFiles, write_archive

_ORIGINALS_PER_INTENT = 20
_SHARES: dict[Kind, tuple[float, float]] = {"copy": (0.05, 0.3), "near_copy": (0.08, 0.4), "rephrasing": (0.15, 0.65)}
_SHORT = 200  # characters of a body
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE, _NOT_TAG = re.compile(r"^(an?|the|my) "), re.compile(r"[^\w]+")
_SENTENCE_START = re.compile(r"(^|[.?!] )([a-z])")
_ODD = (
    Question("Which side of the aluminium foil goes up? (the title says it all)", ()),
    Question("What do these lines in the log mean?", (("pre", "<code>eth0: link down &gt;&gt; retry 3\n</code>"),)),
    Question("Typing é, ł, ß and 日本 on one keyboard 🙂", (("p", "Can one layout do «café», Łódź &amp; قهوة?"),)),
    Question("Is it rude to send a letter that is not written by hand?", (("p", "My aunt says that it is."),)),
)


def write_sample(folder: str | Path, questions: int = 1000, seed: int = 1) -> SampleFiles:
    """Write the sample into a local folder: 5 % are copies, 8 % near copies, 15 % rephrasings; half are linked."""
    return write_archive(Language(_SHARES, _ODD, meanings, compose, answer), folder, questions, seed)


@functools.cache
def _toml() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("questions.toml").read_text("utf-8"))


def meanings(originals: int) -> list[Meaning]:
    """So many meanings: most of an intent differ in both values, some in one; fewer intents if few are needed."""
    topics = [(topic, some) for topic, some in _toml().items() if topic != "common"]
    intents = [(topic, name, intent) for topic, some in topics for name, intent in some.items()]
    diagonals: list[tuple[int, Meaning]] = []
    for topic, name, intent in intents[: 2 + originals // _ORIGINALS_PER_INTENT]:
        (one, ones), (other, others) = ((slot, names.split("|")) for slot, names in intent["slots"].items())
        for (i, left), (j, right) in itertools.product(enumerate(ones), enumerate(others)):
            meaning = Meaning((topic, name), tuple(map(tuple, intent["voices"])), ((one, left), (other, right)))
            diagonals.append(((i - j) % len(others), meaning))
    return [meaning for _, meaning in sorted(diagonals, key=lambda diagonal: diagonal[0])[:originals]]


def compose(meaning: Meaning, voice: int, dice: Dice) -> Question:
    """A question of this meaning in this voice, with sentences that anybody may write."""
    common = _toml()["common"]
    title, body = (_filled(text, meaning, dice) for text in meaning.voices[voice])
    some = dice.shuffled(common["fillers"])[: 2 if len(body) > _SHORT else 3]  # enough for a near copy to be near
    fillers = [_filled(filler, meaning, dice) for filler in some]
    number = dice.between(10, 100)
    extras = [
        ("ul", "\n" + "".join(f"<li>{value}</li>\n" for _, value in meaning.values)),
        ("p", f'<img src="https://example.org/{number}.jpg" alt="photo">'),
        ("p", f'I read <a href="https://example.org/{number}" rel="nofollow">this page</a> already.'),
    ]
    paragraphs = [body, " ".join(fillers), _filled(dice.pick(common["closers"]), meaning, dice)]
    blocks: list[Block] = [("p", html.escape(paragraph, quote=False)) for paragraph in paragraphs]
    blocks[-1:-1] = [dice.pick(extras)] if dice.chance(0.2) else []
    named = [_NOT_TAG.sub("-", _ARTICLE.sub("", value)) for _, value in meaning.values if dice.chance(0.8)]
    return Question(title, tuple(blocks), (*meaning.intent, *named))


def answer(meaning: Meaning, dice: Dice) -> str:
    """The body of an answer to a question of this meaning."""
    return f"<p>{_filled(dice.pick(_toml()['common']['answers']), meaning, dice)}</p>\n"


def _filled(text: str, meaning: Meaning, dice: Dice) -> str:
    for slot, value in meaning.values:
        text = text.replace(f"{{{slot}}}", value)
    chosen = _CHOICE.sub(lambda match: dice.pick(match[1].split("|")), text)
    return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), chosen)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.sample",
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
