"""CSV: read back by other readers, and no title is a formula."""

import csv
from pathlib import Path

import duckdb
import fabricated_run
import polars as pl
import pyarrow as pa
import pytest
import regex
from fabricated_run import CS, QUESTIONS, TITLES, TRIPLE, build_run
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from dupq.api.runs import Run, open_run
from dupq.export.csv_files import guarded
from dupq.export.formats import export

FORMULA = '=HYPERLINK("http://evil.example";"click")'
LINES = 'one, "two"\r\nthree\n'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fabricated_run.TITLES, (CS, 5), FORMULA)
        patch.setitem(fabricated_run.TITLES, (CS, 6), LINES)
        return open_run(build_run(str(tmp_path_factory.mktemp("run"))))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("csv") / "out"
    written = export(run.uri, "csv", str(output))
    assert [found.note for found in written] == [
        "2 texts that a spreadsheet could take for a formula got a '",
        "1 texts that a spreadsheet could take for a formula got a '",
    ]
    return output


def title_of(key: tuple[str, int]) -> str:
    own = {(CS, 5): f"'{FORMULA}", (CS, 6): LINES}
    return {**TITLES, **own}.get(key, f"Question {key[1]} about {key[0].split('.')[0]}")


def test_pythons_strict_reader_reads_every_question_with_its_title(folder: Path) -> None:
    with (folder / "clusters.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert {(row["site"], int(row["question_id"])): row["title"] for row in rows} == {
        key: title_of(key) for key in QUESTIONS
    }


def test_lines_end_as_rfc_4180_wants(folder: Path) -> None:
    content = (folder / "pairs.csv").read_bytes()
    assert content.endswith(b"\r\n")
    assert content.startswith(b'"site_left","question_id_left","title_left","site_right",')


@pytest.mark.parametrize("name", ["pairs", "clusters"])
def test_arrow_reads_the_table_of_the_run(name: str, run: Run, folder: Path) -> None:
    table = getattr(run, name).arrow()
    convert = arrow_csv.ConvertOptions(
        column_types={field.name: field.type for field in table.schema},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    read = arrow_csv.read_csv(folder / f"{name}.csv", parse_options=parse, convert_options=convert)
    assert read.select(table.column_names).to_pylist() == table.to_pylist()


def test_duckdb_and_polars_read_it(run: Run, folder: Path) -> None:
    joined = run.pairs.arrow(filter=[("joined", "==", True)]).num_rows
    place = str(folder / "pairs.csv")
    assert duckdb.sql(f"SELECT count(*) FROM read_csv('{place}') WHERE joined").fetchall() == [(joined,)]
    frame = pl.read_csv(place)
    assert frame["joined"].sum() == joined
    found = frame.filter(pl.col("question_id_left") == TRIPLE[0][1])["title_left"].to_list()
    assert set(found) == {title_of(TRIPLE[0])}


UNSEEN = " \t\r\n\u00a0\u200b\ufeff\x00"
STARTS = st.text("'=+-@＝＋－＠(a1" + UNSEEN, max_size=4)
UNDONE = r"^'('*[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])"  # as docs/export.md has it


@given(st.lists(st.builds(str.__add__, STARTS, st.text(max_size=3)), max_size=8))
def test_no_text_is_a_formula_and_every_text_comes_back(texts: list[str]) -> None:
    found = guarded(pa.chunked_array([texts], pa.string())).to_pylist()
    for given_text, text in zip(texts, found, strict=True):
        assert text.lstrip(UNSEEN)[:1] not in set("=+-@＝＋－＠")
        assert regex.sub(UNDONE, r"\1", text) == given_text


def test_the_docs_tell_how_to_take_the_apostrophe_away() -> None:
    assert UNDONE in (Path(__file__).parents[2] / "docs" / "export.md").read_text()


def test_what_is_no_formula_stays_as_it_is() -> None:
    texts = ["a = b", "'quoted'", "", "1 + 1", "Is -1 prime?", None]
    assert guarded(pa.chunked_array([texts], pa.string())).to_pylist() == texts
