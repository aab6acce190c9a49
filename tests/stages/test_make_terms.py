"""The tables of terms."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from oracles.slow_evidence import Question, words_of
from run_tables import key_of, question_row, terms_table, write_rows

from dupq import tables
from dupq.archive import Shard
from dupq.clusters import evidence
from dupq.clusters.evidence import titles_only
from dupq.job.run import Run
from dupq.job.table import Shards
from dupq.settings.sections import TextSettings
from dupq.stages.terms import make_terms
from dupq.stages.texts import make_texts
from dupq.text.keys import Sites
from dupq.text.marks import CITED, SELF
from dupq.text.questions import BUCKETS, Terms

QUESTIONS = {
    3: Question({1: 2}, {1: 3, 4: 1}, {2: 1}, {}),
    7: Question({}, {5: 1}, {}, {}),
    8: Question({1: 1, 6: 1}, {1: 1, 6: 2}, {2: 1, 3: 1}, {6: 1}),
    9: Question({2: 1}, {}, {1: 1}, {2: 1}),
}


def rows_of(terms: Terms) -> list[dict[int, int]]:
    pairs = list(zip(terms.ids.tolist(), terms.counts.tolist(), strict=True))
    return [dict(pairs[start:end]) for start, end in pairwise(terms.offsets.tolist())]


def test_terms_come_back_as_they_were_written_or_without_all_but_titles() -> None:
    keys = sorted(QUESTIONS)
    table = terms_table(pa.array(keys), words_of([QUESTIONS[key] for key in keys]))
    for some, kept in ((table, 4), (titles_only(table), 1)):
        assert some.schema == table.schema
        rows, words = evidence.words_of(some)
        assert rows.keys.tolist() == keys
        for number, terms in enumerate(words):
            expected = [QUESTIONS[key][number] if number < kept else {} for key in keys]
            assert [rows_of(terms)[row] for row in rows.find(np.array(keys))] == expected


def test_each_question_has_the_tags_and_marks_of_its_row(tmp_path: Path) -> None:
    site = "a.example.com"
    sites, shard = Sites([site]), Shard(0, f"{tmp_path}/questions.parquet", site)
    keys = {number: key_of(sites, (site, number)) for number in (3, 1, 4, 2)}
    rows = [question_row(n, tags=["t"] * (n > 2), body_html=f'<a href="/q/{n + 1}">{n}</a>') for n in keys]
    write_rows(shard.uri, rows, tables.QUESTIONS)
    questions = Shards((shard,), (site,), tables.QUESTIONS, batch_rows=2)
    texts = make_texts.function(Run(str(tmp_path), "texts"), questions, TextSettings())
    made = make_terms.function(Run(str(tmp_path), "terms"), texts, 1)
    places, words = evidence.words_of(made.terms.read(0))
    found = places.find(np.array([keys[number] for number in (1, 2, 3, 4)]))
    tags, marks = (rows_of(terms) for terms in words[2:])
    assert [len(tags[row]) for row in found] == [0, 0, 1, 1]
    own, cited = (
        [{mark % BUCKETS for mark in marks[row] if mark // BUCKETS == k} for row in found] for k in (SELF, CITED)
    )
    assert own[1:] == cited[:-1]  # each cites the next one
    assert all(len(some) == 1 for some in own)
