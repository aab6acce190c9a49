"""The examples of docs/python.md run from top to bottom, and so does the reader of examples/."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "python.md"


def test_the_examples_run(small_runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(small_runs.folder).parents[1])
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) >= 8
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    assert names["sure"].num_rows == len(names["same"])
    assert names["stricter"].threshold >= names["looser"].threshold
    assert names["vectors"].shape == (2, names["encoder"].dimensions)
    assert names["found"].groups() == [[0, 1]]


def test_the_example_that_reads_a_run_prints_clusters_and_pairs(
    small_runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["read_run.py", small_runs.loose])
    runpy.run_path(str(ROOT / "examples" / "laptop" / "read_run.py"))
    clusters, _, pairs = capsys.readouterr().out.partition("the likeliest pairs")
    assert clusters.count("\ncluster ") == 5
    assert "  |  " in pairs
