"""Writes an archive chunk after chunk, so that memory does not depend on its size."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from benchmarks.generator import rows
from benchmarks.generator.drafts import Drafts, draft_bodies, draft_titles
from benchmarks.generator.planting import (
    COPY,
    KIND_NAMES,
    ORIGINAL,
    SPELLINGS,
    Reservoir,
    Shares,
    Source,
    duplicate_of,
    plan_chunk,
)
from benchmarks.generator.subjects import by_subject, by_topic, topic_of
from benchmarks.generator.vocabulary import TAG_ROWS, Vocabulary, build_vocabulary

SITE = "big.example.com"
TRUTH_HEADER = b"site\tquestion_id\trelated_id\tkind\tlinked\n"

_CHUNK = 4_000  # questions
QUESTION_PHRASES, SHORT_PHRASES, _ANSWER_PHRASES = 66.0, 12.0, 46.0  # mean lengths of bodies
_BYTES_PER_QUESTION = {True: 4_400, False: 2_200}  # of Posts.xml, with and without answers; a first guess
_ANSWERS = np.repeat([0, 1, 2, 3, 4, 5], [4, 6, 3, 1, 1, 1])  # of 16: 1.5 an average
_ANSWER_DELAY = 120.0  # mean number of questions between a question and its answer
_ACCEPTED = 0.55
_RELATED_SHARE = 0.05
_OPENED = int(np.datetime64("2008-08-01", "ms").astype(np.int64))
_SPAN = 15 * 365 * 86_400_000
_FEWEST_USERS, _QUESTIONS_PER_USER = 100, 3


@dataclass(frozen=True)
class Summary:
    """What was written. Bytes are those of Posts.xml, unless it says otherwise."""

    posts_path: Path
    links_path: Path
    truth_path: Path
    questions: int
    answers: int
    planted: dict[str, int]
    links: int
    bytes: int
    question_bytes: int
    seconds: float

    @property
    def posts(self) -> int:
        """Questions and answers."""
        return self.questions + self.answers

    @property
    def megabytes_per_second(self) -> float:
        """Posts.xml written in a second, in 10**6 bytes."""
        return self.bytes / 1e6 / max(self.seconds, 1e-9)


Progress = Callable[[int, int, float], None]  # questions, bytes, seconds so far


@dataclass
class _Writing:
    """How far the archive has come."""

    reservoir: Reservoir = field(default_factory=Reservoir)
    questions: int = 0
    answers: int = 0
    bytes: int = 0
    question_bytes: int = 0
    links: int = 0
    next_id: int = 1
    next_link_id: int = 1
    moment: float = float(_OPENED)
    planted: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Order:
    """The posts of a chunk by time: questions are 0 to n - 1, answers follow."""

    parents: np.ndarray  # of each answer: the place of its question
    posts: np.ndarray  # in the order of the file
    ids: np.ndarray  # by post
    created: np.ndarray  # by post, milliseconds


def write_archive(
    folder: str | Path,
    questions: int | None = None,
    size: int | None = None,
    seed: int = 1,
    site: str = SITE,
    with_answers: bool = True,
    shares: Shares | None = None,
    progress: Progress | None = None,
    phrases: float = QUESTION_PHRASES,
    alike: int = 0,
) -> Summary:
    """Write FOLDER/SITE/Posts.xml, PostLinks.xml and FOLDER/truth.tsv; exactly one of `questions`, `size` is given.

    `size` is in bytes of Posts.xml and is met within a few per cent; `phrases` is the mean length of bodies. With
    `alike` so many questions on average have a subject in common (subjects.py), with 0 none but their topic. The same
    arguments give the same bytes (with the same release of numpy, whose random numbers these are). Raises ValueError
    for arguments that make no archive.
    """
    shares = shares or Shares()
    _check(questions, size, shares, alike)
    started = time.perf_counter()
    target = Path(folder)
    (target / site).mkdir(parents=True, exist_ok=True)
    paths = (target / site / "Posts.xml", target / site / "PostLinks.xml", target / "truth.tsv")
    vocabulary = build_vocabulary(seed)
    state = _Writing()
    expected = questions or max(1, round((size or 0) / _BYTES_PER_QUESTION[with_answers]))
    subjects = max(1, expected // alike) if alike else 0
    with paths[0].open("wb") as posts, paths[1].open("wb") as links, paths[2].open("wb") as truth:
        state.bytes += posts.write(rows.opening(b"posts"))
        links.write(rows.opening(b"postlinks"))
        truth.write(TRUTH_HEADER)
        while count := _next_chunk(state, questions, size, with_answers):
            rng = np.random.default_rng([seed, 1, state.questions])
            chunk = _Chunk(vocabulary, rng, state, count, expected, with_answers, shares, phrases, subjects)
            chunk.write(posts, links, truth, site)
            if progress:
                progress(state.questions, state.bytes, time.perf_counter() - started)
        state.bytes += posts.write(rows.closing(b"posts"))
        links.write(rows.closing(b"postlinks"))
    seconds = time.perf_counter() - started
    return Summary(
        *paths,
        questions=state.questions,
        answers=state.answers,
        planted={kind: state.planted[kind] for kind in KIND_NAMES[1:]},
        links=state.links,
        bytes=state.bytes,
        question_bytes=state.question_bytes,
        seconds=seconds,
    )


def _check(questions: int | None, size: int | None, shares: Shares, alike: int) -> None:
    if (questions is None) == (size is None):
        raise ValueError("either a number of questions or a size is needed, and not both")
    if (questions or size or 0) < 1:
        raise ValueError("an archive has at least one question")
    if alike < 0:
        raise ValueError(f"{alike} questions with a subject in common; 0 or more are expected")
    parts = (shares.copies, shares.near_copies, shares.rephrasings)
    if min(parts) < 0 or sum(parts) > 0.9:
        raise ValueError(f"the shares of planted questions are {parts}; 0 or more, and 0.9 at most together")


def _next_chunk(state: _Writing, questions: int | None, size: int | None, with_answers: bool) -> int:
    """How many questions the next chunk has; 0 when all is written. The last one by size is the rest, estimated."""
    if questions is not None:
        return min(_CHUNK, questions - state.questions)
    guess = _BYTES_PER_QUESTION[with_answers]
    per_question = state.bytes / state.questions if state.questions else guess
    remaining = round(((size or 0) - state.bytes) / per_question)
    return max(0, min(_CHUNK, remaining), 0 if state.questions else 1)


class _Chunk:
    """Some thousand questions with their answers."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rng: np.random.Generator,
        state: _Writing,
        count: int,
        expected: int,
        with_answers: bool,
        shares: Shares,
        phrases: float,
        subjects: int,
    ) -> None:
        self._vocabulary, self._rng, self._state, self._count = vocabulary, rng, state, count
        self._users = max(_FEWEST_USERS, expected // _QUESTIONS_PER_USER)
        self._plan = plan_chunk(rng, state.questions, count, shares, state.reservoir)
        self._about = by_subject(rng, count, subjects) if subjects else by_topic(rng, count)
        self._order = _order(rng, state, count, expected, with_answers)
        bodies = draft_bodies(vocabulary, rng, self._about, phrases)
        self._sources = self._planted_sources(bodies, draft_titles(vocabulary, rng, self._about, bodies))

    def write(self, posts: BinaryIO, links: BinaryIO, truth: BinaryIO, site: str) -> None:
        """Write all rows of the chunk, and count them."""
        state, order, plan = self._state, self._order, self._plan
        questions, answers = self._question_rows(), self._answer_rows()
        every_row = questions + answers
        state.bytes += posts.write(b"".join([every_row[post] for post in order.posts.tolist()]))
        state.question_bytes += sum(map(len, questions))
        for row in self._truth_rows(site):
            truth.write(row)
        link_rows = self._link_rows()
        links.write(b"".join(link_rows))
        state.links += len(link_rows)
        state.questions += self._count
        state.answers += len(answers)
        state.planted.update(KIND_NAMES[kind] for kind in plan.kinds.tolist())
        originals = [self._sources[place] for place in np.flatnonzero(plan.kinds == ORIGINAL).tolist()]
        state.reservoir.keep(originals, self._rng)

    def _planted_sources(self, bodies: Drafts, titles: Drafts) -> list[Source]:
        """All questions of the chunk, each duplicate in its original's place in the order of topics and texts."""
        ids, about, plan = self._order.ids.tolist(), self._about.tolist(), self._plan
        sources: list[Source] = []
        for place, kind in enumerate(plan.kinds.tolist()):
            if kind == ORIGINAL:
                sources.append(Source(ids[place], about[place], titles.of(place), bodies.of(place)))
                continue
            original = self._original(place, sources)
            title, body = duplicate_of(self._vocabulary, original, kind, self._rng)
            sources.append(Source(ids[place], original.about, title, body))
        return sources

    def _original(self, place: int, sources: list[Source]) -> Source:
        within = self._state.reservoir.sources if self._plan.from_reservoir[place] else sources
        return within[self._plan.original[place]]

    def _question_rows(self) -> list[bytes]:
        rng, order, count = self._rng, self._order, self._count
        created = order.created[:count]
        titles = _joined(self._vocabulary, [source.title for source in self._sources])
        bodies = _joined(self._vocabulary, [source.body for source in self._sources])
        self._spell_copies(titles, bodies)
        tag_rows = rng.integers(0, TAG_ROWS, count).tolist()
        tags = [
            self._vocabulary.tags[topic_of(source.about) * TAG_ROWS + row]
            for source, row in zip(self._sources, tag_rows, strict=True)
        ]
        editors, last_activity = rows.edits(rng, created, self._users)
        np.maximum.at(last_activity, order.parents, order.created[count:])
        columns = (
            order.ids[:count].tolist(),
            self._accepted(),
            rows.moments(created),
            rows.scores(rng, count),
            (np.exp(rng.normal(6.0, 1.6, count)).astype(np.int64) + 8).tolist(),
            bodies,
            rows.owners(rng, count, self._users),
            editors,
            rows.moments(last_activity),
            titles,
            tags,
            np.bincount(order.parents, minlength=count).tolist(),
            rng.integers(0, 7, count).tolist(),
            self._closed(created),
            rows.licenses(created),
        )
        return [rows.QUESTION_ROW % row for row in zip(*columns, strict=True)]

    def _spell_copies(self, titles: list[bytes], bodies: list[bytes]) -> None:
        copies = np.flatnonzero(self._plan.kinds == COPY).tolist()
        for place, spelling in zip(copies, self._rng.integers(0, len(SPELLINGS), len(copies)).tolist(), strict=True):
            bodies[place] = SPELLINGS[spelling](bodies[place])
            titles[place] = titles[place].lower() if spelling else titles[place]

    def _accepted(self) -> list[bytes]:
        """One of the answers of some of the questions that have any."""
        result = [b""] * self._count
        order = self._order
        chosen = self._rng.random(len(order.parents)) < _ACCEPTED
        answers = order.ids[self._count :][chosen].tolist()
        for parent, answer in zip(order.parents[chosen].tolist(), answers, strict=True):
            result[parent] = b' AcceptedAnswerId="%d"' % answer
        return result

    def _closed(self, created: np.ndarray) -> list[bytes]:
        result = [b""] * self._count
        linked = np.flatnonzero(self._plan.linked)
        dates = rows.moments(created[linked] + rows.delays(self._rng, len(linked)))
        for place, date in zip(linked.tolist(), dates, strict=True):
            result[place] = b' ClosedDate="%b"' % date
        return result

    def _answer_rows(self) -> list[bytes]:
        rng, order = self._rng, self._order
        count = len(order.parents)
        created = order.created[self._count :]
        about = np.array([source.about for source in self._sources])[order.parents]
        drafts = draft_bodies(self._vocabulary, rng, about, _ANSWER_PHRASES)
        editors, last_activity = rows.edits(rng, created, self._users)
        columns = (
            order.ids[self._count :].tolist(),
            order.ids[order.parents].tolist(),
            rows.moments(created),
            rows.scores(rng, count),
            _joined_drafts(self._vocabulary, drafts),
            rows.owners(rng, count, self._users),
            editors,
            rows.moments(last_activity),
            rng.integers(0, 5, count).tolist(),
            rows.licenses(created),
        )
        return [rows.ANSWER_ROW % row for row in zip(*columns, strict=True)]

    def _link_rows(self) -> list[bytes]:
        """Duplicates that were found, and links between questions that have nothing to do with each other."""
        rng, ids = self._rng, self._order.ids
        linked = np.flatnonzero(self._plan.linked).tolist()
        pairs = [(place, self._original(place, self._sources).question_id, rows.DUPLICATE) for place in linked]
        pairs += self._related_pairs()
        places = np.array([place for place, _, _ in pairs], np.int64)
        dates = self._order.created[places] + rows.delays(rng, len(pairs))
        link_ids = self._state.next_link_id + np.cumsum(rng.integers(1, 30, len(pairs)))
        self._state.next_link_id = int(link_ids[-1]) if len(pairs) else self._state.next_link_id
        order = np.argsort(dates, kind="stable")
        return [
            rows.LINK_ROW % (link_id, date, int(ids[pairs[index][0]]), pairs[index][1], pairs[index][2])
            for link_id, date, index in zip(link_ids.tolist(), rows.moments(dates[order]), order.tolist(), strict=True)
        ]

    def _related_pairs(self) -> list[tuple[int, int, int]]:
        """Places of questions, each with the id of an earlier question, half of them of earlier chunks."""
        if self._count < 2:
            return []
        ids, earlier = self._order.ids, self._state.reservoir.sources
        places = self._rng.integers(1, self._count, round(self._count * _RELATED_SHARE)).tolist()
        pairs = []
        for place, chance in zip(places, self._rng.random(len(places)).tolist(), strict=True):
            if earlier and chance < 0.5:
                related = earlier[int(2 * chance * len(earlier))].question_id
            else:
                related = int(ids[int(chance * place)])
            pairs.append((place, related, rows.LINKED))
        return pairs

    def _truth_rows(self, site: str) -> list[bytes]:
        plan, name = self._plan, site.encode()
        return [
            b"%b\t%d\t%d\t%b\t%d\n"
            % (
                name,
                self._order.ids[place],
                self._original(place, self._sources).question_id,
                KIND_NAMES[plan.kinds[place]].encode(),
                plan.linked[place],
            )
            for place in np.flatnonzero(plan.kinds != ORIGINAL).tolist()
        ]


def _order(rng: np.random.Generator, state: _Writing, count: int, expected: int, with_answers: bool) -> _Order:
    """Answers come some questions after theirs, and never after their chunk."""
    answer_counts = _ANSWERS[rng.integers(0, len(_ANSWERS), count)] if with_answers else np.zeros(count, np.int64)
    parents = np.repeat(np.arange(count), answer_counts)
    latest = count - 0.5
    keys = np.minimum(parents + 0.5 + rng.exponential(_ANSWER_DELAY, len(parents)), latest)
    posts = np.argsort(np.concatenate([np.arange(count), keys]), kind="stable")
    total = len(posts)
    ids, created = np.empty(total, np.int64), np.empty(total, np.int64)
    ids[posts] = state.next_id - 1 + np.cumsum(1 + (rng.random(total) < 0.15) * rng.integers(1, 4, total))
    posts_in_all = expected * (1 + (_ANSWERS.mean() if with_answers else 0.0))
    times = state.moment + np.cumsum(rng.exponential(_SPAN / posts_in_all, total))
    created[posts] = times.astype(np.int64)
    state.next_id = int(ids[posts[-1]]) + 1
    state.moment = float(times[-1])
    return _Order(parents, posts, ids, created)


def _joined(vocabulary: Vocabulary, drafts: list[np.ndarray]) -> list[bytes]:
    offsets = np.concatenate([[0], np.cumsum([len(draft) for draft in drafts])])
    return _joined_drafts(vocabulary, Drafts(np.concatenate(drafts), offsets))


def _joined_drafts(vocabulary: Vocabulary, drafts: Drafts) -> list[bytes]:
    texts = vocabulary.pieces[drafts.pieces].tolist()
    offsets = drafts.offsets.tolist()
    return [b"".join(texts[start:end]) for start, end in itertools.pairwise(offsets)]
