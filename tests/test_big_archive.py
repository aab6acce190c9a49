import csv
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from lxml import etree

from benchmarks.big_archive import Summary, write_archive
from dupq.near_duplicates.shingles import jaccard, shingle_sets
from dupq.settings.sections import TextSettings
from dupq.text.questions import question_text

QUESTIONS = 1000


class Written(NamedTuple):
    """An archive, read by lxml alone."""

    summary: Summary
    questions: dict[int, dict[str, str]]
    links: list[dict[str, str]]
    truth: list[dict[str, str]]

    def planted(self, kind: str) -> list[tuple[int, int]]:
        return [(int(row["related_id"]), int(row["question_id"])) for row in self.truth if row["kind"] == kind]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    summary = write_archive(tmp_path_factory.mktemp("big"), questions=QUESTIONS, seed=7)
    with summary.truth_path.open() as file:
        truth = list(csv.DictReader(file, delimiter="\t"))
    files = (summary.posts_path, summary.links_path)
    posts, links = ([dict(row.attrib) for row in etree.parse(path).getroot()] for path in files)
    return Written(summary, {int(post["Id"]): post for post in posts if post["PostTypeId"] == "1"}, links, truth)


def _jaccards(texts: dict[int, str], pairs: list[tuple[int, int]]) -> np.ndarray:
    sets = shingle_sets(pa.array([texts[question] for pair in pairs for question in pair]), 3)
    return jaccard(sets, np.arange(0, 2 * len(pairs), 2), np.arange(1, 2 * len(pairs), 2))


def test_truth_and_links_name_questions_that_exist(written: Written) -> None:
    questions = written.questions
    links = [(int(link["PostId"]), int(link["RelatedPostId"])) for link in written.links]
    duplicates = {ends for ends, link in zip(links, written.links, strict=True) if link["LinkTypeId"] == "3"}
    assert list(written.truth[0]) == ["site", "question_id", "related_id", "kind", "linked"]
    assert {row["site"] for row in written.truth} == {"big.example.com"}
    pairs = {(int(row["question_id"]), int(row["related_id"])): row["linked"] == "1" for row in written.truth}
    assert all(related in questions and question in questions and related < question for question, related in pairs)
    assert duplicates == {pair for pair, linked in pairs.items() if linked}
    assert {number for number, post in questions.items() if "ClosedDate" in post} == {pair[0] for pair in duplicates}
    assert {end for ends in links for end in ends} <= questions.keys()
    counts = {kind: len(written.planted(kind)) for kind in ("copy", "near_copy", "rephrasing")}
    assert counts == written.summary.planted == {"copy": 20, "near_copy": 30, "rephrasing": 50}


def test_planted_questions_are_as_alike_as_their_kind_and_originals_are_not(written: Written) -> None:
    posts = written.questions
    texts = {number: question_text(post["Title"], post["Body"], TextSettings())[1] for number, post in posts.items()}
    copies, near, other = (written.planted(kind) for kind in ("copy", "near_copy", "rephrasing"))
    assert all(texts[original] == texts[copy] for original, copy in copies)
    assert any(posts[original]["Body"] != posts[copy]["Body"] for original, copy in copies)
    found = _jaccards(texts, near)
    assert np.mean(found >= 0.8) >= 0.9
    assert found.max() < 1
    words = [(set(texts[left].split()), set(texts[right].split())) for left, right in other]
    assert np.mean([len(left & right) / len(left | right) for left, right in words]) < 0.3
    assert _jaccards(texts, other).max() < 0.3
    planted = {int(row["question_id"]) for row in written.truth}
    originals = [text for question, text in texts.items() if question not in planted]
    left, right = np.triu_indices(len(originals), 1)
    assert jaccard(shingle_sets(pa.array(originals), 3), left, right).max() < 0.3
