"""The files of SemEval Task 3 and its official scores: a literal scorer, files gone wrong, and the real ones."""

import csv
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_measures import official_semeval

from dupq.errors import DupqError
from dupq_papers.data.semeval import Candidate, Original, read_csv, read_xml
from dupq_papers.data.semeval_scores import (
    Candidates,
    official_average_precisions,
    official_scores,
    read_relevancy,
    reranked,
)

THREAD = """<OrgQuestion ORGQ_ID="{original}">
<OrgQSubject>Good Bank</OrgQSubject><OrgQBody>Which is &lt;good&gt;?</OrgQBody>
<Thread THREAD_SEQUENCE="{original}_R{rank}">
<RelQuestion RELQ_ID="{original}_R{rank}" RELQ_RANKING_ORDER="{rank}" RELQ_RELEVANCE2ORGQ="{label}">
<RelQSubject>Bank {rank}</RelQSubject><RelQBody/></RelQuestion>
<RelComment><RelCText>the nearest</RelCText></RelComment></Thread></OrgQuestion>
"""


def xml(*threads: str, opening: str = "") -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n{opening}<xml version="1.0">{"".join(threads)}</xml>'


def thread(original: str, rank: object, label: str) -> str:
    return THREAD.format(original=original, rank=rank, label=label)


def written(folder: Path, text: str, name: str = "questions.xml") -> str:
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


def test_originals_have_their_candidates_in_the_order_of_the_search_engine(tmp_path: Path) -> None:
    text = xml(thread("Q2", 9, "Relevant"), thread("Q1", 3, "Irrelevant"), thread("Q2", 4, "PerfectMatch"))
    found = read_xml(written(tmp_path, text))
    best = Candidate("Q2_R4", "Bank 4", "", 4, "PerfectMatch")
    assert found[0] == Original(
        "Q2", "Good Bank", "Which is <good>?", (best, Candidate("Q2_R9", "Bank 9", "", 9, "Relevant"))
    )
    assert [(one.id, [candidate.is_relevant for candidate in one.candidates]) for one in found] == [
        ("Q2", [True, True]),
        ("Q1", [False]),
    ]
    (tmp_path / "packed.xml.xz").write_bytes(lzma.compress(text.encode()))
    assert read_xml(str(tmp_path / "packed.xml.xz")) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (xml(thread("Q1", 3, "?")), "line 5: label '?'; PerfectMatch or Relevant or Irrelevant expected"),
        (xml(thread("Q1", "third", "Relevant")), "line 5: rank 'third'; a whole number expected"),
        (xml(thread("Q1", 3, "Relevant") * 2), "line 11: candidate 'Q1_R3' comes twice"),
        (xml(thread("Q1", 3, "Relevant"), thread("Q1", 4, "Relevant").replace("Good", "Bad")), "has another text"),
        (xml(thread("Q1", 3, "Relevant").replace("RELQ_ID", "ID")), "line 5: <RelQuestion> has no RELQ_ID"),
        (xml(thread("Q1", 3, "Relevant").replace("<RelQBody/>", "")), "line 5: <RelQuestion> has no <RelQBody>"),
        (xml(thread("Q1", 3, "Relevant").replace("Bank 3", "<b>Bank</b>")), "<RelQSubject> holds more than text"),
        (xml(), "no questions in it"),
        (xml(thread("Q1", 3, "Relevant"))[:-9], "not well-formed"),
        ("", "not well-formed"),
    ],
)
def test_what_is_not_of_the_official_form_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    uri = written(tmp_path, text)
    with pytest.raises(DupqError) as caught:
        read_xml(uri)
    assert str(caught.value).startswith(uri)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "opening",
    [
        '<!DOCTYPE xml [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE xml [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
    ],
)
def test_entities_are_refused(tmp_path: Path, opening: str) -> None:
    text = xml(thread("Q1", 3, "Relevant").replace("Bank 3", "&a;"), opening=opening)
    with pytest.raises(DupqError, match="refused"):
        read_xml(written(tmp_path, text))


def test_an_entity_of_a_foreign_document_type_is_not_looked_up(tmp_path: Path) -> None:
    (tmp_path / "foreign.dtd").write_text('<!ENTITY a "secret">')
    opening = f'<!DOCTYPE xml SYSTEM "{tmp_path}/foreign.dtd">'
    text = xml(thread("Q1", 3, "Relevant").replace("Bank 3", "&a;"), opening=opening)
    with pytest.raises(DupqError, match="holds more than text"):
        read_xml(written(tmp_path, text))


