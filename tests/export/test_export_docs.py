"""What docs/export.md shows: its Python runs, its commands are right, and the columns of the map are told."""

import re
import shlex
from pathlib import Path

import duckdb
import pytest
from embedded_run import build_embedded_run
from fabricated_run import CLUSTERS

from dupq import storage
from dupq.cli import export as command
from dupq.cli.options import Parser
from dupq.export import embedding_atlas, formats
from dupq.runs.reader import open_run

DOCS = Path(__file__).parents[2] / "docs" / "export.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_embedded_run(str(tmp_path / "out" / "sample"))
    formats.export(run, "graphml", str(tmp_path / "out" / "sample" / "graph"))
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block.replace("RUN_ID", storage.name(run)), str(DOCS), "exec"), names)
    members = sum(map(len, CLUSTERS))
    assert names["graph"].number_of_nodes() == len(names["titles"].fetchall()) == len(names["largest"]) == members


def test_the_one_liners_give_what_the_run_says(tmp_path: Path) -> None:
    run = build_embedded_run(str(tmp_path))
    (first,) = re.findall(r'duckdb.sql\(f"(SELECT source, .*)"\)', DOCS.read_text())
    found = duckdb.sql(first.replace("{run}", run)).fetchall()
    joined = open_run(run).pairs.pandas(filter=[("joined", "==", True)]).groupby("source")["probability"]
    assert sorted(found) == [(name, len(own), pytest.approx(own.mean())) for name, own in joined]


def test_the_commands_are_those_of_the_command_line() -> None:
    parser = Parser()
    command.add_options(parser)
    lines = re.findall(r"^    dupq export (.*)$", DOCS.read_text(), re.MULTILINE)
    assert [parser.parse_args(shlex.split(line)).to for line in lines] == list(formats.FORMATS)


def test_every_column_of_the_map_is_told() -> None:
    section = DOCS.read_text().partition("## Embedding Atlas")[2].partition("## GraphML")[0]
    assert set(embedding_atlas._SCHEMA.names) <= set(re.findall(r"`(\w+)`", section))
