"""The notebook is stored clean, and runs from top to bottom."""

import html
from pathlib import Path

import nbformat
import pytest
from fabricated_run import TITLES, TRIPLE, build_run
from nbclient import NotebookClient

from dupq import storage

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "first_look.ipynb"


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: nbformat.NotebookNode) -> str:
    """What the cells print, after running all of them."""
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(output.data.get("text/html", output.data["text/plain"]) for output in outputs if "data" in output)


def test_the_notebook_is_stored_without_outputs(notebook: nbformat.NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not [cell for cell in code if cell.outputs or cell.execution_count is not None]


def test_the_notebook_looks_at_a_run(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build_run(str(tmp_path))
    monkeypatch.setenv("DUPQ_RUN", storage.parent(run))
    text = executed(notebook)
    assert run in text
    assert "representatives" in text
    assert "0.96" in text
    assert f"https://{TRIPLE[0][0]}/questions/{TRIPLE[0][1]}" in text
    assert html.escape(TITLES[TRIPLE[0]], quote=False) in text
    assert "<script>" not in text
