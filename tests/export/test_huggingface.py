"""The dataset folder: its card by the documented layout, and the files that it names."""

import fnmatch
import html
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from fabricated_run import BAD_SITE, CS, QUESTIONS, build_run

from dupq import storage, tables
from dupq.api.runs import Run, open_run
from dupq.export.formats import export
from dupq.export.huggingface import escaped


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(build_run(str(tmp_path)))


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    export(run.uri, "huggingface", str(tmp_path / "out"))
    return tmp_path / "out"


def card(folder: Path) -> tuple[dict, str]:
    opening, header, text = (folder / "README.md").read_text().split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(header), text


def test_each_config_names_the_files_of_its_table(run: Run, folder: Path) -> None:
    header, _ = card(folder)
    files = [str(path.relative_to(folder)) for path in folder.rglob("*.parquet")]
    assert [found["config_name"] for found in header["configs"]] == ["pairs", "clusters", "questions"]
    assert [found.get("default") for found in header["configs"]] == [True, None, None]
    named = []
    for found in header["configs"]:
        ((split, pattern),) = [(entry["split"], entry["path"]) for entry in found["data_files"]]
        own = sorted(fnmatch.filter(files, pattern))
        table = pq.ParquetDataset([folder / name for name in own]).read()
        expected = getattr(run, found["config_name"]).arrow()
        assert split == "train"
        assert table.equals(expected)
        named += own
    assert sorted(named) == sorted(files)
    assert header["size_categories"] == ["n<1K"]


def test_duckdb_and_polars_read_the_questions_with_their_sites(folder: Path) -> None:
    place = f"{folder}/questions/*.parquet"
    rows = duckdb.sql(f"SELECT site, question_id FROM '{place}'").fetchall()
    assert sorted(rows) == sorted(QUESTIONS) == sorted(pl.read_parquet(place).select("site", "question_id").rows())


def test_a_site_stays_text_in_the_card(folder: Path) -> None:
    _, text = card(folder)
    assert "<script>" not in text
    assert html.escape(BAD_SITE) in text
    assert escaped("[a](http://b) | *c*\n# d") == r"\[a\]\(http://b\) \| \*c\* \# d"


def test_a_site_without_questions_is_not_in_the_card(run: Run, tmp_path: Path) -> None:
    place = storage.join(run.uri, "metrics.json")
    metrics = storage.read_json(place)
    storage.write_json(place, metrics | {"sites": {**metrics["sites"], "skipped.example.com": 0}})
    export(run.uri, "huggingface", str(tmp_path / "out"))
    _, text = card(tmp_path / "out")
    assert CS in text
    assert "skipped.example.com" not in text


def test_licences_are_those_of_the_questions(run: Run, tmp_path: Path) -> None:
    place = f"{tmp_path}/questions/site={CS}/part-00000.parquet"
    rows = storage.read_table(place).to_pylist()
    licences = ["CC BY-SA 3.0", "CC BY-SA 4.0"]

    def licensed(names: list[str]) -> tuple[dict, str]:
        made = [{**row, "content_license": names[number % len(names)]} for number, row in enumerate(rows)]
        storage.write_table(place, tables.QUESTIONS.empty_table().from_pylist(made, tables.QUESTIONS), tables.QUESTIONS)
        output = tmp_path / f"of {len(names)}"
        export(run.uri, "huggingface", str(output))
        return card(output)

    header, text = licensed(licences)
    assert header["license"] == ["cc-by-sa-3.0", "cc-by-sa-4.0"]
    assert "under CC BY-SA 3.0, CC BY-SA 4.0" in text
    header, text = licensed([*licences, "all rights reserved"])
    assert "license" not in header
    assert "all rights reserved" in text
