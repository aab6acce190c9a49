"""The notebooks are stored clean, and run from top to bottom: an analyst's questions on two small runs."""

import html
import json
import shutil
from pathlib import Path

import nbformat
import pytest
from explored_run import build_explored_run
from fabricated_run import TITLES, TRIPLE
from nbclient import NotebookClient

from dupq import storage

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHOWN = {
    "look_up": ["probability", "is_canonical", "refund"],
    "nights": ["questions in clusters", "<td>new</td>", "<th>was</th>"],
    "own_table": ["of duplicates among 6 texts", "T-4"],
    "threshold": ["expected precision", "no candidate", "10 judged"],
}


@pytest.fixture(scope="module")
def nights(small_runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs, as two nights leave it; the later run has the lower threshold."""
    folder = tmp_path_factory.mktemp("nights") / "runs"
    for run in (small_runs.strict, small_runs.loose):
        shutil.copytree(run, folder / storage.name(run))
    name = storage.name(small_runs.loose)
    storage.write_json(str(folder / "latest.json"), {"run_id": name, "run": str(folder / name)})
    return folder


def executed(path: Path, monkeypatch: pytest.MonkeyPatch, runs: str) -> str:
    """Return what the cells of a notebook show on a run."""
    monkeypatch.setenv("DUPQ_RUN", runs)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel's folder is another
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    data = [output.data for output in outputs if "data" in output]
    shown = [one.get("text/html", one.get("image/svg+xml", one["text/plain"])) for one in data]
    return "\n".join([*shown, *(output.text for output in outputs if "text" in output)])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    stored = json.loads(path.read_text())
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert path.stem in (*SHOWN, "first_look")  # what a test runs
    assert code
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert set(stored["metadata"]) == {"kernelspec", "language_info"}  # no state of widgets


@pytest.mark.full
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs(name: str, nights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = executed(ROOT / "notebooks" / f"{name}.ipynb", monkeypatch, str(nights))
    assert [word for word in SHOWN[name] if word not in text] == []
    assert ("<svg" in text) is (name in ("nights", "threshold"))


def test_the_first_look_shows_titles_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_explored_run(str(tmp_path))
    text = executed(ROOT / "notebooks" / "first_look.ipynb", monkeypatch, storage.parent(run))
    assert run in text
    assert "4 groups of duplicates" in text
    assert f"https://{TRIPLE[0][0]}/questions/{TRIPLE[0][1]}" in text
    assert html.escape(TITLES[TRIPLE[0]], quote=False) in text
    assert "<script>" not in text
