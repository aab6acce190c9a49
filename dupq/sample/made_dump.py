"""The built-in sample archive: the dump of a made-up site, whose duplicates are all known.

    python -m dupq.sample FOLDER [--questions N] [--seed N]

writes `sample.stackexchange.com.7z` and `truth.tsv`. The format is that of real dumps, in both of its
spellings: the older half of the questions has tags like `<a><b>` and notes of possible duplicates, the newer
half has `|a|b|`. The same arguments give the same bytes.
"""

import argparse
import dataclasses
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import NamedTuple

from dupq import storage
from dupq.errors import DupqError
from dupq.sample.grammar import Block, Dice, Grammar, Question, Spelling, answer, load_grammar, plant
from dupq.system import require

Attributes = Mapping[str, str | int | None]

_BYTE_ORDER_MARK = "\ufeff"
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


def document(root: str, rows: Iterable[Attributes]) -> bytes:
    """A dump's file: byte-order mark, declaration, one line for each row, lines ended as on Windows."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<{root}>", *map(_row, rows), f"</{root}>"]
    return (_BYTE_ORDER_MARK + "\r\n".join(lines)).encode()


def _row(attributes: Attributes) -> str:
    """One row; an attribute that is None is left out, as dumps do."""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in attributes.items() if value is not None]
    return f"  <row {' '.join(pairs)} />"


def _escaped(value: str | int) -> str:
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\n", "&#xA;")


def moment_text(moment: datetime) -> str:
    """As dumps write times: UTC, milliseconds, no zone."""
    return moment.isoformat(timespec="milliseconds")


def body_html(blocks: Iterable[Block], spelling: Spelling) -> str:
    """A body's HTML. All spellings have the same tokens: `spaced` has wider gaps, `marked` other elements."""
    return "".join(_block_html(block, spelling) for block in blocks)


def _block_html(block: Block, spelling: Spelling) -> str:
    if block.tag != "p" or spelling == "usual":
        return f"<{block.tag}>{block.inner}</{block.tag}>\n"
    if spelling == "spaced":
        wider = block.inner.replace(". ", ".\n  ")
        return f"<p>{wider}  </p>\n\n"
    return f"<div><strong>{block.inner}</strong><br /></div>\n"


def duplicate_note(site: str, question_id: int, title: str) -> str:
    """The note that older dumps put at the top of a body that was closed as a duplicate."""
    slug = _NOT_SLUG.sub("-", title.lower()).strip("-")
    return (
        "<blockquote>\n<p><strong>Possible Duplicate:</strong><br>\n"
        f'<a href="https://{site}/questions/{question_id}/{slug}">{escape(title, quote=False)}</a></p>\n'
        "</blockquote>\n\n"
    )


SITE = "sample.stackexchange.com"
DUPLICATE, LINKED = 3, 1

_PACKED = datetime(2024, 1, 1, tzinfo=UTC).timestamp()  # the members' time, a part of the archive's bytes
_RELATED_SHARE = 0.05
_MOST_ANSWERS = 3


class SampleFiles(NamedTuple):
    """What `write_sample` wrote."""

    archive: Path
    truth: Path


class _Post(NamedTuple):
    """A question (answer 0) or one of its answers; they are numbered by their moments."""

    moment: datetime
    question: int
    answer: int


class _Link(NamedTuple):
    moment: datetime
    question: int
    related: int
    link_type: int


@dataclasses.dataclass(frozen=True)
class _Site:
    """All that the rows are written from. Posts and links are in the order of their moments."""

    questions: list[Question]
    posts: list[_Post]
    links: list[_Link]
    ids: dict[tuple[int, int], int]  # by question and answer
    older: frozenset[int]  # the older half of the questions


def write_sample(folder: str | Path, questions: int = 2000, seed: int = 1) -> SampleFiles:
    """Write the archive and its truth into a local folder, which is made if it is not there.

    A row of truth names a planted question and its original; questions that share an original are duplicates
    of one another as well. Of the questions 7.5 % are copies (the same tokens, some in other HTML), 10 % near
    copies (3-shingle Jaccard of at least 0.85), and 15 % rephrasings.
    """
    grammar, dice = load_grammar(), Dice(seed)
    site = _site(plant(grammar, questions, dice), dice)
    members = {
        "Posts.xml": document("posts", _post_rows(site, grammar, dice)),
        "PostLinks.xml": document("postlinks", _link_rows(site, dice)),
    }
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = SampleFiles(target / f"{SITE}.7z", target / "truth.tsv")
    storage.write_bytes(str(files.archive), _packed(members))
    storage.write_bytes(str(files.truth), _truth(site).encode())
    return files


