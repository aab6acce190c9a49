"""The papers' tables: what they name exists, and what they quote stands in the papers."""

import re
from pathlib import Path

import pytest

from dupq_papers.experiments.catalogue import TABLES
from dupq_papers.experiments.fitting import NAMES
from dupq_papers.experiments.orders import CLAIMS
from dupq_papers.experiments.rows import PRESET, QUOTED, Row, Table, part_of
from dupq_papers.experiments.settings import settings_of
from dupq_papers.experiments.sources import Source

PAPERS = {
    "bogdanova": "bogdanova-2015-cnn",
    "dos-santos": "dos-santos-2015-bow-cnn",
    "othman": "othman-2021-aslstm",
    "hazem": "hazem-2017-mappsent",
}
ROWS = [(table, row) for table in TABLES.values() for row in table.rows]


def source(language: str = "english", kind: str = "site") -> Source:
    return Source("some", kind, (), language, "")  # type: ignore[arg-type]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_labels_are_distinct_and_measures_are_columns(table: Table) -> None:
    labels = [row.label for row in table.rows]
    assert len(set(labels)) == len(labels)
    assert table.measures
    for row in table.rows:
        assert all(set(values) <= set(table.measures) for values in row.published.values())


@pytest.mark.parametrize(("table", "row"), ROWS, ids=lambda one: getattr(one, "name", None) or one.label)
def test_every_system_exists_with_its_settings(table: Table, row: Row) -> None:
    assert row.system == QUOTED or row.system in NAMES or row.system.startswith(PRESET)
    for is_quick in (False, True):
        part = part_of(table, row, "some", "other", is_quick)
        if part is not None:
            settings = settings_of(part, source())
            assert settings.text.title_times == 1
            arabic = settings_of(part, source("arabic", "pairs"))
            assert arabic.text.fields == "title"
            assert not arabic.word_vectors.goes_on  # from an encoder of English words


def test_a_quick_part_is_smaller_in_every_way() -> None:
    table = TABLES["dos-santos-4"]
    parts = [part_of(table, table.rows[-1], "some", None, is_quick) for is_quick in (False, True)]
    whole, quick = (settings_of(part, source()) for part in parts if part is not None)
    assert quick.training.epochs <= whole.training.epochs
    assert quick.title_body.epochs < whole.title_body.epochs
    assert quick.text == whole.text
    assert quick.encoder == whole.encoder


def test_rows_that_need_another_site_have_no_part_without_one() -> None:
    table = TABLES["bogdanova-5"]
    assert [part_of(table, row, "some", None, False) is None for row in table.rows] == [
        "other" in (row.vectors, row.trained_on) for row in table.rows
    ]


HAZEM_BEST = {  # section 5.1: figure, window, dimensions, in 2016 and in 2017
    "Arora": ((77.87, 20, 800), (46.93, 20, 100)),
    "Arora, PCA": ((78.81, 20, 300), (46.66, 10, 500)),
    "MappSent-": ((78.56, 20, 800), (46.90, 20, 100)),
    "MappSent-, PCA": ((78.66, 20, 300), (46.53, 10, 500)),
    "MappSent": ((79.18, 20, 300), (47.50, 20, 100)),
    "MappSent, PCA": ((79.09, 20, 500), (49.29, 10, 500)),  # the latter with 4 components, table 5
}


@pytest.mark.parametrize("edition", [0, 1])
def test_tables_1_and_2_of_hazem_have_the_vectors_that_the_paper_found_best(edition: int) -> None:
    table = TABLES[f"hazem-{edition + 1}"]
    rows = {row.label: row for row in table.rows if row.label in HAZEM_BEST}
    assert set(rows) == set(HAZEM_BEST)
    for label, row in rows.items():
        value, window, dimensions = HAZEM_BEST[label][edition]
        assert [values["map"] for values in row.published.values()] == [value]
        part = part_of(table, row, "some", None, False)
        assert part is not None
        settings = settings_of(part, source())
        assert (settings.word_vectors.window, settings.word_vectors.dimensions) == (window, dimensions)
        expected = 4 if (label, edition) == ("MappSent, PCA", 1) else int("PCA" in label)
        assert int(settings.encoder.model_dump()["removed_components"]) == expected


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_claims_are_of_rows_that_there_are(claim) -> None:
    table = TABLES[claim.table]
    assert {*claim.better, *claim.worse} <= {row.label for row in table.rows}
    assert claim.measure in table.measures


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_quoted_figures_stand_in_the_paper(table: Table, shared_data: Path) -> None:
    name = next(file for start, file in PAPERS.items() if table.name.startswith(start))
    file = shared_data.parent / "papers" / f"{name}.txt"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    text = file.read_text()
    printed = set(map(float, re.findall(r"\d+\.\d+", text)))
    printed |= {float(whole) / 100 for whole in re.findall(r"\b(\d\d)%", text)}
    quoted = {value for row in table.rows for values in row.published.values() for value in values.values()}
    assert quoted - printed == set()
