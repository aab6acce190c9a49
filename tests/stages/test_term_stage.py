"""The terms of questions, read for those that want them."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from inline import without_ray
from oracles.slow_evidence import Question, words_of
from run_tables import key_of, question_row, write_rows, write_terms

from dupq import tables
from dupq.clusters.marks import CITED, SELF
from dupq.runs.layout import TermFiles
from dupq.shards import Shard
from dupq.stages import terms as stage
from dupq.stages.terms import make_terms, read_terms, titles_only
from dupq.text.keys import Sites
from dupq.text.terms import BUCKETS, Terms

QUESTIONS = {
    3: Question({1: 2}, {1: 3, 4: 1}, {2: 1}, {}),
    7: Question({}, {5: 1}, {}, {}),
    8: Question({1: 1, 6: 1}, {1: 1, 6: 2}, {2: 1, 3: 1}, {6: 1}),
    9: Question({2: 1}, {}, {1: 1}, {2: 1}),
}


def rows_of(terms: Terms) -> list[dict[int, int]]:
    pairs = list(zip(terms.ids.tolist(), terms.counts.tolist(), strict=True))
    return [dict(pairs[start:end]) for start, end in pairwise(terms.offsets.tolist())]


@pytest.mark.parametrize("wanted", [None, [3, 8], []])
def test_terms_come_back_as_they_were_written_or_without_all_but_titles(
    wanted: list[int] | None, tmp_path: Path
) -> None:
    files = TermFiles("", str(tmp_path), (Shard(0, "", ""), Shard(1, "", "")), 1)
    write_terms(files, np.array([*QUESTIONS]), words_of([*QUESTIONS.values()]), np.ones(8, np.float32))
    table = read_terms(files, 0, None if wanted is None else np.array(wanted, np.int64))
    expected = [QUESTIONS[key] for key in (sorted(QUESTIONS) if wanted is None else wanted)]
    for some, kept in ((table, 4), (titles_only(table), 1)):
        assert some.schema == table.schema
        places, words = stage.words_of(some)
        keys = sorted(QUESTIONS) if wanted is None else wanted
        assert sorted(places.keys.tolist()) == keys
        rows = places.of(np.array(keys, np.int64))
        for place, terms in enumerate(words):
            found = rows_of(terms)
            assert [found[row] for row in rows] == [question[place] if place < kept else {} for question in expected]


def test_each_question_has_the_tags_and_marks_of_its_row_in_whatever_order_texts_are(tmp_path: Path) -> None:
    site = "a.example.com"
    sites, shard = Sites([site]), Shard(0, f"{tmp_path}/questions.parquet", site)
    files = TermFiles(f"{tmp_path}/texts", f"{tmp_path}/terms", (shard,), 1)
    keys = {number: key_of(sites, (site, number)) for number in (3, 1, 4, 2)}
    rows = [question_row(n, tags=["t"] * (n > 2), body_html=f'<a href="/q/{n + 1}">{n}</a>') for n in keys]
    write_rows(shard.uri, rows, tables.QUESTIONS)
    texts = [{"key": keys[number], "title": "", "text": "words"} for number in (2, 4, 3, 1)]
    write_rows(f"{files.texts}/{shard.file}", texts, tables.TEXTS)
    with without_ray():
        make_terms(files, sites, "english")
    places, words = stage.words_of(read_terms(files, 0))
    found = places.of(np.array([keys[number] for number in (1, 2, 3, 4)]))
    tags, marks = (rows_of(terms) for terms in words[2:])
    assert [len(tags[row]) for row in found] == [0, 0, 1, 1]
    own, cited = (
        [{mark % BUCKETS for mark in marks[row] if mark // BUCKETS == k} for row in found] for k in (SELF, CITED)
    )
    assert own[1:] == cited[:-1]  # each cites the next one
    assert all(len(some) == 1 for some in own)
