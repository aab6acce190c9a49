import csv
import itertools
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lxml import etree

from benchmarks.big_archive import Shares, Summary, parse_size, write_archive
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.settings.sections import TextSettings
from dupq.text.questions import question_text

ROOT = Path(__file__).parents[1]
QUESTIONS = 1000
ATTRIBUTES = """
Id PostTypeId ParentId AcceptedAnswerId CreationDate Score ViewCount Body OwnerUserId OwnerDisplayName LastEditorUserId
LastEditDate LastActivityDate Title Tags AnswerCount CommentCount ClosedDate ContentLicense
"""


@dataclass(frozen=True)
class Written:
    """An archive, read by lxml alone."""

    summary: Summary
    posts: list[dict[str, str]]
    links: list[dict[str, str]]
    truth: list[dict[str, str]]

    @property
    def questions(self) -> dict[int, dict[str, str]]:
        return {int(post["Id"]): post for post in self.posts if post["PostTypeId"] == "1"}

    def planted(self, kind: str) -> list[tuple[int, int]]:
        return [(int(row["related_id"]), int(row["question_id"])) for row in self.truth if row["kind"] == kind]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    summary = write_archive(tmp_path_factory.mktemp("big"), questions=QUESTIONS, seed=7)
    with summary.truth_path.open() as file:
        truth = list(csv.DictReader(file, delimiter="\t"))
    return Written(summary, _rows(summary.posts_path), _rows(summary.links_path), truth)


@pytest.fixture(scope="module")
def texts(written: Written) -> dict[int, str]:
    """The text of each question, as dupq sees it."""
    return {
        question: question_text(post["Title"], post["Body"], TextSettings())[1]
        for question, post in written.questions.items()
    }


def _rows(path: Path) -> list[dict[str, str]]:
    return [dict(row.attrib) for row in etree.parse(path).getroot()]


def _files(summary: Summary) -> list[bytes]:
    return [path.read_bytes() for path in (summary.posts_path, summary.links_path, summary.truth_path)]


def _jaccards(texts: dict[int, str], pairs: list[tuple[int, int]]) -> np.ndarray:
    sets = shingle_sets(pa.array([texts[question] for pair in pairs for question in pair]), 3)
    return jaccard(sets, np.arange(0, 2 * len(pairs), 2), np.arange(1, 2 * len(pairs), 2))


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    same = [_files(write_archive(tmp_path / name, questions=300, seed=3)) for name in ("a", "b")]
    other = _files(write_archive(tmp_path / "c", questions=300, seed=4))
    assert same[0] == same[1]
    assert all(left != right for left, right in zip(same[0], other, strict=True))


