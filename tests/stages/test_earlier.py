"""What is taken from an earlier run, and what is left out."""

import importlib.metadata
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from run_tables import write_rows

from dupq import storage
from dupq.api.inputs import text
from dupq.archive import Shard
from dupq.job import cluster
from dupq.job.records import RunFiles
from dupq.job.run import Run
from dupq.job.table import ReadWith, Shards
from dupq.settings.sections import TextSettings
from dupq.stages import earlier
from dupq.stages.texts import COLUMNS, TextTables, make_texts
from dupq.tables import CONTENTS, QUESTION_TEXTS, QUESTIONS

SHARDS = 10  # each of whose ids span those of all others


def shards(folder: Path) -> list[Shard]:
    made = [Shard(number, f"{folder}/site=a/{number}.parquet", "a") for number in range(SHARDS)]
    for shard in made:
        ids = range(shard.number, 300, SHARDS)
        asked = {"title": "Why?", "body_html": "<p>Because.</p>", "tags": []}
        rows = [dict.fromkeys(QUESTIONS.names) | asked | {"question_id": number} for number in ids]
        schema = pa.schema([field.with_nullable(True) for field in QUESTIONS])
        storage.write_table(shard.uri, pa.Table.from_pylist(rows, schema), schema)
    return made


@pytest.mark.parametrize("then", ["cpu", "gpu"])
@pytest.mark.parametrize("now", ["cpu", "gpu"])
def test_earlier_embeddings_are_taken_only_if_they_are_of_the_same_kind_of_device(
    then: str, now: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since, made_by = RunFiles(str(tmp_path)), {"encoder": "e", "torch": "2"}
    texts = earlier.Earlier("", "", since.path("embeddings"), [])
    storage.write_json(since.encoded_as, {**made_by, "device": then})
    monkeypatch.setattr(earlier, "is_intact", lambda *_: True)
    taken = earlier.earlier_embeddings(since, {**made_by, "device": now}, texts)
    assert taken == (texts if then == now else None)
    why_not = "its results were made with another device"
    assert (why_not in capsys.readouterr().out) == (taken is None)


def test_another_version_of_any_library_that_reads_texts_is_another_way_to_make_them() -> None:
    """Also one that is loaded for some languages only. NumPy, Arrow and hashes give the same for every version."""
    roots = {
        name.partition(".")[0]
        for file in Path(text.__file__).parent.glob("*.py")
        for name in re.findall(r"^ *(?:import|from) ([\w.]+)", file.read_text(), re.MULTILINE)
    }
    distributions = importlib.metadata.packages_distributions()
    libraries = {distributions[root][0].lower() for root in roots & distributions.keys()}
    made_as = earlier.texts_made_as(TextSettings())
    assert libraries - {"dupq", "numpy", "pyarrow", "xxhash"} == made_as.keys() - {"settings", "algorithm"}
    assert made_as.keys() - {"settings", "algorithm"} <= cluster.versions().keys()


def test_files_beyond_those_that_are_read_for_a_shard_are_counted_and_their_questions_made_anew(tmp_path: Path) -> None:
    given = Shards(tuple(shards(tmp_path / "questions")), ("a",), COLUMNS)

    def texts_in(folder: str, before: earlier.Earlier | None) -> tuple[Run, TextTables]:
        run = Run(f"{tmp_path}/{folder}", "texts")
        return run, make_texts(run, given, ReadWith(earlier.texts_then, (before, given), SHARDS), TextSettings())

    run, then = texts_in("then", None)
    limit = earlier.LEFT_OUT.removeprefix("cap: ")
    assert (run.report.caps, run.report.counts["texts as in the earlier run"]) == ({limit: 0}, 0)
    spans = earlier._spans(then.contents.folder, ["a"])
    run, now = texts_in("now", earlier.Earlier(then.texts.folder, then.contents.folder, "", spans))
    assert run.report.caps == {limit: SHARDS * 2}
    assert run.report.counts["texts as in the earlier run"] == 240
    assert all(then.texts.read(part) == now.texts.read(part) for part in range(SHARDS))


def test_what_there_was_has_the_keys_of_this_runs_sites(tmp_path: Path) -> None:
    [shard, *_] = shards(tmp_path / "questions")
    folders = f"{tmp_path}/texts", f"{tmp_path}/contents"
    lists = {name: [] for name in QUESTION_TEXTS.names[3:]}
    texts = [{"key": number, "title": "why", "text": "why", **lists} for number in (10, 20, 299)]
    hashes = [{"key": number, "high": number, "low": 1, "signs": "", "tags": []} for number in (20, 10, 299)]
    for folder, rows, schema in zip(folders, (texts, hashes), (QUESTION_TEXTS, CONTENTS), strict=True):
        write_rows(f"{folder}/{shard.file}", rows, schema)
    before = earlier.Earlier(*folders, "", earlier._spans(folders[1], ["a"]))
    then = earlier.texts_then(before, Shards((shard,), ("A", "a"), COLUMNS), 0)
    assert pa.concat_tables(then.texts)["key"].to_pylist() == [1 << 48 | number for number in (10, 20, 299)]
    assert then.contents.ids.tolist() == [10, 20, 299]
    assert then.contents.are_same(np.array([20, 11, 299]), np.array([[20, 1], [11, 1], [299, 2]])).tolist() == [1, 0, 0]
