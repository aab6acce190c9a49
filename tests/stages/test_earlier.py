"""What is copied of inputs, and taken from an earlier run."""

import importlib.metadata
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from run_tables import table

from dupq import storage, text
from dupq.archive import Shard, input_files
from dupq.job import cluster
from dupq.job.records import StageRecord
from dupq.job.run import Run
from dupq.job.table import Shards
from dupq.links import known_duplicates
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.stages.inputs import LEFT_OUT, contents_of, copy_input
from dupq.stages.texts import TextTables, earlier_texts, make_texts, texts_made_as
from dupq.tables import CONTENTS, LINKS, QUESTION_TEXTS, QUESTIONS
from dupq.text.keys import Sites

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


def test_another_version_of_any_library_that_reads_texts_is_another_way_to_make_them() -> None:
    """Also one that is loaded for some languages only. NumPy, Arrow and hashes give the same for every version."""
    roots = {
        name.partition(".")[0]
        for file in Path(text.__file__).parent.glob("*.py")
        for name in re.findall(r"^ *(?:import|from) ([\w.]+)", file.read_text(), re.MULTILINE)
    }
    distributions = importlib.metadata.packages_distributions()
    libraries = {distributions[root][0].lower() for root in roots & distributions.keys()}
    made_as = texts_made_as(TextSettings())
    assert libraries - {"dupq", "numpy", "pyarrow", "xxhash"} == made_as.keys() - {"settings", "algorithm"}
    assert made_as.keys() - {"settings", "algorithm"} <= cluster.versions().keys()


def test_files_beyond_those_read_for_a_shard_are_counted_and_their_questions_made_again(
    tmp_path: Path,
) -> None:
    given = Shards(tuple(shards(tmp_path / "questions")), ("a",), QUESTIONS)

    def texts_in(name: str, previous: str | None) -> tuple[StageRecord, TextTables]:
        run = Run.open(str(tmp_path), {}, {"name": name}, Settings(), {})
        run.previous = previous
        made = make_texts(run, given, TextSettings())
        return run.records[0], made

    record, then = texts_in("then", None)
    limit = LEFT_OUT
    assert (record["caps"], record["counts"]["texts as in the earlier run"]) == ({limit: 0}, 0)
    record, now = texts_in("now", storage.parent(storage.parent(then.texts.folder)))
    assert record["caps"] == {limit: SHARDS * 2}
    assert record["counts"]["texts as in the earlier run"] == 240
    assert all(then.texts.read(part) == now.texts.read(part) for part in range(SHARDS))


def test_what_there_was_has_the_keys_of_this_runs_sites(tmp_path: Path) -> None:
    [shard, *_] = shards(tmp_path / "questions")
    lists = {name: [] for name in QUESTION_TEXTS.names[3:]}
    texts = [{"key": number, "title": "why", "text": "why", **lists} for number in (10, 20, 299)]
    hashes = [{"key": number, "high": number, "low": 1, "written": "", "tags": []} for number in (20, 10, 299)]
    contents = table(f"{tmp_path}/contents", CONTENTS, hashes)
    before = TextTables(table(f"{tmp_path}/texts", QUESTION_TEXTS, texts), contents, ("a",))
    questions = Shards((shard,), ("A", "a"), QUESTIONS)
    then = earlier_texts(before, contents_of(contents, before.sites), questions, 0)
    assert pa.concat_tables(then.texts)["key"].to_pylist() == [1 << 48 | number for number in (10, 20, 299)]
    assert then.contents.ids.tolist() == [10, 20, 299]
    assert then.contents.are_same(np.array([20, 11, 299]), np.array([[20, 1], [11, 1], [299, 2]])).tolist() == [1, 0, 0]


SITES = Sites(["a", "b"])


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A table of two sites with a link each."""
    for number, site in enumerate(SITES.names):
        row = dict.fromkeys(LINKS.names) | {"question_id": 7, "related_id": number, "link_type": "duplicate"}
        storage.write_table(f"{tmp_path}/links/site={site}/0.parquet", pa.Table.from_pylist([row], LINKS), LINKS)
    return tmp_path / "links"


@pytest.mark.parametrize("given", ["", "site=b"])
def test_copied_links_are_those_that_were_given_also_of_one_site(given: str, links: Path, tmp_path: Path) -> None:
    for file in input_files(str(links / given), "links"):
        copy_input(file, f"{tmp_path}/run/{file.path}")
    wanted = known_duplicates(str(links / given), SITES)
    assert len(wanted) == (1 if given else 2)
    assert known_duplicates(f"{tmp_path}/run/links", SITES).tolist() == wanted.tolist()


def test_paths_depend_neither_on_the_place_of_a_table_nor_of_a_task(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(links.parent)
    (links.parent / "prior.json").write_text("{}")
    assert [Path(file.uri).parent for file in input_files("prior.json", "prior")] == [links.parent]
    moved = links.parent / "site=c" / "links"
    moved.parent.mkdir()
    links.rename(moved)
    paths = [file.path for file in input_files(str(moved), "links")]
    assert paths == ["links/site=a/0.parquet", "links/site=b/0.parquet"]