def test_every_file_looks_like_that_of_a_dump(written: Written) -> None:
    content = written.summary.posts_path.read_bytes()
    assert content.startswith(b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\r\n<posts>\r\n  <row Id="')
    assert content.endswith(b" />\r\n</posts>")
    lines = content.split(b"\r\n")
    assert b"\n" not in b"".join(lines)
    assert len(lines) == written.summary.posts + 3
    row = rb'  <row(?: [A-Z][A-Za-z]+="[^"<>\t]*")+ />'
    assert all(re.fullmatch(row, line) for line in lines[2:-1])
    assert {name for post in written.posts for name in post} >= {"OwnerDisplayName", "AcceptedAnswerId", "ClosedDate"}


def test_attributes_stand_in_the_order_of_dumps(written: Written) -> None:
    for post in written.posts:
        assert list(post) == [name for name in ATTRIBUTES.split() if name in post]


def test_ids_and_dates_ascend_and_answers_follow_their_questions(written: Written) -> None:
    ids = [int(post["Id"]) for post in written.posts]
    dates = [post["CreationDate"] for post in written.posts]
    assert all(left < right for left, right in itertools.pairwise(ids))
    assert all(left <= right for left, right in itertools.pairwise(dates))
    answers = {int(post["Id"]): int(post["ParentId"]) for post in written.posts if post["PostTypeId"] == "2"}
    questions = written.questions
    assert all(parent in questions and parent < answer for answer, parent in answers.items())
    assert Counter(answers.values()) == Counter(
        {question: int(post["AnswerCount"]) for question, post in questions.items() if post["AnswerCount"] != "0"}
    )
    accepted = {
        question: int(post["AcceptedAnswerId"]) for question, post in questions.items() if "AcceptedAnswerId" in post
    }
    assert all(answers[answer] == question for question, answer in accepted.items())
    assert 1.3 < len(answers) / len(questions) < 1.7


def test_truth_and_links_name_questions_that_exist(written: Written) -> None:
    questions = written.questions
    duplicates = {
        (int(link["PostId"]), int(link["RelatedPostId"])) for link in written.links if link["LinkTypeId"] == "3"
    }
    assert list(written.truth[0]) == ["site", "question_id", "related_id", "kind", "linked"]
    assert {row["site"] for row in written.truth} == {"big.example.com"}
    pairs = {(int(row["question_id"]), int(row["related_id"])): row["linked"] == "1" for row in written.truth}
    assert all(related in questions and question in questions and related < question for question, related in pairs)
    assert duplicates == {pair for pair, linked in pairs.items() if linked}
    assert {question for question, post in questions.items() if "ClosedDate" in post} == {
        pair[0] for pair in duplicates
    }
    assert all(int(link["PostId"]) in questions and int(link["RelatedPostId"]) in questions for link in written.links)
    counts = {kind: len(written.planted(kind)) for kind in ("copy", "near_copy", "rephrasing")}
    assert counts == written.summary.planted == {"copy": 20, "near_copy": 30, "rephrasing": 50}


def test_copies_have_the_same_text_though_not_the_same_bytes(written: Written, texts: dict[int, str]) -> None:
    pairs = written.planted("copy")
    bodies = {question: post["Body"] for question, post in written.questions.items()}
    assert all(texts[original] == texts[copy] for original, copy in pairs)
    assert any(bodies[original] != bodies[copy] for original, copy in pairs)


def test_near_copies_share_most_shingles_but_not_all(written: Written, texts: dict[int, str]) -> None:
    found = _jaccards(texts, written.planted("near_copy"))
    assert np.mean(found >= 0.8) >= 0.9
    assert found.max() < 1


def test_rephrasings_share_few_words(written: Written, texts: dict[int, str]) -> None:
    pairs = [(set(texts[left].split()), set(texts[right].split())) for left, right in written.planted("rephrasing")]
    assert np.mean([len(left & right) / len(left | right) for left, right in pairs]) < 0.3
    assert _jaccards(texts, written.planted("rephrasing")).max() < 0.3


def test_originals_are_no_near_duplicates_of_each_other(written: Written, texts: dict[int, str]) -> None:
    planted = {int(row["question_id"]) for row in written.truth}
    originals = [text for question, text in texts.items() if question not in planted]
    left, right = np.triu_indices(len(originals), 1)
    assert jaccard(shingle_sets(pa.array(originals), 3), left, right).max() < 0.3


def test_words_follow_zipfs_law(texts: dict[int, str]) -> None:
    counts = Counter(itertools.chain.from_iterable(text.split() for text in texts.values()))
    frequencies = np.array(sorted(counts.values(), reverse=True))[9:1000]
    slope = np.polyfit(np.log(np.arange(10, 10 + len(frequencies))), np.log(frequencies), 1)[0]
    assert -1.3 < slope < -0.7


def test_lengths_are_those_of_real_posts(written: Written) -> None:
    questions = written.questions.values()
    bodies = np.array([len(post["Body"]) for post in questions])
    answers = np.array([len(post["Body"]) for post in written.posts if post["PostTypeId"] == "2"])
    assert 1200 < bodies.mean() < 1600
    assert 0.5 * bodies.mean() < answers.mean() < 0.9 * bodies.mean()
    assert 0.5 < np.log(bodies).std() < 1.0
    assert 8 < np.mean([len(post["Title"].split()) for post in questions]) < 12
    assert 0.25 < np.mean(["<pre><code>" in post["Body"] for post in questions]) < 0.42
    assert {"<p>", "<ul>", "<li>", "<a href=", "<code>"} <= set(
        re.findall(r"<(?:\w+>|a href=)", "".join(post["Body"] for post in questions))
    )


def test_questions_on_a_subject_are_closer_than_others_but_no_near_duplicates(
    written: Written, texts: dict[int, str], tmp_path: Path
) -> None:
    summary = write_archive(tmp_path, questions=400, seed=7, with_answers=False, shares=Shares(0, 0, 0), alike=10)
    rows = _rows(summary.posts_path)
    alike = [question_text(row["Title"], row["Body"], TextSettings())[1] for row in rows]
    planted = {int(row["question_id"]) for row in written.truth}
    others = [text for question, text in texts.items() if question not in planted][:400]

    def closest(chosen: list[str]) -> np.ndarray:
        """Of each question, the largest share of its rarer words that another one has too."""
        often = Counter(itertools.chain.from_iterable(set(text.split()) for text in chosen))
        words = [{word for word in text.split() if often[word] <= len(chosen) // 20} for text in chosen]
        return np.array([max(len(one & two) / max(len(one), 1) for two in words if two is not one) for one in words])

    assert np.median(closest(alike)) > 1.5 * np.median(closest(others))
    left, right = np.triu_indices(len(alike), 1)
    assert jaccard(shingle_sets(pa.array(alike), 3), left, right).max() < 0.5


@pytest.mark.full
def test_a_size_is_met_and_duplicates_reach_back_to_earlier_chunks(tmp_path: Path) -> None:
    summary = write_archive(tmp_path, size=20_000_000, with_answers=False, shares=Shares(0.0, 0.0, 0.01))
    assert summary.posts_path.stat().st_size == summary.bytes == pytest.approx(20e6, rel=0.05)
    assert summary.answers == 0
    assert summary.planted == {"copy": 0, "near_copy": 0, "rephrasing": round(0.01 * summary.questions)}
    ids = [int(number) for number in re.findall(rb'<row Id="(\d+)"', summary.posts_path.read_bytes())]
    assert len(ids) == summary.questions > 8000
    pairs = [line.split("\t")[1:3] for line in summary.truth_path.read_text().splitlines()[1:]]
    assert any(int(related) < ids[4000] < ids[8000] < int(question) for question, related in pairs)


def test_the_smallest_archives_are_archives(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        summary = write_archive(tmp_path / str(count), questions=count)
        assert len(etree.parse(summary.posts_path).getroot()) == summary.posts >= count == summary.questions
        etree.parse(summary.links_path)


def test_arguments_that_make_no_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        write_archive(tmp_path, questions=10, size=10)
    with pytest.raises(ValueError, match="at least one question"):
        write_archive(tmp_path, questions=0)
    with pytest.raises(ValueError, match="shares"):
        write_archive(tmp_path, questions=10, shares=Shares(0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="subject"):
        write_archive(tmp_path, questions=10, alike=-1)


def test_sizes_are_read_with_their_units() -> None:
    assert [parse_size(text) for text in ("1GB", "1.5 MB", "200k", "12345", "5e8")] == [
        10**9, 1_500_000, 200_000, 12_345, 5 * 10**8,
    ]  # fmt: skip


def test_the_command_line_writes_an_archive(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "big_archive.py", "--questions", "50", "--output", tmp_path]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "50 questions" in shown
    assert "MB/s" in shown
    assert (tmp_path / "big.example.com" / "Posts.xml").is_file()
