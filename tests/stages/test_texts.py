"""The steps from questions to texts, and what they take from an earlier run."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from dupq.errors import DupqError
from dupq.settings.sections import TextSettings
from dupq.stages.texts import EarlierTexts, no_repeated, texts_of, texts_of_answers, texts_since
from dupq.tables import KEYS, QUESTION_TEXTS, TEXTS
from dupq.text.marks import ASKER, SELF
from dupq.text.questions import TERM_BITS, ContentHashes, bucket_of, content_hashes, lists_of, terms_of

SITE = 1 << 48
ROWS = [(1, "Why?", "<p>So.</p>"), (2, "How?", "<p>Thus.</p>"), (3, "When?", ""), (4, "", ""), (5, "Who?", "<p>I.</p>")]


def questions(rows: list[tuple[int, str, str]]) -> Iterator[pa.RecordBatch]:
    """Batches of two, as shards give them."""
    for start in range(0, len(rows), 2):
        ids, titles, bodies = zip(*rows[start : start + 2], strict=True)
        columns = [pa.array(ids), pa.array(titles), pa.array(bodies), pa.array([SITE | number for number in ids])]
        columns += [pa.array([[f"t{number}"] for number in ids]), pa.array([str(number) for number in ids])]
        names = ["question_id", "title", "body_html", "key", "tags", "owner", "site"]
        yield pa.record_batch([*columns, pa.array(["b"] * len(ids))], names)


def then(rows: list[tuple[int, str, str]], text: str) -> EarlierTexts:
    """What an earlier run had: the texts say from where they are."""
    ids, titles, bodies = zip(*rows, strict=True)
    lists = {field.name: [7] for field in list(QUESTION_TEXTS)[3:]}
    texts = [{"key": SITE | number, "title": "then", "text": text, **lists} for number in ids]
    tables = [pa.Table.from_pylist([row], QUESTION_TEXTS) for row in texts]
    return EarlierTexts(
        ContentHashes(np.array(ids), content_hashes(pa.array(titles), pa.array(bodies))), tables, {"counted": 7}
    )


def test_texts_are_made_and_contents_beside_them_in_the_same_order() -> None:
    found = texts_since(questions(ROWS), EarlierTexts(), TextSettings())
    assert found.table["key"].to_pylist() == found.second["key"].to_pylist() == [SITE | row[0] for row in ROWS]
    assert found.table["text"].to_pylist() == ["why so", "how thus", "when", "", "who i"]
    hashes = np.stack([found.second[half].to_numpy() for half in ("high", "low")], axis=1)
    assert (hashes == content_hashes(*(pa.array([row[n] for row in ROWS]) for n in (1, 2)))).all()
    assert found.table.select(TEXTS.names) == texts_of(questions(ROWS), TextSettings()).table
    titles, texts = (terms_of(pa.array(found.table[name].to_pylist()), "english") for name in ("title", "text"))
    for names, terms in ((("title_terms", "title_counts"), titles), (("text_terms", "text_counts"), texts)):
        assert [found.table[name].combine_chunks() for name in names] == lists_of(terms)
    assert [found.second["tags"].to_pylist(), found.second["asker"].to_pylist()] == [
        [[bucket_of(f"t{row[0]}")] for row in ROWS],
        [ASKER << TERM_BITS | bucket_of(f"b/{row[0]}") for row in ROWS],
    ]
    owners = [[mark >> TERM_BITS for mark in marks] for marks in found.table["marks"].to_pylist()]
    assert all(SELF in kinds and ASKER not in kinds for kinds in owners)
    assert found.counts == {"rows_in": 5, "empty texts": 1, "texts as in the earlier run": 0}


def test_what_says_the_same_is_taken_from_the_earlier_run_and_nothing_else() -> None:
    changed = [(1, "Why?", "<p>No.</p>"), (5, " Who?", "<p>I.</p>\n"), (3, "When?", ""), (9, "Gone", "")]
    now = [(5, "Who?", "<p>I.</p>"), *ROWS[:4]]
    found = texts_since(questions(now), then(sorted(changed), "as then"), TextSettings())
    assert found.table["key"].to_pylist() == [SITE | row[0] for row in now]
    assert found.table["text"].to_pylist() == ["as then", "why so", "how thus", "as then", ""]
    assert (found.counts["texts as in the earlier run"], found.caps["counted"]) == (2, 7)
    terms = found.table["text_terms"].to_pylist()
    assert [row == [7] for row in terms] == [True, False, False, True, False]
    assert [tags == [bucket_of(f"t{row[0]}")] for tags, row in zip(found.second["tags"].to_pylist(), now, strict=True)]


def test_a_question_that_appears_twice_stays_there_twice_until_it_is_found() -> None:
    found = texts_since(questions([ROWS[0], ROWS[1], ROWS[0]]), then(ROWS[:1], "as then"), TextSettings())
    assert found.table["key"].to_pylist() == [SITE | 1, SITE | 2, SITE | 1]
    with pytest.raises(DupqError, match=r"b/1 appears more than once \(1 or more rows too many"):
        no_repeated(iter([found.table]), ["a", "b"])
    assert no_repeated(iter([found.table.slice(0, 2), found.table.slice(0, 0)]), ["a", "b"]) == KEYS.empty_table()


def test_answers_have_no_titles() -> None:
    batch = pa.record_batch([pa.array([SITE | 8]), pa.array(["<p>Do so.</p>"])], ["key", "body_html"])
    assert texts_of_answers(iter([batch]), TextSettings()).table.to_pylist() == [
        {"key": SITE | 8, "title": "", "text": "do so"}
    ]
