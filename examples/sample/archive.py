"""The dump of a made-up site, all of whose duplicates are known: questions of a `Language`, planted and packed.

The format is that of real dumps, in both of its spellings: the older half of the questions has tags like `<a><b>`
and notes of possible duplicates, the newer half has `|a|b|`. The same arguments give the same bytes.
"""

import os
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from dupq import storage
from dupq.errors import SettingError
from dupq.system import require

T = TypeVar("T")
Attributes = Mapping[str, str | int | None]
Kind = Literal["copy", "near_copy", "rephrasing"]
Block = tuple[str, str]  # one element of a body: its tag and the HTML inside
Post = tuple[datetime, int, int]  # when, the question's index, and 0 for itself or the number of its answer
Ids = dict[tuple[int, int], int]  # by index and number
Link = tuple[datetime, int, int, int]  # when, the question's index, that of the related one, the type

SITE = "sample.stackexchange.com"
LINKED, DUPLICATE = 1, 3
_SHARED_REPHRASINGS = 0.2  # share of the rephrasings whose original has a near copy as well: clusters of three
_RELATED_SHARE = 0.05
_FEWEST_QUESTIONS = 20
_DAY, _MILLISECOND = timedelta(days=1), timedelta(milliseconds=1)
_OPENED, _YEARS = datetime(2010, 8, 1), 12 * 365 * _DAY
_PACKED = datetime(2024, 1, 1, tzinfo=UTC).timestamp()  # the members' time, a part of the archive's bytes


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


class Meaning(NamedTuple):
    """Two questions are duplicates if and only if their meanings are equal."""

    intent: tuple[str, str]
    voices: tuple[tuple[str, str], ...]  # titles and bodies that say it in other words
    values: tuple[Any, ...]


class Question(NamedTuple):
    """One question, before it has an id. The last block of one with a meaning is a paragraph of plain text."""

    title: str
    blocks: tuple[Block, ...]
    tags: tuple[str, ...] = ("off-topic",)
    moment: datetime = _OPENED
    meaning: Meaning | None = None  # null: an odd one
    voice: int = 0
    kind: Kind | None = None  # null: an original
    original: int = -1  # the index of a duplicate's original
    linked: bool = False
    spelling: Literal["usual", "spaced", "marked"] = "usual"


class Language(NamedTuple):
    """What the questions of an archive are written in."""

    shares: Mapping[Kind, tuple[float, float]]  # of all questions, and of these the share that is linked
    odd: Sequence[Question]  # unusual but valid; the author of the last was deleted
    meanings: Callable[[int], list[Meaning]]  # at least so many, if there are
    compose: Callable[[Meaning, int, Dice], Question]  # in one of the meaning's voices
    answer: Callable[[Meaning, Dice], str]  # its body


class SampleFiles(NamedTuple):
    """What `write_archive` wrote. A row of truth names a planted question and its original."""

    archive: Path
    truth: Path


def plant(language: Language, questions: int, dice: Dice) -> list[Question]:
    """So many questions: odd ones, originals, and later copies, near copies and rephrasings of those.

    Raises SettingError where the language cannot say so many or so few.
    """
    counts = {kind: round(questions * share) for kind, (share, _) in language.shares.items()}
    planted = [question._replace(moment=_later(_OPENED, _YEARS, dice)) for question in language.odd]
    odd, composed = len(planted), questions - sum(counts.values()) - len(planted)
    meanings = language.meanings(composed)
    if not (questions >= _FEWEST_QUESTIONS and composed <= len(meanings)):
        limits = f"at least {_FEWEST_QUESTIONS}, and so that at most {len(meanings)} are originals"
        raise SettingError(f"{questions} questions: {limits}, please; {composed} would be")
    for meaning in dice.shuffled(meanings)[:composed]:
        voice = dice.between(0, len(meaning.voices))
        question = language.compose(meaning, voice, dice)
        planted.append(question._replace(moment=_later(_OPENED, _YEARS, dice), meaning=meaning, voice=voice))
    order, start = dice.shuffled(range(odd, odd + composed)), 0
    for kind, count in counts.items():
        start -= round(count * _SHARED_REPHRASINGS) if kind == "rephrasing" else 0
        for place, index in enumerate(order[start : start + count]):
            linked = place < round(count * language.shares[kind][1])
            duplicate = _duplicate(language, planted[index], kind, dice)
            planted.append(duplicate._replace(kind=kind, original=index, linked=linked))
        start += count
    return planted