def _site(questions: list[Question], dice: Dice) -> _Site:
    posts = []
    for index, question in enumerate(questions):
        posts.append(_Post(question.moment, index, 0))
        answers = dice.between(0, _MOST_ANSWERS) if question.meaning else 0
        posts += [_Post(_soon(question.moment, dice), index, number + 1) for number in range(answers)]
    posts.sort()
    ids, next_id = {}, 1
    for post in posts:
        next_id += dice.between(1, 4)
        ids[post.question, post.answer] = next_id
    by_age = [post.question for post in posts if post.answer == 0]
    links = sorted([*_duplicate_links(questions, dice), *_related_links(questions, dice)])
    return _Site(questions, posts, links, ids, frozenset(by_age[: len(by_age) // 2]))


def _soon(moment: datetime, dice: Dice) -> datetime:
    return moment + timedelta(milliseconds=dice.between(600_000, 30 * 86_400_000))


def _duplicate_links(questions: list[Question], dice: Dice) -> list[_Link]:
    return [
        _Link(_soon(question.moment, dice), index, question.original, DUPLICATE)
        for index, question in enumerate(questions)
        if question.linked
    ]


def _related_links(questions: list[Question], dice: Dice) -> list[_Link]:
    """Links between originals that ask the same of something else."""
    originals_by_intent = defaultdict(list)
    for index, question in enumerate(questions):
        if question.meaning and question.kind is None:
            originals_by_intent[question.meaning.topic.key, question.meaning.intent.key].append(index)
    pairs = [
        pair
        for group in map(dice.shuffled, originals_by_intent.values())
        for pair in zip(group[::2], group[1::2], strict=False)
    ]
    links = []
    for pair in dice.shuffled(pairs)[: round(len(questions) * _RELATED_SHARE)]:
        related, index = sorted(pair, key=lambda index: questions[index].moment)
        links.append(_Link(_soon(questions[index].moment, dice), index, related, LINKED))
    return links


def _post_rows(site: _Site, grammar: Grammar, dice: Dice) -> Iterable[Attributes]:
    answers = defaultdict(list)
    for post in site.posts:
        if post.answer:
            answers[post.question].append(post)
    closed = {link.question: link.moment for link in site.links if link.link_type == DUPLICATE}
    for post in site.posts:
        if post.answer:
            yield _answer_row(site, post, grammar, dice)
        else:
            yield _question_row(site, post, answers[post.question], closed.get(post.question), dice)


def _question_row(
    site: _Site, post: _Post, answers: Sequence[_Post], closed: datetime | None, dice: Dice
) -> Attributes:
    question = site.questions[post.question]
    older = post.question in site.older
    accepted = dice.pick(answers) if answers and dice.chance(0.5) else None
    return {
        "Id": site.ids[post.question, 0],
        "PostTypeId": 1,
        "AcceptedAnswerId": site.ids[accepted.question, accepted.answer] if accepted else None,
        "CreationDate": moment_text(post.moment),
        "Score": dice.between(-2, 40),
        "ViewCount": dice.between(10, 20_000),
        "Body": _note(site, question, older) + body_html(question.draft.blocks, question.spelling),
        "OwnerUserId": None if question.deleted_author else dice.between(2, 900),
        "OwnerDisplayName": question.deleted_author,
        "LastActivityDate": moment_text(max(other.moment for other in (post, *answers))),
        "Title": question.draft.title,
        "Tags": _tags(question, older),
        "AnswerCount": len(answers),
        "CommentCount": dice.between(0, 6),
        "ClosedDate": moment_text(closed) if closed else None,
        "ContentLicense": _license(older),
    }


def _answer_row(site: _Site, post: _Post, grammar: Grammar, dice: Dice) -> Attributes:
    meaning = site.questions[post.question].meaning
    assert meaning is not None
    return {
        "Id": site.ids[post.question, post.answer],
        "PostTypeId": 2,
        "ParentId": site.ids[post.question, 0],
        "CreationDate": moment_text(post.moment),
        "Score": dice.between(-2, 60),
        "Body": answer(grammar, meaning, dice),
        "OwnerUserId": dice.between(2, 900),
        "LastActivityDate": moment_text(post.moment),
        "CommentCount": dice.between(0, 4),
        "ContentLicense": _license(post.question in site.older),
    }


def _note(site: _Site, question: Question, older: bool) -> str:
    """Once, closing a question as a duplicate put a note into its body. Copies stay copies here."""
    if not (older and question.linked) or question.kind == "copy":
        return ""
    title = site.questions[question.original].draft.title
    return duplicate_note(SITE, site.ids[question.original, 0], title)


def _tags(question: Question, older: bool) -> str:
    meaning = question.meaning
    tags = [meaning.topic.key, meaning.intent.key] if meaning else ["off-topic"]
    return "".join(f"<{tag}>" for tag in tags) if older else f"|{'|'.join(tags)}|"


def _license(older: bool) -> str:
    return f"CC BY-SA {'3.0' if older else '4.0'}"


def _link_rows(site: _Site, dice: Dice) -> Iterable[Attributes]:
    link_id = 0
    for link in site.links:
        link_id += dice.between(1, 50)
        yield {
            "Id": link_id,
            "CreationDate": moment_text(link.moment),
            "PostId": site.ids[link.question, 0],
            "RelatedPostId": site.ids[link.related, 0],
            "LinkTypeId": link.link_type,
        }


def _truth(site: _Site) -> str:
    rows = sorted(
        (site.ids[index, 0], site.ids[question.original, 0], question.kind, int(question.linked))
        for index, question in enumerate(site.questions)
        if question.kind
    )
    header = "site\tquestion_id\trelated_id\tkind\tlinked"
    return "\n".join([header, *("\t".join(map(str, (SITE, *row))) for row in rows), ""])


def _packed(members: dict[str, bytes]) -> bytes:
    """A 7z archive whose bytes depend on the members alone, not on the clock or the umask."""
    require("py7zr", "dupq.sample")
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


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dupq.sample",
        description="Write a small made-up dump with planted duplicates, and the truth about them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", help="local folder to write into")
    parser.add_argument("--questions", type=int, default=2000, help="number of questions")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another archive")
    options = parser.parse_args(arguments)
    try:
        files = write_sample(options.folder, options.questions, options.seed)
    except DupqError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{options.questions} questions written to {files.archive}, the truth about them to {files.truth}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
