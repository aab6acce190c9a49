import csv
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import py7zr
import pytest
from lxml import etree, html
from sklearn.feature_extraction.text import CountVectorizer

from dupq.errors import SettingError
from examples.sample.archive import SampleFiles
from examples.sample.questions import write_sample

NOTE = re.compile(r"<blockquote>.*?</blockquote>", re.DOTALL)
CODE = re.compile(r"<pre>.*?</pre>|<code>.*?</code>", re.DOTALL)


class Sample(NamedTuple):
    files: SampleFiles
    posts_xml: bytes
    posts: list[dict[str, str]]
    links: list[dict[str, str]]
    truth: list[dict[str, str]]


def read(files: SampleFiles) -> Sample:
    folder = files.archive.parent / "members"
    with py7zr.SevenZipFile(files.archive) as archive:
        archive.extractall(folder)
    posts, links = ((folder / name).read_bytes() for name in ("Posts.xml", "PostLinks.xml"))
    rows = [[dict(row.attrib) for row in etree.fromstring(content)] for content in (posts, links)]
    with files.truth.open(encoding="utf-8", newline="") as stream:
        return Sample(files, posts, rows[0], rows[1], list(csv.DictReader(stream, delimiter="\t")))


def questions(sample: Sample) -> dict[str, dict[str, str]]:
    return {post["Id"]: post for post in sample.posts if post["PostTypeId"] == "1"}


def tokens(post: dict[str, str]) -> list[str]:
    body = CODE.sub(" ", NOTE.sub(" ", post["Body"]))
    text = html.fromstring(f"<div>{body}</div>").text_content()
    return re.findall(r"\w+", f"{post['Title']} {text}".lower())


def shingles(post: dict[str, str]) -> set[tuple[str, ...]]:
    words = tokens(post)
    return {tuple(words[start : start + 3]) for start in range(len(words) - 2)}


def jaccard(left: set, right: set) -> float:
    return len(left & right) / len(left | right)


def all_jaccards(sets: list[set]) -> np.ndarray:
    matrix = CountVectorizer(analyzer=list, binary=True, dtype=np.float64).fit_transform(sets)
    shared = (matrix @ matrix.T).toarray()
    sizes = shared.diagonal()
    return shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1)


def pairs(sample: Sample, kind: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    posts = questions(sample)
    return [(posts[row["question_id"]], posts[row["related_id"]]) for row in sample.truth if row["kind"] == kind]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return read(write_sample(tmp_path_factory.mktemp("sample")))


def test_the_counts_are_those_asked_for(sample: Sample) -> None:
    assert len(questions(sample)) == 1000
    assert Counter(row["kind"] for row in sample.truth) == {"copy": 50, "near_copy": 80, "rephrasing": 150}
    linked = Counter(row["kind"] for row in sample.truth if row["linked"] == "1")
    assert linked == {"copy": 15, "near_copy": 32, "rephrasing": 98}


@pytest.mark.parametrize("count", [0, 19, 20_000])
def test_a_size_that_cannot_be_written_is_refused(count: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"{count} questions"):
        write_sample(tmp_path, questions=count)


def test_every_machine_writes_these_bytes(tmp_path: Path) -> None:
    small = read(write_sample(tmp_path, questions=100))
    digest = hashlib.sha256(small.posts_xml + small.files.truth.read_bytes()).hexdigest()
    assert digest == "72600a4f4d7ad148feedebc96a8442bf93f438fa8e5baa81ae57bf524d862acd"


def test_planted_pairs_are_as_alike_as_their_kind(sample: Sample) -> None:
    copies = pairs(sample, "copy")
    assert all(tokens(left) == tokens(right) for left, right in copies)
    assert 0 < sum(left["Body"] == right["Body"] for left, right in copies) < len(copies)  # some have other HTML
    for left, right in pairs(sample, "near_copy"):
        assert tokens(left) != tokens(right)
        assert 0.85 <= jaccard(shingles(left), shingles(right)) < 1
    rephrasings = pairs(sample, "rephrasing")
    assert all(left["Title"] != right["Title"] for left, right in rephrasings)
    assert np.median([jaccard(shingles(left), shingles(right)) for left, right in rephrasings]) < 0.15


def test_no_other_pair_is_anywhere_near_a_copy(sample: Sample) -> None:
    posts = questions(sample)
    original_by_id = {row["question_id"]: row["related_id"] for row in sample.truth}
    groups = np.array([int(original_by_id.get(question_id, question_id)) for question_id in posts])
    overlaps = all_jaccards([shingles(post) for post in posts.values()])
    overlaps[groups[:, None] == groups[None, :]] = 0
    assert overlaps.max() < 0.5


def test_links_are_those_of_the_truth_to_earlier_questions_and_close_duplicates(sample: Sample) -> None:
    posts = questions(sample)
    duplicates = {(row["PostId"], row["RelatedPostId"]) for row in sample.links if row["LinkTypeId"] == "3"}
    assert duplicates == {(row["question_id"], row["related_id"]) for row in sample.truth if row["linked"] == "1"}
    assert Counter(row["LinkTypeId"] for row in sample.links) == {"3": 145, "1": 50}
    for row in sample.links:
        post = posts[row["PostId"]]
        assert int(row["RelatedPostId"]) < int(row["PostId"])
        assert row["RelatedPostId"] in posts
        assert row["CreationDate"] > post["CreationDate"]
        if row["LinkTypeId"] == "3":
            assert post["ClosedDate"] == row["CreationDate"]
    assert sum("ClosedDate" in post for post in posts.values()) == 145
