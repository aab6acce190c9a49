"""What training reads of an archive, shard by shard."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from inline import without_ray

from dupq import storage
from dupq.execution.gpus import NO_GPUS
from dupq.runs.layout import TrainingFiles
from dupq.runs.question_tables import write_keys
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.tables import TEXTS
from dupq.text.keys import hash_limit
from dupq.text.normalisation import normaliser_of
from dupq.text.questions import Vocabulary, token_ids
from dupq.training.steps import archive_words, teach
from dupq.training.steps.archive_words import Corpus, count_words, frequent_words, word_files, written_counts
from dupq.training.steps.development import TitleBuckets
from dupq.training.steps.teach import read_targets
from dupq.training.steps.token_files import (
    Sequences,
    Titles,
    picked_files,
    picked_texts,
    read_bucket,
    read_examples,
    write_token_ids,
)
from dupq.training.word_vectors import SENTENCE_WORDS

ALL = (1 << 64) - 1
STEMS = config.load("dupq", ["word_vectors.minimum_count=2", "word_vectors.algorithm=skip-gram"])


def written(folder: Path, shards: dict[str, list[tuple[str, str]]]) -> TrainingFiles:
    """Shards of titles and bodies, in `texts` or `answers`; keys count from 0."""
    key = 0
    for name, rows in shards.items():
        titles, bodies = [title for title, _ in rows], [f"{title} {body}".strip() for title, body in rows]
        columns = [pa.array(range(key, key + len(rows)), pa.int64()), pa.array(titles), pa.array(bodies)]
        storage.write_table(str(folder / name), pa.table(columns, schema=TEXTS), TEXTS)
        key += len(rows)
    answers = str(folder / "answers") if any(name.startswith("answers") for name in shards) else None
    files = TrainingFiles(str(folder / "texts"), None, str(folder / "work"), answers)
    write_keys(files.example_keys, np.array([1, 3]))
    write_keys(files.measured_keys, np.array([2, 3]))
    write_keys(files.taught_keys, np.array([0, 3]))
    return files


ARCHIVE = {
    "texts/site=a/part-0.parquet": [("breads rise", "ovens bake 12 may 2014"), ("", ""), ("bread", "oven")],
    "texts/site=b/part-0.parquet": [("trains run", "train to the bread oven"), ("rise", "")],
    "answers/site=a/part-0.parquet": [("", "oven breads")],
}


@without_ray()
def test_words_are_those_that_a_count_text_by_text_finds_whatever_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = written(tmp_path, ARCHIVE)
    texts = [f"{title} {body}".strip() for rows in ARCHIVE.values() for title, body in rows]
    expected = Counter(word for text in texts for word in normaliser_of(STEMS.text).all_words(text))
    frequent = sorted((-count, word) for word, count in expected.items() if count > 1)
    for per_part, most in ((32, 100), (1, 100), (1, 3)):
        monkeypatch.setattr(archive_words, "_FILES_PER_PART", per_part)
        settings = STEMS.changed(word_vectors=STEMS.word_vectors.changed(words=most))
        again = TrainingFiles(files.texts, None, str(tmp_path / f"{per_part}-{most}"), files.answers)
        report = count_words(again, [ALL, ALL], settings)
        found = frequent_words(word_files(again), most)
        assert [(-count, word) for word, count in zip(found.words, found.counts, strict=True)] == frequent[:most]
        assert (found.frequent, found.sentences) == (len(frequent), 5)
        assert report.counts["words"] == expected.total()
        assert report.counts["different words"] == len(expected)
        sentences = [normaliser_of(STEMS.text).all_words(text) for text in texts if text]
        assert list(Corpus(word_files(again))) == list(Corpus(word_files(again))) == sentences


@without_ray()
def test_a_sample_of_the_texts_is_the_corpus_and_all_are_counted(tmp_path: Path) -> None:
    files = written(tmp_path, ARCHIVE)
    count_words(files, [hash_limit(np.arange(5), 2), 0], STEMS)
    found = frequent_words(word_files(files), 100)
    assert dict(zip(found.words, found.counts, strict=True))["bread"] == 4
    assert found.sentences == len(list(Corpus(word_files(files)))) <= 2
    assert written_counts(files, STEMS) == {}


@without_ray()
def test_words_are_counted_as_they_are_written_where_vectors_of_those_are_read(tmp_path: Path) -> None:
    files = written(tmp_path, ARCHIVE)
    settings = config.load("dupq", ["word_vectors.minimum_count=2", "word_vectors.algorithm=teacher"])
    count_words(files, [ALL, ALL], settings)
    assert written_counts(files, settings) == {"bread": 2, "breads": 2, "oven": 3, "rise": 2}
    assert frequent_words(word_files(files), 100).sentences == 0  # no corpus is written


@without_ray()
def test_a_long_text_is_as_many_sentences_as_word2vec_takes(tmp_path: Path) -> None:
    files = written(tmp_path, {"texts/site=a/part-0.parquet": [("", "word " * (SENTENCE_WORDS + 1))]})
    count_words(files, [ALL], STEMS)
    assert frequent_words(word_files(files), 100).sentences == 2


def read(files: TrainingFiles, settings: Settings, names: list[str], titles: Titles) -> Vocabulary:
    vocabulary = Vocabulary(["bread", "oven", "rise", "train"], settings.text)
    storage.write_bytes(files.vocabulary, vocabulary.to_bytes())
    write_token_ids(files, names, titles, settings)
    return vocabulary


@without_ray()
def test_token_ids_are_those_of_the_texts_and_some_are_left_out(tmp_path: Path) -> None:
    files = written(tmp_path, ARCHIVE)
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    vocabulary = read(files, STEMS, names, Titles(ALL, 1))
    tables = [storage.read_table(file.uri, TEXTS) for file in storage.list_files(files.texts, ".parquet")]
    expected = [ids.tolist() for table in tables for ids in token_ids(table, vocabulary, STEMS)[0]]
    whole, some = Sequences(files, names), Sequences(files, names, np.array([2, 9]))
    assert [ids.tolist() for ids in whole] == [ids.tolist() for ids in whole] == expected
    assert [ids.tolist() for ids in some] == [*expected[:2], *expected[3:]]
    found = read_examples(files)
    assert {key: ids.tolist() for key, ids in found.items()} == {key: expected[key] for key in (1, 3)}
    assert picked_texts(picked_files(files), np.array([0, 1, 3]))["key"].to_pylist() == [0, 3]
    assert picked_texts(picked_files(files)[:1], np.array([2, 3]))["text"].to_pylist() == ["bread oven"]
    found = read_bucket(files, 0)
    assert found.keys.tolist() == [0, 2, 3]  # those with a title and a body
    assert [ids.tolist() for ids in found.titles] == [vocabulary.ids(title, 9).tolist() for title in TITLES]
    assert [ids.tolist() for ids in found.bodies][1] == vocabulary.ids("oven", 9).tolist()


@without_ray()
def test_a_task_of_the_teacher_reads_the_files_that_have_its_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, picked = [], teach.picked_texts
    monkeypatch.setattr(teach, "_pieces", lambda keys: np.split(keys, range(3, len(keys), 3)))
    monkeypatch.setattr(teach, "picked_texts", lambda uris, keys: read.append(uris) or picked(uris, keys))
    monkeypatch.setattr(teach, "fingerprint", lambda uri: uri)
    monkeypatch.setattr(
        teach, "_embeddings", lambda uri, table, *_: np.array([[key, 1] for key in table["key"].to_pylist()], "f2")
    )
    settings = STEMS.changed(teacher=STEMS.teacher.changed(encoder="one"))
    found = []
    for name, sizes in (("one", [40]), ("five", [7, 13, 0, 1, 19])):
        archive = {f"texts/part-{place}.parquet": [("a", "b")] * size for place, size in enumerate(sizes)}
        files = written(tmp_path / name, archive)
        write_keys(files.taught_keys, np.arange(0, 40, 4))
        read_all(files, STEMS)
        teach.teach(files, settings, NO_GPUS)
        found.append([storage.read_bytes(file.uri) for file in storage.list_files(files.taught)])
    assert found[0] == found[1]
    assert read_targets(files, 1).left.tolist() == list(range(0, 40, 4))
    places = [[uri[-len("0.parquet") :][0] for uri in uris] for uris in read]
    assert places == [["0"]] * 4 + [["0", "1"], ["1", "3"], ["4"], ["4"]]


def read_all(files: TrainingFiles, settings: Settings) -> None:
    read(files, settings, [file.relative for file in storage.list_files(files.texts, ".parquet")], Titles(0, 0))


TITLES = ["breads rise", "bread", "trains run"]


@without_ray()
@pytest.mark.parametrize("is_measured", [True, False])
def test_each_title_is_in_one_bucket_and_an_epoch_has_an_order_of_its_own(tmp_path: Path, is_measured: bool) -> None:
    shards = {
        f"texts/site=a/part-{number}.parquet": [(f"bread {row}", f"oven {row}") for row in range(200)]
        for number in range(6)
    }
    files = written(tmp_path, shards)
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    read(files, STEMS, names, Titles(hash_limit(np.arange(1200), 1000), 5))
    titles = TitleBuckets(files, STEMS, is_measured)
    orders = [[bucket for bucket, _, _ in titles.order(1, epoch)] for epoch in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(5))
    shares = [share for _, *ends in titles.order(1, 1) for share in ends]
    assert (shares[0], shares[-1], shares) == (0, 1, sorted(shares))
    keys = [titles.read(bucket).keys for bucket in range(5)]
    assert all(len(own) > 100 for own in keys)
    together = np.concatenate(keys)
    assert len(np.unique(together)) == len(together) == titles.questions == (950 if is_measured else 1000)
    assert (titles.apart is not None) == is_measured
    assert not is_measured or len(titles.apart.titles) == 50
