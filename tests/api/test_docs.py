"""The examples of docs/python.md run from top to bottom."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "python.md"


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
