"""Labelled pairs and archives read as collections: what is there, what is said of broken files, the real ones."""

import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dupq import storage
from dupq.errors import DupqError
from dupq.settings.sections import TextSettings
from dupq.tables import LINKS, QUESTIONS
from dupq.text.questions import question_text
from dupq_papers.data.pair_sets import PairSet, arabic, archive, quora, semeval
from dupq_papers.data.semeval import Candidate, Original, read_csv, read_xml
from dupq_papers.data.semeval_scores import official_scores, reranked
from dupq_papers.systems.collection import Collection

SETTINGS = TextSettings()


def rows(collection: Collection) -> dict[int, tuple[str, str, str]]:
    """The title, body and text of each key."""
    columns = (column.to_pylist() for column in (collection.titles, collection.bodies, collection.texts))
    return {key: (title, body, text) for key, title, body, text in zip(collection.keys.tolist(), *columns, strict=True)}


def pairs(found: PairSet) -> tuple[list[list[int]], list[list[int]]]:
    return found.labels.duplicates.tolist(), found.labels.others.tolist()


def written(folder: Path, name: str, text: str) -> str:
    content = text.encode()
    (folder / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    return str(folder / name)


def test_an_archive_gives_titles_bodies_tags_and_links_of_all_its_sites(tmp_path: Path) -> None:
    for site, question, title, body in (
        ("b.com", 7, "Flat Bread", "<p>It rises</p><pre><code>x = 1</code></pre>"),
        ("b.com", 5, "", "<p>Why, why?</p>"),
        ("a.com", 9, "Blue sails", ""),
    ):
        row = {"question_id": question, "title": title, "body_html": body, "tags": ["one", site]}
        table = pa.Table.from_pylist([row], QUESTIONS)
        storage.write_table(str(tmp_path / f"questions/site={site}/part-{question}.parquet"), table, QUESTIONS)
    links = [{"question_id": 7, "related_id": other, "link_type": "duplicate"} for other in (5, 7, 8)]
    storage.write_table(str(tmp_path / "links/site=b.com/part-0.parquet"), pa.Table.from_pylist(links, LINKS), LINKS)
    found = archive(str(tmp_path / "questions"), str(tmp_path / "links"), SETTINGS)
    site_b = 1 << 48
    assert rows(found.collection) == {
        9: ("blue sails", "", "blue sails"),
        site_b + 5: ("", "why why", "why why"),
        site_b + 7: ("flat bread", "it rises", "flat bread it rises"),
    }
    assert found.collection.tags == (("one", "a.com"), ("one", "b.com"), ("one", "b.com"))
    assert found.collection.rows(np.array([site_b + 7, 9])).tolist() == [2, 0]
    assert pairs(found) == ([[site_b + 5, site_b + 7]], [])
    assert found.labels.counts["not_in_archive"] == 1
    titles = archive(str(tmp_path / "questions"), str(tmp_path / "links"), TextSettings(fields="title")).collection
    assert rows(titles)[site_b + 7] == ("flat bread", "", "flat bread")


def test_quora_has_ids_for_keys_in_any_order(tmp_path: Path) -> None:
    texts = written(tmp_path, "questions.tsv.xz", 'id\tquestion\n9\tWhy is "c++" so < old?\n2\tSame\n4\tWhy?\n')
    labels = written(tmp_path, "pairs.tsv", "left\tright\tduplicate\n9\t2\t1\n4\t2\t0\n2\t9\t1\n7\t9\t1\n")
    found = quora(texts, labels, SETTINGS)
    assert {key: text for key, (text, _, _) in rows(found.collection).items()} == {
        2: "same",
        4: "why",
        9: "why is c++ so old",
    }
    assert found.collection.keys.tolist() == [2, 4, 9]
    assert pairs(found) == ([[2, 9]], [[2, 4]])
    assert found.labels.counts == {"lines": 4, "not_in_archive": 1, "repeated": 1, "contradictory": 0}


def test_arabic_texts_are_numbered_as_they_appear(tmp_path: Path) -> None:
    lines = ["ما هو؟\tما هي؟\t1", "من هو؟\tما هو؟\t0", "من هو؟\tمن هو؟ \t1", "ما هي؟\tما هو؟\t0"]
    uri = written(tmp_path, "pairs.tsv", "question1\tquestion2\tduplicate\n" + "\n".join(lines))
    found = arabic(uri, TextSettings(language="arabic"))
    assert {key: text for key, (_, _, text) in rows(found.collection).items()} == {0: "ما هو", 1: "ما هي", 2: "من هو"}
    assert found.collection.language == "arabic"
    assert pairs(found) == ([[0, 1]], [[0, 2]])
    assert (found.labels.counts["of_itself"], found.labels.counts["contradictory"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question1\tquestion2\n", "line 1: a heading of question1, question2, duplicate"),
        ("question1\tquestion2\tduplicate\n", "nothing below the heading"),
        ("question1\tquestion2\tduplicate\none\ttwo\n", "line 2: 2 columns; 3 expected"),
        ("question1\tquestion2\tduplicate\none\ttwo\tno\n", "line 2: label 'no'"),
    ],
)
def test_broken_lines_are_told_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DupqError, match=said):
        arabic(written(tmp_path, "pairs.tsv", text), SETTINGS)


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        ("1\tone\n1\ttwo\n", "1\t2\t1\n", "line 3: question 1 comes twice"),
        ("one\tone\n", "1\t2\t1\n", "line 2: 'one' is no question id"),
        ("1\tone\n2\ttwo\n", "1\t2\tyes\n", "pairs.tsv, line 1: label 'yes'"),
    ],
)
def test_broken_questions_are_told_with_their_place(tmp_path: Path, texts: str, labels: str, said: str) -> None:
    questions = written(tmp_path, "questions.tsv", "id\tquestion\n" + texts)
    with pytest.raises(DupqError, match=said):
        quora(questions, written(tmp_path, "pairs.tsv", labels), SETTINGS)