def _later(moment: datetime, span: timedelta, dice: Dice, soonest: timedelta = 0 * _DAY) -> datetime:
    return moment + _MILLISECOND * dice.between(soonest // _MILLISECOND, span // _MILLISECOND)


def _soon(moment: datetime, dice: Dice) -> datetime:
    return _later(moment, 30 * _DAY, dice, timedelta(minutes=10))


def _duplicate(language: Language, original: Question, kind: Kind, dice: Dice) -> Question:
    moment = _later(original.moment, _OPENED + _YEARS + 365 * _DAY - original.moment, dice, _DAY)
    if kind == "copy":
        return original._replace(moment=moment, spelling=dice.pick(("usual", "spaced", "marked")))
    if kind == "near_copy":
        return original._replace(moment=moment, blocks=_edited(original.blocks, dice))
    assert original.meaning is not None
    voice = (original.voice + dice.between(1, len(original.meaning.voices))) % len(original.meaning.voices)
    composed = language.compose(original.meaning, voice, dice)
    return composed._replace(moment=moment, meaning=original.meaning, voice=voice)


def _edited(blocks: tuple[Block, ...], dice: Dice) -> tuple[Block, ...]:
    """A word misspelt in the first paragraph, or two words more at the end, or both: few shingles change."""
    (tag, first), *middle, (last_tag, last) = blocks
    edit = dice.pick(("misspell", "append", "both"))
    if edit != "append":
        words = first.split(" ")
        index = dice.pick([index for index, word in enumerate(words) if len(word) > 4 and word.isalpha()])
        cut = dice.between(2, len(words[index]) - 1)
        words[index] = words[index][:cut] + words[index][cut + 1 :]
        first = " ".join(words)
    if edit != "misspell":
        last += " " + dice.pick(("Please help.", "Urgent, alas.", "Greetings, Robin."))
    return ((tag, first), *middle, (last_tag, last))


def write_archive(language: Language, folder: str | Path, questions: int, seed: int) -> SampleFiles:
    """Write the archive and its truth into a local folder, which is made if it is not there."""
    dice = Dice(seed)
    planted = plant(language, questions, dice)
    posts: list[Post] = []
    for index, question in enumerate(planted):
        posts.append((question.moment, index, 0))
        answers = dice.between(0, 3) if question.meaning else 0
        posts += [(_soon(question.moment, dice), index, number + 1) for number in range(answers)]
    posts.sort()
    ids: Ids = {}
    next_id = 1
    for _, index, number in posts:
        next_id += dice.between(1, 4)
        ids[index, number] = next_id
    links = _links(planted, dice)
    members = {
        "Posts.xml": document("posts", _post_rows(planted, posts, ids, links, language, dice)),
        "PostLinks.xml": document("postlinks", _link_rows(links, ids, dice)),
    }
    truth = sorted(
        (ids[index, 0], ids[question.original, 0], question.kind, int(question.linked))
        for index, question in enumerate(planted)
        if question.kind
    )
    rows = [("site", "question_id", "related_id", "kind", "linked"), *((SITE, *row) for row in truth)]
    Path(folder).mkdir(parents=True, exist_ok=True)
    files = SampleFiles(Path(folder) / f"{SITE}.7z", Path(folder) / "truth.tsv")
    storage.write_bytes(str(files.archive), _packed(members))
    storage.write_bytes(str(files.truth), "".join("\t".join(map(str, row)) + "\n" for row in rows).encode())
    return files


def _links(planted: list[Question], dice: Dice) -> list[Link]:
    """Links of duplicates, and of originals that ask the same of something else."""
    links = [
        (_soon(question.moment, dice), index, question.original, DUPLICATE)
        for index, question in enumerate(planted)
        if question.linked
    ]
    originals = defaultdict(list)
    for index, question in enumerate(planted):
        if question.meaning and question.kind is None:
            originals[question.meaning.intent].append(index)
    shuffled = [dice.shuffled(indices) for indices in originals.values()]
    pairs = [pair for indices in shuffled for pair in zip(indices[::2], indices[1::2], strict=False)]
    for pair in dice.shuffled(pairs)[: round(len(planted) * _RELATED_SHARE)]:
        related, index = sorted(pair, key=lambda index: planted[index].moment)
        links.append((_soon(planted[index].moment, dice), index, related, LINKED))
    return sorted(links)


def _link_rows(links: list[Link], ids: Ids, dice: Dice) -> Iterator[Attributes]:
    link_id = 0
    for moment, index, related, link_type in links:
        link_id += dice.between(1, 50)
        ends = {"PostId": ids[index, 0], "RelatedPostId": ids[related, 0]}
        yield {"Id": link_id, "CreationDate": moment_text(moment), **ends, "LinkTypeId": link_type}


def _post_rows(
    planted: list[Question], posts: list[Post], ids: Ids, links: list[Link], language: Language, dice: Dice
) -> Iterator[Attributes]:
    closed = {index: moment for moment, index, _, link_type in links if link_type == DUPLICATE}
    by_age = [index for _, index, number in posts if number == 0]
    older = set(by_age[: len(by_age) // 2])
    answers = defaultdict(list)
    for moment, index, number in posts:
        if number:
            answers[index].append((moment, ids[index, number]))
    for moment, index, number in posts:
        question, theirs = planted[index], answers[index]
        license_text = f"CC BY-SA {'3.0' if index in older else '4.0'}"
        if number and question.meaning:
            yield {
                "Id": ids[index, number],
                "PostTypeId": 2,
                "ParentId": ids[index, 0],
                "CreationDate": moment_text(moment),
                "Score": dice.between(-2, 60),
                "Body": language.answer(question.meaning, dice),
                "OwnerUserId": dice.between(2, 900),
                "LastActivityDate": moment_text(moment),
                "CommentCount": dice.between(0, 4),
                "ContentLicense": license_text,
            }
            continue
        noted = index in older and question.linked and question.kind != "copy"  # copies stay copies
        note = duplicate_note(SITE, ids[question.original, 0], planted[question.original].title) if noted else ""
        deleted = question is planted[len(language.odd) - 1]
        yield {
            "Id": ids[index, 0],
            "PostTypeId": 1,
            "AcceptedAnswerId": dice.pick(theirs)[1] if theirs and dice.chance(0.5) else None,
            "CreationDate": moment_text(moment),
            "Score": dice.between(-2, 40),
            "ViewCount": dice.between(10, 20_000),
            "Body": note + body_html(question.blocks, question.spelling),
            "OwnerUserId": None if deleted else dice.between(2, 900),
            "OwnerDisplayName": "user1307" if deleted else None,
            "LastActivityDate": moment_text(max([moment, *(other for other, _ in theirs)])),
            "Title": question.title,
            "Tags": "".join(f"<{tag}>" for tag in question.tags) if index in older else f"|{'|'.join(question.tags)}|",
            "AnswerCount": len(theirs),
            "CommentCount": dice.between(0, 6),
            "ClosedDate": moment_text(closed[index]) if index in closed else None,
            "ContentLicense": license_text,
        }


def document(root: str, rows: Iterable[Attributes]) -> bytes:
    """A dump's file: byte-order mark, declaration, one line for each row, lines ended as on Windows.

    An attribute that is None is left out, as dumps do.
    """
    lines = ['\ufeff<?xml version="1.0" encoding="utf-8"?>', f"<{root}>"]
    for row in rows:
        pairs = [f'{name}="{_escaped(str(value))}"' for name, value in row.items() if value is not None]
        lines.append(f"  <row {' '.join(pairs)} />")
    return "\r\n".join([*lines, f"</{root}>"]).encode()


def _escaped(text: str) -> str:
    return escape(text, quote=False).replace('"', "&quot;").replace("\n", "&#xA;")


def moment_text(moment: datetime) -> str:
    """As dumps write times: UTC, milliseconds, no zone."""
    return moment.isoformat(timespec="milliseconds")


def body_html(blocks: Iterable[Block], spelling: str) -> str:
    """A body's HTML. All spellings have the same tokens: `spaced` has wider gaps, `marked` other elements."""
    html = ""
    for tag, inner in blocks:
        if tag != "p" or spelling == "usual":
            html += f"<{tag}>{inner}</{tag}>\n"
        elif spelling == "spaced":
            html += "<p>" + inner.replace(". ", ".\n  ") + "  </p>\n\n"
        else:
            html += f"<div><strong>{inner}</strong><br /></div>\n"
    return html


def duplicate_note(site: str, question_id: int, title: str) -> str:
    """The note that older dumps put at the top of a body that was closed as a duplicate."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return (
        "<blockquote>\n<p><strong>Possible Duplicate:</strong><br>\n"
        f'<a href="https://{site}/questions/{question_id}/{slug}">{escape(title, quote=False)}</a></p>\n'
        "</blockquote>\n\n"
    )


def _packed(members: dict[str, bytes]) -> bytes:
    """A 7z archive whose bytes depend on the members alone, not on the clock or the umask."""
    require("py7zr", "examples.sample")
    import py7zr

    with tempfile.TemporaryDirectory(prefix="dupq-") as folder:
        archive_path = Path(folder) / "archive.7z"
        with py7zr.SevenZipFile(archive_path, "w") as archive:
            for name, content in members.items():
                path = Path(folder) / name
                path.write_bytes(content)
                path.chmod(0o644)
                os.utime(path, (_PACKED, _PACKED))
                archive.write(path, name)
        return archive_path.read_bytes()
