"""Writes the pages of the notebooks in docs/notebooks/, with what their cells show on a run of the sample.

    python docs/make_notebooks.py out/pictures

`make pictures` calls it. The folder is that of `make dedup`; a second night for nights.ipynb is made in a copy.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import dupq

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "notebooks"
NOTEBOOKS = ROOT / "notebooks"
SHOWN_AS = "out/sample"  # where a reader has the run
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def main(folder: str) -> None:
    """Execute all notebooks on the run in `folder`, and write their pages and charts."""
    made = Path(folder).absolute()
    for old in PAGES.glob("*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as copied:
        nights = Path(copied) / "out"
        shutil.copytree(made / "runs", nights / "runs")
        for name in ("questions", "links", "encoder"):
            (nights / name).symlink_to(made / name)
        _next_night(nights)
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            runs = nights / "runs" if path.stem == "nights" else Path(dupq.open_run(made / "runs").uri)
            _write(path, runs, (str(nights), str(made)))


def _next_night(folder: Path) -> None:
    """Make the run that nights.ipynb names: the same archive, at a higher precision."""
    options = {"questions": "questions", "links": "links", "encoder": "encoder", "output": "runs", "previous": "runs"}
    given = [word for name, place in options.items() for word in (f"--{name}", str(folder / place))]
    job = [sys.executable, str(ROOT / "jobs" / "dedup.py"), *given, "--precision", "0.9", "--ray", "none"]
    subprocess.run(job, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _write(path: Path, runs: Path, hidden: tuple[str, ...]) -> None:
    os.environ |= {"DUPQ_RUN": str(runs), "PYTHONPATH": str(ROOT)}
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    charts: list[str] = []
    text = page(notebook, path.stem, charts)
    for place in hidden:
        text = text.replace(place, SHOWN_AS)
    (PAGES / f"{path.stem}.md").write_text(text, "utf-8")
    for number, chart in enumerate(charts, 1):
        (PAGES / f"{path.stem}-{number}.svg").write_text(chart, "utf-8")


def page(notebook: Any, name: str, charts: list[str]) -> str:
    """Return a notebook as Markdown: its text, its code, and what it shows. `charts` gets its pictures, as SVG."""
    parts = []
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        outputs = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        parts += [_shown(output, name, charts) for output in outputs]
    source = f"[{name}.ipynb](../../notebooks/{name}.ipynb)"
    return "\n\n".join([*parts, f"This page is {source}, run on the sample by `make pictures`."]) + "\n"


def _shown(output: Any, name: str, charts: list[str]) -> str:
    data = output.get("data", {})
    if "image/svg+xml" in data:
        charts.append(data["image/svg+xml"])
        return f"![What the cell above draws]({name}-{len(charts)}.svg)"
    if "text/html" in data:
        lines = _STYLE.sub("", data["text/html"]).splitlines()
        return "\n".join(['<div class="shown">', *filter(None, map(str.strip, lines)), "</div>"])
    return f"```text\n{(output.get('text') or data['text/plain']).rstrip()}\n```"


if __name__ == "__main__":
    main(*sys.argv[1:])