def test_semeval_numbers_each_original_and_then_its_candidates() -> None:
    candidates = (
        Candidate("Q1_R2", "Two", "a<b> & c", 2, "Irrelevant"),
        Candidate("Q1_R3", "Three", "", 3, "Relevant"),
    )
    originals = [
        Original("Q1", "One", "Body", candidates),
        Original("Q2", "Four", "", (Candidate("Q2_R1", "", "x", 1, "PerfectMatch"),)),
    ]
    found, lists = semeval(originals, SETTINGS)
    assert rows(found.collection)[1] == ("two", "a b c", "two a b c")
    assert [(one.query, one.keys.tolist(), one.relevant.tolist()) for one in lists] == [
        (0, [1, 2], [False, True]),
        (3, [4], [True]),
    ]
    assert pairs(found) == ([[0, 2], [3, 4]], [[0, 1]])


@pytest.mark.realdata
def test_the_real_sets_have_what_their_readme_says(shared_data: Path) -> None:
    arab = arabic(str(shared_data / "arabic" / "pairs.tsv"), TextSettings(language="arabic"))
    assert (arab.labels.counts["lines"], len(arab.collection.keys)) == (9597, 9868)
    many = quora(str(shared_data / "quora" / "questions.tsv.xz"), str(shared_data / "quora" / "pairs.tsv"), SETTINGS)
    assert (many.labels.counts["lines"], len(many.collection.keys)) == (63_831, 103_765)
    assert many.labels.counts["not_in_archive"] == 0
    folder = shared_data / "semeval"
    originals = read_csv(str(folder / "train-part1-subtaskB.csv"))
    originals += read_xml(str(folder / "SemEval2016-Task3-CQA-QL-dev.xml.xz"))
    found, lists = semeval(originals, SETTINGS)
    assert len(found.collection.keys) == 250 + 1999 + 500
    for one in (originals[3], originals[220]):
        key = lists[originals.index(one)].query
        assert rows(found.collection)[key][2] == " ".join(
            filter(None, (question_text(text, "", SETTINGS)[0] for text in (one.subject, one.body)))
        )
    # scored by the search engine's place, the candidates stay where they are
    assert official_scores(reranked(lists[200:], lambda left, right: (left - right).astype(float))).map == (
        pytest.approx(0.7135, abs=5e-5)
    )
