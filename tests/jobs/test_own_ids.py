"""Ids come back as they went in, byte for byte, and addresses too: through every table, file and call of a run."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline import without_ray

from dupq import export, review
from dupq.api.runs import Run, open_run
from dupq.cli import _PHASES
from dupq.dump.files import Columns
from dupq.errors import DupqError
from dupq.job import progress
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import FromDumpJob, from_dump
from dupq.report.explorer import explorer_data
from dupq.report.summary import next_run

ODD = ("2", "2.0", "-7", "@a", "007", "12345678901234567890", "=1+1", "a/b#3", "BANK-0010", "1e5", "null", "Ä'\"<b>")
WORDS = ("router", "printer", "invoice", "garden", "bicycle", "passport", "oven", "guitar", "battery", "window")
WORDS += ("ladder", "camera", "kettle")
COPY = "{} again"  # the id of a question's copy
COMMAND = "dupq from-dump desk.csv --id ticket --output out"


def title_of(number: int) -> str:
    one, other = WORDS[number], WORDS[number - 1]
    return f"Why does my {one} fail whenever I put the old {other} next to the {one} in winter?"


def address_of(id_: str) -> str:
    return f"https://desk.example/{ODD.index(id_)}?a=1&b=2"


def rows_of(file: Path, separator: str) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter=separator, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ids")
    rows = [(id_, title_of(number), address_of(id_)) for number, id_ in enumerate(ODD)]
    rows += [(COPY.format(id_), title, "http://not.https") for id_, title, _ in rows]
    rows += [(f"other {n}", f"How many days until {WORDS[n]} number {n} arrives?", "") for n in range(len(WORDS))]
    with (folder / "desk.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("ticket", "title", "url"), *rows])
    phases: list[str] = []
    with without_ray(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "phase", phases.append)
        made = open_run(from_dump(job_in(folder)).uri)
    assert len(phases) == _PHASES["from_dump"]
    return made


def job_in(folder: Path, **more: str) -> FromDumpJob:
    dumps, output = (str(folder / "desk.csv"),), str(folder / "out")
    return FromDumpJob(dumps, output, columns=Columns(id="ticket"), reranker="none", command=COMMAND, **more)


def test_ids_and_addresses_come_back_through_every_door(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = {row["own_id"]: row for row in run.questions.arrow().to_pylist()}
    assert set(ODD) <= questions.keys()
    assert {id_: row["url"] for id_, row in questions.items() if row["url"]} == {id_: address_of(id_) for id_ in ODD}

    export.export(run.uri, "keep-drop", str(tmp_path / "lists"))
    drop, keep = (rows_of(tmp_path / f"lists/{name}.csv", ",") for name in ("drop", "keep"))
    kept = {(row["kept_own_id"], row["own_id"], row["reason"]) for row in drop}
    assert kept == {(id_, COPY.format(id_), "smaller id") for id_ in ODD}
    assert {row["own_id"] for row in keep} | {row["own_id"] for row in drop} == questions.keys()

    work = run.worklist.arrow().to_pylist()
    number = {row["question_id"]: id_ for id_, row in questions.items()}
    for row in work:
        for side in ("left", "right"):
            assert row[f"own_id_{side}"] == number[row[f"question_id_{side}"]]
            assert row[f"link_{side}"] == questions[row[f"own_id_{side}"]]["url"]
    sheet = rows_of(Path(run.uri, "worklist.tsv"), "\t")
    assert [row["own_id_left"] for row in sheet] == [row["own_id_left"] for row in work]

    shown = {question.get("own_id") for question in explorer_data(run)["questions"]}
    assert set(ODD) <= shown
    for id_ in ODD:
        for name in (id_, f"desk/{id_}"):
            members = {member.question for member in run.cluster_of(name).questions}
            assert members == {f"desk/{id_}", f"desk/{COPY.format(id_)}"}
    assert set(run.similar(title_of(0), k=2).arrow()["own_id"].to_pylist()) & {ODD[0], COPY.format(ODD[0])}

    monkeypatch.setattr("sys.stdin", type("Ended", (), {"isatty": lambda _: False, "readline": lambda _: ""})())
    review.review(run.uri)
    assert f"desk/{work[0]['own_id_left']}" in capsys.readouterr().out


def test_verdicts_from_a_spreadsheet_join_their_pair_the_next_time(run: Run, tmp_path: Path) -> None:
    rows = rows_of(Path(run.uri, "worklist.tsv"), "\t")
    chosen = next(row for row in rows if len(row["question_id_left"]) == 15)
    chosen |= {"verdict": "same", "question_id_left": f"{float(chosen['question_id_left']):.2E}"}
    with (tmp_path / "sheet.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=";")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["title_left"]))
    output = Path(run.uri).parents[1]
    with without_ray():
        job = job_in(output.parent, verdicts=str(tmp_path / "sheet.csv"), previous=str(output / "runs"))
        later = open_run(from_dump(job).uri)
    members = {member.question for member in later.cluster_of(chosen["own_id_left"]).questions}
    assert f"desk/{chosen['own_id_right']}" in members
    assert later.metrics["judged"]["same"] == 1
    assert next_run(run, "b.tsv") == f"{COMMAND} --verdicts ~/Downloads/b.tsv"
    assert next_run(later, "b.tsv") == f"{COMMAND} --previous {output}/runs --verdicts ~/Downloads/b.tsv"


def test_a_run_that_was_moved_with_its_inputs_finds_them(run: Run) -> None:
    output = Path(run.uri).parents[1]
    moved = output.with_name("elsewhere")
    output.rename(moved)
    try:
        found = open_run(moved / "runs")
        assert len(found.cluster_of(ODD[0]).questions) == 2
        assert found.similar(title_of(1), k=1).arrow()["probability"].is_valid().to_pylist() == [True]
        (moved / "questions").rename(moved / "gone")
        with pytest.raises(DupqError, match="if the output was moved, move questions and"):
            _ = open_run(moved / "runs").questions
        (moved / "gone").rename(moved / "questions")
    finally:
        moved.rename(output)


@settings(max_examples=5)
@given(
    ids=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), min_size=1, max_size=8, unique=True)
)
@without_ray()
def test_any_ids_survive_ingest_in_any_form(ids: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [{"id": id_, "title": f"What is number {number}?"} for number, id_ in enumerate(ids)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    for form in ("jsonl", "parquet"):
        ingest(IngestJob((str(folder / f"a.{form}"),), str(folder / form), "a"))
        found = ds.dataset(folder / form / "questions", format="parquet").to_table(["title", "own_id"])
        assert sorted(found.to_pylist(), key=lambda row: row["title"]) == sorted(
            ({"title": row["title"], "own_id": row["id"]} for row in rows), key=lambda row: row["title"]
        )
        assert pc.all(found["own_id"].is_valid()).as_py()
