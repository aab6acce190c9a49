"""Jobs over an archive whose language is not named: it is determined, saved with the encoder, and logged."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline import without_ray

import dupq
from benchmarks.generator.household import Question, write_site
from dupq import storage
from dupq.archive import Shard
from dupq.encoders.saved import encoder_at, read_description, read_settings
from dupq.pipelines.opening import language_of_shards
from dupq.pipelines.train import FromDumpJob, TrainingJob, from_dump, train
from dupq.report.summary import summary
from dupq.runs.reader import Run
from dupq.tables import QUESTIONS


@pytest.fixture(scope="module")
@without_ray()
def thai(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Question], str]:
    folder = tmp_path_factory.mktemp("thai")
    questions = write_site(folder / "thai.example.com", "thai", 100)
    return questions, from_dump(FromDumpJob((str(folder / "thai.example.com"),), str(folder / "out"))).uri


def test_a_run_in_another_language_needs_no_settings(thai: tuple[list[Question], str]) -> None:
    questions, uri = thai
    encoder = encoder_at(storage.join(storage.parent(storage.parent(uri)), "encoder"))
    settings = read_settings(encoder)
    assert (settings.text.language, settings.word_vectors.algorithm) == ("thai", "random")
    known = read_description(encoder)["metrics"]["language"]
    assert known == "thai, detected: 100% of the titles are thai"
    assert Run(uri).manifest["inputs"]["language"] == known
    assert " of thai.example.com (Thai)" in summary(uri)
    columns = ["question_id_left", "question_id_right"]
    pairs = dupq.open_run(uri).pairs.arrow(columns, [("joined", "==", True)]).to_pylist()
    right = [len({questions[pair[column] - 1].meaning for column in columns}) == 1 for pair in pairs]
    assert sum(right) >= 20  # ten exact and ten edited copies
    assert right.count(False) <= 2


@without_ray()
def test_a_language_that_is_named_or_that_of_the_start_is_taken(
    thai: tuple[list[Question], str], tmp_path: Path
) -> None:
    archive = storage.parent(storage.parent(thai[1]))
    questions, encoder = (storage.join(archive, name) for name in ("questions", "encoder"))
    for assignment, language in (
        ("text.language=other", "other, named by text.language"),
        (f"word_vectors.start={encoder}", "thai, as of the encoder that training goes on from"),
    ):
        output = str(tmp_path / assignment[:4])
        train(TrainingJob(questions, None, output, assignments=(assignment,)))
        assert read_description(output)["metrics"]["language"] == language
        assert read_settings(output).text.language == language.split(",")[0]


def test_an_archive_of_several_languages_has_none(tmp_path: Path) -> None:
    def shards(**titles: list[str]) -> list[Shard]:
        found = []
        for site, asked in titles.items():
            uri = str(tmp_path / f"{site}.parquet")
            rows = [{**dict.fromkeys(QUESTIONS.names), "title": title} for title in asked]
            pq.write_table(
                pa.Table.from_pylist(rows, pa.schema([field.with_nullable(True) for field in QUESTIONS])), uri
            )
            found.append(Shard(len(found), uri, site))
        return found

    english, portuguese = (
        ["How do I repair a bicycle at home?"] * 9,
        ["Como posso reparar a minha bicicleta em casa?"] * 9,
    )
    assert language_of_shards(shards(one=english, two=portuguese))[0] == "other"
    assert language_of_shards(shards(one=english * 5, two=portuguese))[0] == "english"
    assert language_of_shards(shards(one=[], two=portuguese))[0] == "portuguese"
    for mixed in (english + portuguese, portuguese + english):  # of one shard, in either order
        language, in_words = language_of_shards(shards(one=mixed))
        assert (language, in_words.startswith("other, detected: 50% of the titles are ")) == ("other", True)
    assert language_of_shards([])[0] == "english"


def test_find_duplicates_reads_other_languages_without_being_told(thai: tuple[list[Question], str]) -> None:
    questions, _ = thai
    table = pa.table({"title": [one.title for one in questions], "body": [one.body for one in questions]})
    found = dupq.find_duplicates(table)
    assert found.encoder.reader.settings.text.language == "thai"
    groups = {frozenset(questions[row].meaning for row in rows) for rows in found.groups()}
    assert sum(len(meanings) == 1 for meanings in groups) >= 20
