"""What training reads of an archive: its words, token ids, titles and bodies, and what teachers make of some texts."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from oracles.slow_ids import slow_ids

from dupq import storage
from dupq.evaluation.development import TitleBuckets
from dupq.job.gpus import NO_GPUS
from dupq.job.run import Run
from dupq.job.step import as_is
from dupq.job.table import Broadcast, File, Partition, Streamed, Table
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.training import teach
from dupq.stages.training import words as stage
from dupq.stages.training.prepare import USES, Prepared
from dupq.stages.training.teach import targets_of
from dupq.stages.training.words import (
    TITLES,
    WORD_COUNTS,
    chosen_words,
    count_words,
    each_text,
    ids_of,
    merge_counts,
    reads_written_words,
    rows_with_uses,
    sentences_of,
    sequences_in,
    texts_among,
    titles_in,
)
from dupq.tables import TEXTS
from dupq.text.keys import hash_limit
from dupq.text.languages import normaliser_of
from dupq.text.questions import Vocabulary, token_ids

ALL = (1 << 64) - 1
STEMS = config.load("dupq", ["text.dates=date", "word_vectors.minimum_count=2", "word_vectors.algorithm=skip-gram"])
ARCHIVE = (
    [("breads rise", "ovens bake 12 may 2014"), ("", ""), ("bread", "oven")],
    [("trains run", "train to the bread oven"), ("rise", "")],
    [("", "oven breads")],
)


def texts_of(rows: list[tuple[str, str]], first: int = 0) -> pa.Table:
    """TEXTS of titles and bodies; keys count from `first`."""
    titles, bodies = [title for title, _ in rows], [f"{title} {body}".strip() for title, body in rows]
    return pa.table([pa.array(range(first, first + len(rows)), pa.int64()), titles, bodies], schema=TEXTS)


def archive(folder: Path, *shards: list[tuple[str, str]]) -> Table:
    made, first = Table(str(folder / "texts"), TEXTS, len(shards)), 0
    for number, rows in enumerate(shards):
        storage.write_table(made.file(number), texts_of(rows, first), TEXTS)
        first += len(rows)
    return made


def counted(run: Run, texts: Table, limits: list[int] | list[None], settings: Settings = STEMS) -> tuple[Table, Table]:
    """Return the frequent words and the corpus."""
    parts = [Partition(texts, number) for number in range(texts.partitions)]
    return count_words(run, "words", parts, limits, settings, settings.word_vectors.words)


def rows_of(table: pa.Table) -> list[tuple[int, str]]:
    return [(-row["count"], row["word"]) for row in table.to_pylist()]


def test_words_are_those_of_a_count_text_by_text_in_any_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = archive(tmp_path, *ARCHIVE)
    texts = [f"{title} {body}".strip() for rows in ARCHIVE for title, body in rows]
    expected = Counter(word for text in texts for word in normaliser_of(STEMS.text).all_words(text))
    frequent = sorted((-count, word) for word, count in expected.items() if count > 1)
    for each, most in ((32, 100), (1, 100), (1, 3)):
        monkeypatch.setattr(stage, "_FILES_PER_PARTITION", each)
        run = Run(str(tmp_path / f"{each}-{most}"), "prepare")
        settings = STEMS.changed(word_vectors=STEMS.word_vectors.changed(words=most))
        table, sentences_table = counted(run, made, [ALL] * 3, settings)
        words = chosen_words(Streamed(table), run.report.numbers["frequent"], settings)
        assert rows_of(words.table) == frequent[:most]
        assert words.caps == {"words over word_vectors.words": len(frequent) - len(frequent[:most])}
        assert run.report.counts["words"] == expected.total()
        assert run.report.counts["different words"] == len(expected)
        sentences = [normaliser_of(STEMS.text).all_words(text) for text in texts if text]
        corpus = Streamed(sentences_table)
        assert [words for _ in range(2) for table in corpus for words in sentences_of(table)] == 2 * sentences


def test_a_sample_of_the_texts_is_the_corpus_and_all_are_counted(tmp_path: Path) -> None:
    limits = [hash_limit(np.arange(5), 2)] * 2 + [0]
    run = Run(str(tmp_path), "prepare")
    words, corpus = counted(run, archive(tmp_path, *ARCHIVE), limits)
    assert (-4, "bread") in rows_of(merge_counts(Streamed(words)))
    assert len(Broadcast(corpus).read()) <= 2
    assert not reads_written_words(STEMS)


def test_words_are_counted_as_they_are_written_where_vectors_of_those_are_read(tmp_path: Path) -> None:
    settings = config.load("dupq", ["word_vectors.minimum_count=2", "word_vectors.algorithm=teacher"])
    assert reads_written_words(settings)
    as_written = settings.changed(text=settings.text.changed(word_form="written"))
    run = Run(str(tmp_path), "prepare")
    words, corpus = counted(run, archive(tmp_path, *ARCHIVE), [None] * 3, as_written)
    expected = [(-3, "oven"), (-2, "bread"), (-2, "breads"), (-2, "rise")]
    assert rows_of(merge_counts(Streamed(words))) == expected
    assert len(Broadcast(corpus).read()) == 0


WORDS = ["bread", "oven", "rise", "train"]
COUNTED = pa.table([WORDS, [1] * 4], schema=WORD_COUNTS)


def test_token_ids_are_those_of_the_texts_and_some_are_left_out() -> None:
    texts, vocabulary = texts_of([*ARCHIVE[0], *ARCHIVE[1]]), Vocabulary(WORDS, STEMS.text)
    expected = [ids.tolist() for ids in token_ids(texts, vocabulary, STEMS)[0]]
    found = ids_of(texts, COUNTED, ALL, 1, STEMS)
    assert [ids.tolist() for ids in each_text(found.table, None)] == expected
    assert [ids.tolist() for ids in each_text(found.table, np.array([2, 9]))] == [*expected[:2], *expected[3:]]
    uses = pa.table([[0, 1, 3], [False, True, True], [True, False, False], [False] * 3], schema=USES)
    some = sequences_in(rows_with_uses(found.table, uses.select(["key", "is_example"])))
    assert {key: ids.tolist() for key, ids in some.items()} == {key: expected[key] for key in (1, 3)}
    assert rows_with_uses(texts, uses)["key"].to_pylist() == [0, 1, 3]
    backwards = [texts.slice(2), texts.slice(0, 2)]
    assert texts_among(backwards, np.array([1, 2, 9]))["text"].to_pylist() == ["", "bread oven"]
    titles = titles_in(found.second)
    assert titles.keys.tolist() == [0, 2, 3]  # those with a title and a body
    shown = ["breads rise", "bread", "trains run"]
    assert [ids.tolist() for ids in titles.titles] == [slow_ids(vocabulary, title, 9).tolist() for title in shown]
    assert [ids.tolist() for ids in titles.bodies][1] == slow_ids(vocabulary, "oven", 9).tolist()
    assert ids_of(texts, COUNTED, ALL, 0, STEMS).second.num_rows == 0


def test_a_teacher_reads_the_same_texts_in_any_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def keys_as_vectors(_: str, table: pa.Table, *__: object) -> np.ndarray:
        read.append(table["key"].to_pylist())
        return np.array([[key, 1] for key in read[-1]], np.float16)

    monkeypatch.setattr(teach, "embeddings_by", keys_as_vectors)
    monkeypatch.setattr(teach, "_QUESTIONS_PER_TASK", 14)
    settings = STEMS.changed(teacher=STEMS.teacher.changed(encoder="one"))
    keys, found = np.arange(0, 40, 4), []
    for name, sizes in (("one", [40]), ("five", [7, 13, 0, 1, 19])):
        folder = tmp_path / name
        uses = Table(str(folder / "uses"), USES, 1)
        storage.write_table(uses.file(0), pa.table([keys, *[[False] * 10] * 2, [True] * 10], schema=USES), USES)
        picked = archive(folder, *([("a", "b")] * size for size in sizes))
        some = Prepared(uses, uses, uses, uses, picked, uses, File(""), 40, 0, 0)
        taught = teach.teach.function(Run(str(folder), "teach"), some, settings, NO_GPUS)
        found.append([*Streamed(taught)])
    assert found[0] == found[1]
    assert taught.rows == 10
    assert targets_of(taught).left.tolist() == keys.tolist()
    assert read == 2 * [sorted(batch) for batch in read[:3]]


@pytest.mark.parametrize("is_measured", [True, False])
def test_each_title_is_in_one_bucket_and_an_epoch_has_an_order_of_its_own(tmp_path: Path, is_measured: bool) -> None:
    made = archive(tmp_path, *([(f"bread {row}", f"oven {row}") for row in range(200)] for _ in range(6)))
    run, limit = Run(str(tmp_path), "prepare"), hash_limit(np.arange(1200), 1000)
    spread = run.shuffled("spread", TITLES, made.partitions, 5, to="bucket")
    storage.write_table(f"{tmp_path}/words/part-00000.parquet", COUNTED, WORD_COUNTS)
    words = Broadcast(Table(f"{tmp_path}/words", WORD_COUNTS, 1))
    run.map("ids", ids_of, second=spread)(made, words, limit, 5, STEMS)
    buckets = [titles_in(table) for table in Streamed(run.map("titles", as_is, TITLES)(spread.table))]
    titles = TitleBuckets([bucket.keys for bucket in buckets], buckets.__getitem__, STEMS, is_measured)
    orders = [[bucket for bucket, _, _ in titles.order(1, epoch)] for epoch in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(5))
    shares = [share for _, *ends in titles.order(1, 1) for share in ends]
    assert (shares[0], shares[-1], shares) == (0, 1, sorted(shares))
    keys = [titles.read(number).keys for number in range(5)]
    assert all(len(own) > 100 for own in keys)
    every = np.concatenate(keys)
    assert len(np.unique(every)) == len(every) == (950 if is_measured else 1000)
    assert (titles.held_out is not None) == is_measured
    assert not is_measured or len(titles.held_out.titles) == 50