def test_damaged_packing_is_told(tmp_path: Path) -> None:
    packed = lzma.compress(xml(thread("Q1", 3, "Relevant")).encode())
    for name, content, said in (
        ("cut.xml.xz", packed[:-20], "cut short"),
        ("bad.xml.xz", b"no xz at all", "damaged"),
        ("latin.xml.xz", lzma.compress("<xml>ü</xml>".encode("latin-1")), "not a text in UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DupqError, match=f"{name}.*{said}"):
            read_xml(str(tmp_path / name))


HEADING = "id,question1_id,question2_id,question1,question2,relevance\n"


def test_a_csv_has_binary_labels_and_ranks_in_its_ids(tmp_path: Path) -> None:
    lines = 'a,Q1,Q1_R10,One?,"Two, too.\nYes",1\nb,Q1,Q1_R2,One?,Three,0\n'
    assert read_csv(written(tmp_path, HEADING + lines)) == [
        Original(
            "Q1",
            "",
            "One?",
            (
                Candidate("Q1_R2", "", "Three", 2, "Irrelevant"),
                Candidate("Q1_R10", "", "Two, too.\nYes", 10, "Relevant"),
            ),
        )
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADING + "0,Q1,Q1_R2,One,Two,2\n", "line 2: label '2'; 1 or 0 expected"),
        (HEADING + "0,Q1,Q1,One,Two,1\n", "line 2: rank 'Q1'"),
        (HEADING + "0,Q1,Q1_R2,One\n", "line 2: the columns"),
        (HEADING + "0,Q1,Q1_R2,One,Two,1,more\n", "line 2: the columns"),
        (HEADING + '0,Q1,Q1_R2,"One,Two,1\n', "no CSV"),
        ("a,b\n1,2\n", "line 2: the columns"),
        (HEADING, "no questions in it"),
    ],
)
def test_a_broken_csv_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DupqError, match=said):
        read_csv(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [("Q1\tQ1_R2\t2\t0.5\n", "line 1: 4 columns"), ("Q1 Q1_R2 2 0.5 maybe\n", "label 'maybe'"), ("\n", "no lines")],
)
def test_a_broken_gold_file_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DupqError, match=said):
        read_relevancy(written(tmp_path, text))


def test_the_official_scores_are_those_of_a_literal_scorer_on_random_rankings() -> None:
    generator = np.random.default_rng(1)
    for _ in range(100):
        sizes = generator.integers(1, 14, generator.integers(1, 20))
        rankings = [generator.random(size) < generator.random() for size in sizes]
        rankings[0][0] = True  # one relevant candidate, at least
        found = official_scores(rankings)
        assert found == pytest.approx(official_semeval([ranking.tolist() for ranking in rankings]))
        assert official_average_precisions(rankings).mean() == found.map


def test_questions_without_a_relevant_candidate_count_in_the_official_scores() -> None:
    right, nothing = np.array([True, False]), np.array([False, False])
    assert official_scores([right]) == (1.0, 1.0, 1.0)
    assert official_scores([right, nothing]) == (0.5, 1.0, 0.5)
    with pytest.raises(ValueError, match="relevant candidate"):
        official_scores([nothing])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_candidates_are_reranked_by_score_and_ties_stay_in_their_order(scores: list[int]) -> None:
    keys = np.arange(len(scores)) + 5
    question = Candidates(4, keys, keys % 2 == 0)
    (found,) = reranked([question], lambda left, right: np.array(scores, float)[right - 5] * (left == 4))
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    assert found.tolist() == [bool(keys[place] % 2 == 0) for place in order]


@pytest.mark.realdata
def test_the_real_files_have_what_their_readme_says_and_the_published_baseline(shared_data: Path) -> None:
    folder = shared_data / "semeval"
    first = read_csv(str(folder / "train-part1-subtaskB.csv"))
    second = read_xml(str(folder / "SemEval2016-Task3-CQA-QL-train-part2.xml.xz"))
    development = read_xml(str(folder / "SemEval2016-Task3-CQA-QL-dev.xml.xz"))
    gold = read_relevancy(str(folder / "SemEval2016-Task3-CQA-QL-dev.xml.subtaskB.relevancy"))
    assert [(len(part), sum(len(one.candidates) for one in part)) for part in (first, second, development)] == [
        (200, 1999),
        (67, 670),
        (50, 500),
    ]
    assert not {one.id for one in first} & {one.id for one in second}
    labels = Counter(candidate.label for one in development for candidate in one.candidates)
    assert labels == {"PerfectMatch": 59, "Relevant": 155, "Irrelevant": 286}
    assert {(one.original, one.candidate, one.rank, one.is_relevant) for one in gold} == {
        (one.id, candidate.id, candidate.rank, candidate.is_relevant)
        for one in development
        for candidate in one.candidates
    }
    by_rank = [np.array([candidate.is_relevant for candidate in one.candidates]) for one in development]
    assert sum(not ranking.any() for ranking in by_rank) == 7
    # the search engine's order, as published for the development set: MAP 71.35, AvgRec 86.11, MRR 76.67
    assert official_scores(by_rank) == pytest.approx((0.7135, 0.8611, 0.7667), abs=5e-5)


@pytest.mark.realdata
def test_the_real_csv_is_read_as_it_is(shared_data: Path) -> None:
    path = shared_data / "semeval" / "train-part1-subtaskB.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = {row["question2_id"]: (row["question2"], row["relevance"]) for row in csv.DictReader(stream)}
    found = {one.id: (one.body, str(int(one.is_relevant))) for orig in read_csv(str(path)) for one in orig.candidates}
    assert found == rows
