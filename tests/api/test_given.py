"""The arguments of the Python API, of every kind: they are read, or one line says what is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fabricated_run import CS, TITLES

import dupq
from dupq import DupqError
from dupq.api.result import Duplicates
from dupq.api.runs import Run
from dupq.runs.views import in_memory

GIVEN = ["How do I bake bread?", "how do I bake bread", None, "Where is my bicycle?"]
HALF = "cut \ud83d"
KEYS = {"site": [CS, CS, None, CS], "question_id": [1, 2, None, 999]}


@pytest.fixture(scope="module")
def found() -> Duplicates:
    return dupq.find_duplicates(GIVEN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    fabricated_run.build_run(str(place))
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return dupq.open_run(folder / "runs")


@pytest.mark.parametrize(
    "given",
    [
        pd.Series(GIVEN),
        pa.array(GIVEN),
        pa.chunked_array([GIVEN[:2], GIVEN[2:]]),
        pd.DataFrame({"title": GIVEN}),
        pa.table({"title": GIVEN}),
        {"title": GIVEN},
        pl.DataFrame({"title": GIVEN}),
        pl.LazyFrame({"title": GIVEN}),
        pl.Series(GIVEN),
        in_memory("questions", pa.table({"title": GIVEN})),
        (title for title in GIVEN),
        np.array(GIVEN, object),
        [*GIVEN[:2], pd.NaT, GIVEN[3]],
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_column_and_table_is_read(given: Any, found: Duplicates) -> None:
    assert dupq.find_duplicates(given, encoder=found.encoder).pairs.arrow().equals(found.pairs.arrow())
    assert found.groups() == [[0, 1]]


@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        pl.DataFrame,
        pa.table,
        lambda columns: pl.LazyFrame(columns),
        lambda columns: in_memory("keys", pa.table(columns)),
    ],
    ids=["pandas", "polars", "arrow", "lazy", "view"],
)
@pytest.mark.parametrize("end", ["", "_left"])
def test_titles_come_beside_the_keys_of_every_table(run: Run, make: Callable[[Any], Any], end: str) -> None:
    given = make({f"{name}{end}": values for name, values in KEYS.items()})
    titled = run.with_titles(given)
    kinds = {pl.LazyFrame: pl.DataFrame, type(in_memory("", pa.table({}))): pa.Table}
    assert isinstance(titled, kinds.get(type(given), type(given)))
    shown = titled[f"title{end}"].to_pylist() if isinstance(titled, pa.Table) else titled[f"title{end}"].to_list()
    links = titled[f"link{end}"].to_pylist() if isinstance(titled, pa.Table) else titled[f"link{end}"].to_list()
    assert [title if isinstance(title, str) else None for title in shown] == [TITLES[CS, 1], TITLES[CS, 2], None, None]
    assert links[0] == f"https://{CS}/questions/1"
    again = run.with_titles(titled)  # the columns that are there are replaced
    assert list(again.columns) == list(titled.columns)


def test_a_question_is_named_in_every_way(run: Run) -> None:
    ways = [f"{CS}/1", (CS, 1), (CS, "1"), [CS, 1], (CS, np.int64(1)), (CS, 1.0)]
    assert {run.cluster_of(way).cluster_id for way in ways} == {run.cluster_of(f"{CS}/1").cluster_id}


def test_a_path_is_taken_where_an_address_is(folder: Path, run: Run, found: Duplicates) -> None:
    assert run.uri == dupq.open_run(str(folder / "runs")).uri
    for opened in (dupq.load_encoder, lambda path: dupq.find_duplicates(GIVEN, encoder=path)):
        with pytest.raises(DupqError, match=rf"^{folder}: no encoder here .*; train one with dupq train$"):
            opened(folder)
    with pytest.raises(DupqError, match=r"no whole run is here; give the --output of dupq dedup"):
        dupq.open_runs(folder)


WRONG: list[tuple[Callable[[Run, Duplicates], Any], str]] = [  # more of them: tests/bad_inputs/test_bad_api.py
    (lambda *_: dupq.find_duplicates(["a", HALF]), r"row 1 of texts holds half a character \('\\ud83d"),
    (lambda *_: dupq.find_duplicates({"title": ["a", b"b"]}), "row 1 of title is bytes, no text; decode it first"),
    (lambda *_: dupq.find_duplicates(["", None]), "none of the 2 texts has a word"),
    (lambda *_: dupq.find_duplicates({"title": ["a"], "body": []}), "1 titles, but 0 bodies"),
    (lambda *_: dupq.find_duplicates(GIVEN, reranker="nowhere"), "reranker=nowhere: neither the folder"),
    (lambda *_: dupq.find_duplicates(GIVEN, threshold="0.5"), "threshold='0.5' is str, no number"),
    (lambda *_: dupq.find_duplicates(GIVEN, encoder=5), "encoder is int; the address of"),
    (lambda *_: dupq.find_duplicates(GIVEN, encoder=lambda some: np.full((len(some), 2), np.nan)), "of finite floats"),
    (lambda *_: dupq.open_runs("HTTP://a/b?c&d"), r"download it first: curl -LO 'HTTP://a/b\?c&d'"),
    (lambda *_: dupq.load_encoder("hdfs://a/b"), "hdfs: is not read; copy it to a local path"),
    (lambda *_: dupq.open_run(Path("s3://a/b")), "s3:/a/b: a pathlib.Path cannot hold"),
    (lambda run, _: run.cluster_of(5), "5: no question; site/question_id expected"),
    (lambda run, _: run.cluster_of(f"{CS}/{'9' * 5000}"), "no question"),
    (lambda run, _: run.cluster_of((HALF, 1)), "the site holds half a character"),
    (lambda run, _: run.explain("nosite/1", f"{CS}/2").evidence, "nosite: no such site"),
    (lambda run, _: run.with_titles(pd.DataFrame({"a": [1]})), "with_titles: .* DataFrame has a"),
    (lambda run, _: run.with_titles([1]), "with_titles: .* list has no columns"),
    (lambda run, _: run.with_titles(pl.DataFrame({"site": [CS] * 2, "question_id": ["1", "b"]})), "row 1: .*'b'"),
    (lambda run, _: run.similar(b"a"), "similar: the title is bytes, no text; decode it first"),
    (lambda run, _: run.changes_since("runs"), "changes_since: str; a run that dupq.open_run has"),
    (lambda _, found: found.encoder.encode("text"), "encode: titles is one text"),
]


@pytest.mark.parametrize(("ask", "said"), WRONG)
def test_what_is_wrong_is_one_line(
    ask: Callable[[Run, Duplicates], Any], said: str, run: Run, found: Duplicates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run.__dict__, "encoder", found.encoder)  # of a run that names one that is not there
    with pytest.raises(DupqError, match=said) as raised:
        ask(run, found)
    assert "\n" not in str(raised.value)


def test_near_duplicates_join_whatever_the_threshold_is(found: Duplicates) -> None:
    assert dupq.find_duplicates(GIVEN, encoder=found.encoder, threshold=1.0).groups() == [[0, 1]]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"title": GIVEN, 0: 1}),
        pa.table([GIVEN, GIVEN, GIVEN], names=["title", "x", "x"]),
        pd.DataFrame([[title, "x", "y"] for title in GIVEN], columns=["title", "x", "x"]),
        {"title": GIVEN, "note": None},
    ],
)
def test_columns_that_are_not_read_may_be_anything(table: Any, found: Duplicates) -> None:
    assert dupq.find_duplicates(table, encoder=found.encoder).groups() == [[0, 1]]


def test_ids_are_distinct_as_they_are_written_and_one_for_each_text(found: Duplicates) -> None:
    ids = dupq.find_duplicates({"title": GIVEN, "id": np.arange(7, 11)}, encoder=found.encoder).keep()
    assert ids == [7, 9, 10]
    for wrong, says in (
        ([1, "1", 2, 3], "'1' names more than one"),
        (["a", None, "b", "c"], "the id None names more than one text; ids must be there"),
        (pd.Series([1, None, 2, 3]), "the id nan names more than one text; ids must be there"),
        ([1, 2], "4 titles, but 2 values of id"),
        ([HALF, 1, 2, 3], "half a character"),
    ):
        with pytest.raises(DupqError, match=says):
            dupq.find_duplicates({"title": GIVEN, "id": wrong}, encoder=found.encoder)
    assert dupq.find_duplicates({"title": GIVEN, "id": [2**70, 1, 2, 3]}, encoder=found.encoder).keep()[0] == str(2**70)
    assert dupq.find_duplicates({"id": ["nan", "None"], "title": ["one", "two"]}).keep() == ["nan", "None"]


def test_conditions_filter_file_by_file_too(run: Run) -> None:
    conditions = [("probability", ">", 0.9)]
    assert pa.concat_tables(run.pairs.files(filter=conditions)).equals(run.pairs.arrow(filter=conditions))
    for read in (run.pairs.arrow, lambda filter: list(run.pairs.files(filter=filter))):
        for wrong in (pc.field("probability"), pc.field("nope") > 1):
            with pytest.raises(DupqError, match="pairs: cannot be read"):
                read(filter=wrong)
