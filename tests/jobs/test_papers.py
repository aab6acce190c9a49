"""The papers' tables from one command, on a small archive."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq.cli import COMMANDS, Parser
from dupq.errors import DupqError, SettingError
from dupq.evaluation.example_files import read_experiment
from dupq.evaluation.papers.catalogue import TABLES as PAPER_TABLES
from dupq.pipelines.papers import PapersJob, measure_papers

ALL = tuple(PAPER_TABLES)
TABLES = ("othman-figures-8-9",)


def job(sample: TrainedSample, folder: Path, tables: tuple[str, ...] = TABLES, *pair_sets: str) -> PapersJob:
    return PapersJob(sample.questions, sample.links, str(folder), tables, pair_sets, is_quick=True)


def test_tables_are_written_and_parts_are_kept(trained_sample: TrainedSample, tmp_path: Path) -> None:
    shown = measure_papers(job(trained_sample, tmp_path))
    assert "tables in" in shown
    folder = tmp_path / "papers" / "quick"
    rows = pq.read_table(folder / "results.parquet").to_pylist()
    assert {row["table"] for row in rows} == set(TABLES)
    assert all(row["ours"] is not None for row in rows)
    (examples,) = (folder / "examples").iterdir()
    assert len(read_experiment(str(examples)).test.labels) > 10
    parts = {file: file.stat().st_mtime_ns for file in (tmp_path / "work" / "papers" / "parts").glob("*.json")}
    pages = {file: file.read_bytes() for file in folder.glob("*.md")}
    assert measure_papers(job(trained_sample, tmp_path)) == shown
    assert {file: file.stat().st_mtime_ns for file in parts} == parts
    assert {file: file.read_bytes() for file in pages} == pages


def test_a_pair_set_is_one_more_data_set(trained_sample: TrainedSample, tmp_path: Path) -> None:
    pairs = tmp_path / "mine"
    pairs.mkdir()
    lines = [f"how to do thing {n}\tways to do thing {n}\t{int(n % 3 > 0)}" for n in range(60)]
    (pairs / "pairs.tsv").write_text("question1\tquestion2\tduplicate\n" + "\n".join(lines) + "\n")
    measure_papers(job(trained_sample, tmp_path / "out", TABLES, str(pairs)))
    rows = pq.read_table(tmp_path / "out" / "papers" / "quick" / "results.parquet").to_pylist()
    assert "mine" in {row["data"] for row in rows}


@pytest.mark.parametrize("tables", [(), ("bogdanova-1",)])
def test_only_tables_that_there_are(tables: tuple[str, ...], trained_sample: TrainedSample, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such table; there are bogdanova-2"):
        job(trained_sample, tmp_path, tables).check()


def test_a_table_that_no_data_set_is_for_is_refused_by_name_and_told_of_all(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"--table othman-4 \(needs an Arabic --pair-set\)"):
        job(trained_sample, tmp_path, ("othman-2", "othman-4")).check()
    assert "not measured: othman-4 (needs an Arabic --pair-set)" in job(trained_sample, tmp_path, ALL).check().remarks


def test_a_folder_without_a_pair_set_is_refused(trained_sample: TrainedSample, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DupqError, match=r"--pair-set .*empty: no pairs.tsv"):
        job(trained_sample, tmp_path / "out", TABLES, str(tmp_path / "empty")).check()


def test_two_data_sets_of_one_name_are_refused(trained_sample: TrainedSample, tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place / "mine").mkdir(parents=True)
        (tmp_path / place / "mine" / "pairs.tsv").write_text("question1\tquestion2\tduplicate\nx\ty\t1\n")
    with pytest.raises(DupqError, match="two data sets have the name mine"):
        job(trained_sample, tmp_path / "out", TABLES, *(str(tmp_path / place / "mine") for place in "ab")).check()


@pytest.mark.parametrize("option", [("--set", "encode.batch_tokens=1000"), ("--encoder", "somewhere")])
def test_options_of_other_tables_are_refused(option: tuple[str, str], tmp_path: Path) -> None:
    parser = Parser()
    COMMANDS["evaluate"].add_options(parser)
    given = ["--questions=q", "--links=l", f"--output={tmp_path}", "--table=othman-2", *option]
    with pytest.raises(SettingError, match="--encoder and --set are for the tables pairs and retrieval"):
        COMMANDS["evaluate"].run(parser.parse_args(given))
