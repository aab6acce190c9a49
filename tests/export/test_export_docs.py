"""What docs/export.md shows is right, and the columns of the map are told. tests/api/test_docs.py runs the page."""

import re
from pathlib import Path

import duckdb
import pytest
from embedded_run import build_embedded_run
from shown_commands import jobs_of, parser

from dupq.export import embedding_atlas, formats
from dupq.runs.reader import open_run

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


def test_the_one_liners_give_what_the_run_says(tmp_path: Path) -> None:
    run = build_embedded_run(str(tmp_path))
    (first,) = re.findall(r'duckdb.sql\(f"(SELECT source, .*)"\)', DOCS.read_text())
    found = duckdb.sql(first.replace("{run}", run)).fetchall()
    joined = open_run(run).pairs.pandas(filter=[("joined", "==", True)]).groupby("source")["probability"]
    assert sorted(found) == [(name, len(own), pytest.approx(own.mean())) for name, own in joined]


def test_there_is_a_command_for_each_format() -> None:
    parsed = [parser("export").parse_args(job.arguments) for job in jobs_of(DOCS)]
    assert [found.to for found in parsed] == list(formats.FORMATS)


def test_every_column_of_the_map_is_told() -> None:
    section = DOCS.read_text().partition("## Embedding Atlas")[2].partition("## GraphML")[0]
    assert set(embedding_atlas._SCHEMA.names) <= set(re.findall(r"`(\w+)`", section))
